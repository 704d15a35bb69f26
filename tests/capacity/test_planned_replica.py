"""What a replica's plan gives to the simulation; the engine answers from a table."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.capacity import planned_replica as module
from gaudi_launch.capacity.planned_replica import (
    ReplicaSetup,
    evidence_of,
    planned_replica,
    request_delay,
)
from gaudi_launch.capacity.replica import Replica, ReplicaQuestion
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.performance.constants import values
from gaudi_launch.performance.evidence import Query
from gaudi_launch.performance.published import figures
from gaudi_launch.performance.scaling import Speed
from gaudi_launch.performance.shape import Shape
from gaudi_launch.performance.step_model import Setup
from gaudi_launch.performance.step_time import StepTime
from gaudi_launch.planning.request import Request
from tests.support.traces import limits

TRAFFIC = Traffic(((0.0, 100, 10), (1.0, 300, 30)))
COST = StepTime(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, "plain")
BUCKETS = Buckets([[1, 128, 0]], [[1, 1, 1]])


class ToyEngine:
    """An engine that records what it is asked."""

    scheduling = "v1"
    question_of: Any = SimpleNamespace(limits=limits(max_num_prefill_seqs=4))
    warms: Any = ("a", BUCKETS)

    def __init__(self, *, chooses: bool) -> None:
        self.chooses = chooses

    @property
    def innermost(self) -> ToyEngine:
        return self

    def chooses_prompts(self, context: object) -> bool:
        assert context == "context"
        return self.chooses

    def question(self, settings: object, context: object, cache: None) -> Any:
        assert (settings, context, cache) == ("settings", "context", None)
        return self.question_of

    def buckets(self, settings: object, context: object, blocks: int) -> Any:
        assert (settings, context, blocks) == ("settings", "context", 99)
        if isinstance(self.warms, Exception):
            raise self.warms
        return self.warms


def setup(engine: ToyEngine, **changes: Any) -> ReplicaSetup:
    known: dict[str, Any] = {
        "engine": engine,
        "request": Request(model="m"),
        "accelerator": accelerators()["gaudi2"],
        "model": "model",
        "cards": 2,
        "dtype": "fp8",
        "constants": {"decode_fixed": "9"},
        "stages": 3,
    }
    return ReplicaSetup(**{**known, **changes})


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Replace the plan by a table; return what it is made for."""
    seen: list[tuple[Any, ...]] = []

    def drawn_up(*arguments: Any, cards: int, dtype: str) -> Any:
        seen.append((*arguments[1:], cards, dtype))
        return SimpleNamespace(
            settings="settings", context="context", demand="demand", rules="rules"
        )

    monkeypatch.setattr(module, "drawn_up", drawn_up)
    monkeypatch.setattr(module, "stage_of", lambda model, stages: (model, stages))
    monkeypatch.setattr(module, "replica", lambda question: question)

    def step_time_in(context: object, engine: object) -> StepTime:
        assert (context, type(engine)) == ("context", ToyEngine)
        return COST

    monkeypatch.setattr(module, "step_time_in", step_time_in)
    return seen


def test_a_plan_becomes_a_question(drawn: list[tuple[Any, ...]]) -> None:
    asked = setup(ToyEngine(chooses=True))
    found: Any = planned_replica(asked, TRAFFIC)
    assert drawn == [(asked.request, asked.accelerator, ("model", 3), 2, "fp8")]
    assert isinstance(found, ReplicaQuestion)
    assert found.adjust(COST) == COST.with_constants({"decode_fixed": "9"})
    assert found.buckets(99) == BUCKETS
    plain = {**vars(found), "adjust": None, "buckets": None}
    assert plain == {
        "model": "model",
        "cards": 2,
        "dtype": "fp8",
        "accelerator": asked.accelerator,
        "demand": "demand",
        "rules": "rules",
        "traffic": TRAFFIC,
        "adjust": None,
        "scheduling": "v1",
        "prompts": 4,
        "buckets": None,
        "stages": 3,
    }


@pytest.mark.parametrize("warms", [None, BucketError("hang: x")])
def test_an_engine_without_a_warm_up_has_no_buckets(
    warms: Any, drawn: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ToyEngine, "warms", warms)
    found: Any = planned_replica(setup(ToyEngine(chooses=False)), TRAFFIC)
    assert found.buckets(99) is None


def test_without_a_question_a_step_has_one_prompt(
    drawn: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ToyEngine, "question_of", None)
    found: Any = planned_replica(setup(ToyEngine(chooses=True), traced=True), TRAFFIC)
    assert found.prompts == 1
    assert [each[0].max_prefill_seqs for each in drawn] == [None, 1]


def test_past_requests_choose_the_prompts_of_a_step(
    drawn: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def choose(question: Any, goal: Any, cost: StepTime, *, workload: Any) -> Any:
        asked.append((question, cost, workload))
        return SimpleNamespace(prompts=8)

    monkeypatch.setattr(module, "choose_prompts", choose)
    monkeypatch.setattr(module, "_TRACED", 1)
    engine = ToyEngine(chooses=True)
    planned_replica(setup(engine, traced=True), TRAFFIC)
    assert asked == [
        (engine.question_of, COST.with_constants({"decode_fixed": "9"}), TRAFFIC.requests[:1])
    ]
    assert [each[0].max_prefill_seqs for each in drawn] == [None, 8]
    planned_replica(setup(ToyEngine(chooses=False), traced=True), TRAFFIC)
    planned_replica(setup(engine), TRAFFIC)
    assert len(asked) == 1


def test_the_evidence_of_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "evidence_for", lambda *query: asked.append(query))
    shape = Shape(1, 1, 1, 1, 1, 1, 1, 1, 1)
    one = Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v0")
    found = Replica(1, limits(), COST, 0.0, Speed(COST, one, shape), ())
    far = replace(found, speed=replace(found.speed, measured=False))
    evidence_of(found, TRAFFIC, 7.5, measured=True)
    evidence_of(found, TRAFFIC, 0.5, measured=False)
    evidence_of(far, TRAFFIC, 7.5, measured=True)
    assert asked == [
        (Query(one, shape, 200.0, 20.0, batch, measured), figures(), values())
        for batch, measured in ((7.5, True), (1.0, False), (7.5, False))
    ]


def test_the_delay_of_a_request_is_a_constant() -> None:
    assert request_delay() == values()["api.request"]
