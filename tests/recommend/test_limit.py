"""The limit of a configuration, with parts of steps that are round numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.capacity.replica import Replica
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.performance.prediction import StepModel
from gaudi_launch.performance.scaling import Speed
from gaudi_launch.performance.shape import Shape
from gaudi_launch.performance.step_model import Parts, Setup
from gaudi_launch.performance.step_time import StepTime
from gaudi_launch.recommend import limit as module
from gaudi_launch.recommend.goal import Served
from gaudi_launch.recommend.limit import inside_of, limit_of
from gaudi_launch.recommend.space import Candidate, SearchCase
from gaudi_launch.recommend.trial import Trial
from tests.support.recommend import table_case
from tests.support.records import near
from tests.support.traces import limits

ONE = Candidate("toy", "bf16", 1, 8, 1, 2048, 4096, False)
COST = StepTime(100.0, 0.0, 0.0, 10.0, 0.0, 0.0, "round")
SETUP, SHAPE = Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v0"), Shape(1, 1, 1, 1, 1, 1, 1, 1, 1)
# two blocks for each request
REPLICA = Replica(1, limits(num_blocks=16), COST, 0.0, Speed(COST, SETUP, SHAPE), ())
SERVED = Served(
    replicas=2,
    cards=2,
    nodes=1,
    ttft=0.1,
    tpot=0.01,
    e2e=2.0,
    tokens=40.0,
    spare=40.0,
    length=4096,
    balance=10.0,
)
TRIAL = Trial(ONE, SERVED, score=5.0, replica=REPLICA)


def case(tokens: int = 200, answer: int = 10) -> SearchCase:
    return replace(table_case(), traffic=Traffic(((0.0, tokens, answer), (1.0, tokens, answer))))


@pytest.mark.parametrize(
    ("trial", "inside"),
    [
        # two requests per second of each replica stay two seconds
        (TRIAL, 4.0),
        (replace(TRIAL, served=replace(SERVED, replicas=1)), 8.0),
        (replace(TRIAL, candidate=replace(ONE, pipeline=2)), 2.0),
        (replace(TRIAL, candidate=replace(ONE, batch=3)), 3.0),
        (replace(TRIAL, served=replace(SERVED, e2e=0.1)), 1.0),
        (Trial(ONE), 1.0),
    ],
)
def test_the_requests_in_an_engine(trial: Trial, inside: float) -> None:
    assert inside_of(case(), trial) == near(inside)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Replace the parts of steps by round numbers; return what is asked."""
    asked: list[tuple[Any, ...]] = []

    def prefill(batch: float, tokens: float) -> Parts:
        asked.append(("prefill", batch, tokens))
        return Parts(0.0, 0.0, 1.5, 0.5, 0.0)

    def decode(batch: float, tokens: float) -> Parts:
        asked.append(("decode", batch, tokens))
        return Parts(2.0, 0.5, 0.0, 0.0, 0.5)

    def steps(*question: Any) -> StepModel:
        asked.append(question)
        return StepModel(prefill, decode)

    monkeypatch.setattr(module, "steps", steps)
    return asked


@pytest.mark.usefixtures("parts")
def test_a_cache_that_is_too_small_for_the_batch_is_the_limit() -> None:
    def name(trial: Trial, tokens: int = 200, answer: int = 10) -> str:
        found = limit_of(case(tokens, answer), trial, [])
        assert found is not None
        return found.name

    larger = replace(TRIAL, candidate=replace(ONE, batch=9))
    assert (name(TRIAL), name(larger)) == ("weights", "cache")
    # 256 tokens are two blocks of 128, 257 are three
    assert (name(TRIAL, 246), name(TRIAL, 247)) == ("weights", "cache")


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(
    ("missed", "score", "name"),
    [
        (("start",), 5.1, "start"),
        (("start",), 5.0, "weights"),
        (("ttft", "start"), 9.0, "weights"),
        ((), 9.0, "weights"),
    ],
)
def test_a_better_one_that_takes_too_long_to_start_is_the_limit(
    missed: tuple[str, ...], score: float, name: str
) -> None:
    other = Trial(ONE, SERVED, score=score, missed=missed)
    found = limit_of(case(), TRIAL, [TRIAL, other])
    assert found is not None and found.name == name


def test_what_does_not_run_has_no_limit() -> None:
    assert limit_of(case(), Trial(ONE, SERVED), []) is None
    assert limit_of(case(), Trial(ONE, replica=REPLICA), []) is None
