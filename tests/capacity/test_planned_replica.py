"""What a replica's plan gives to the simulation; the engine answers from a table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.buckets.bucket_list import BucketError
from gaudi_launch.capacity import planned_replica as module
from gaudi_launch.capacity.planned_replica import (
    ReplicaSetup,
    planned_replica,
)
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.planning.request import Request
from tests.support.traces import limits

TRAFFIC = Traffic(((0.0, 100, 10), (1.0, 300, 30)))
QUESTION: Any = SimpleNamespace(limits=limits(max_num_prefill_seqs=4))


class ToyEngine:
    """An engine that records what it is asked."""

    scheduling = "v1"

    def __init__(self, *, chooses: bool, question: Any = QUESTION, warms: Any = None) -> None:
        self.chooses = chooses
        self.question_of = question
        self.warms = warms

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

    return seen


@pytest.mark.parametrize("warms", [None, BucketError("hang: x")])
def test_an_engine_without_a_warm_up_has_no_buckets(
    warms: Any, drawn: list[tuple[Any, ...]]
) -> None:
    found: Any = planned_replica(setup(ToyEngine(chooses=False, warms=warms)), TRAFFIC)
    assert found.buckets(99) is None


def test_without_a_question_a_step_has_one_prompt(drawn: list[tuple[Any, ...]]) -> None:
    engine = ToyEngine(chooses=True, question=None)
    found: Any = planned_replica(setup(engine, traced=True), TRAFFIC)
    assert found.prompts == 1
    assert [each[0].max_prefill_seqs for each in drawn] == [None, 1]
