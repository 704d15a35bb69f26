"""The limit of a configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.predict.load import Load
from gaudi_launch.core.predict.scaling import Speed
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.simulate import ServedSetup, simulate
from gaudi_launch.core.predict.step_model import Setup as Division
from gaudi_launch.core.predict.step_time import StepTime
from gaudi_launch.extensions.recommend.limit import limit_of
from gaudi_launch.extensions.recommend.space import Candidate, SearchCase
from gaudi_launch.extensions.recommend.trial import Trial
from tests.support.recommend import table_case
from tests.support.traces import limits

ONE = Candidate("toy", "bf16", 1, 8, 1, 2048, 4096, False)
COST = StepTime(100.0, 0.0, 0.0, 10.0, 0.0, 0.0, "round")
# a model with little but weights
SHAPE = Shape(1, 1, 64, 64, 5e9, 1e3, 64, 1, 64)
# two blocks for each request
SETUP = ServedSetup(
    limits(num_blocks=16), Speed(COST, Division("gaudi2", 1, "bf16", 2.0, 2.0, "static"), SHAPE)
)


def case(tokens: int = 200, answer: int = 10) -> SearchCase:
    return replace(table_case(), load=Load(((0.0, tokens, answer), (1.0, tokens, answer))))


OUTCOME = simulate(SETUP, case().load.of_clients(2))
TRIAL = Trial(ONE, SETUP, outcome=OUTCOME, score=5.0)
PART = OUTCOME.bound if OUTCOME else ""


def name(trial: Trial, others: list[Trial], *lengths: int) -> str:
    found = limit_of(case(*lengths), trial, others)
    assert found is not None
    return found.name


def test_a_cache_that_is_too_small_for_the_batch_is_the_limit() -> None:
    larger = replace(TRIAL, candidate=replace(ONE, batch=9))
    assert (name(TRIAL, []), name(larger, [])) == (PART, "cache")
    # 256 tokens are two blocks of 128, 257 are three
    assert (name(TRIAL, [], 246, 10), name(TRIAL, [], 247, 10)) == (PART, "cache")


@pytest.mark.parametrize(
    ("missed", "score", "expected"),
    [
        (("start",), 5.1, "start"),
        (("start",), 5.0, PART),
        (("ttft", "start"), 9.0, PART),
        ((), 9.0, PART),
    ],
)
def test_a_better_one_that_takes_too_long_to_start_is_the_limit(
    missed: tuple[str, ...], score: float, expected: str
) -> None:
    other = Trial(ONE, score=score, missed=missed)
    assert name(TRIAL, [TRIAL, other]) == expected


def test_what_does_not_run_has_no_limit() -> None:
    assert limit_of(case(), Trial(ONE), []) is None
    assert limit_of(case(), Trial(ONE, SETUP), []) is None
