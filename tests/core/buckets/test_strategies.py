"""The strategies of an engine, and how each is judged."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.buckets import strategies as module
from gaudi_launch.core.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.core.buckets.families import CONTEXT_LADDER, PLAIN_GRID
from gaudi_launch.core.buckets.strategies import Judged, Strategy, judge, script_ranges, strategies
from gaudi_launch.core.predict.step_time import ONE_CARD_8B
from tests.support.traces import limits

BOUNDS = limits()
BUCKETS = Buckets([[1, 8192, 0], [1, 8193, 0]], [[8192, 1, 2], [8193, 1, 2]])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace engines and scores by tables; return what is asked of them."""
    seen: list[Any] = []

    def count(*question: Any) -> tuple[int, int]:
        seen.append(question)
        if question[1] == "broken":
            raise BucketError("hang: a minimum of 0 never grows")
        return {"long": (150_000, 50_001), "full": (150_000, 50_000)}.get(question[1], (2, 2))

    def engine_buckets(*question: Any) -> Buckets:
        assert question == seen[-1]
        return BUCKETS

    monkeypatch.setattr(module, "count", count)
    monkeypatch.setattr(module, "engine_buckets", engine_buckets)
    monkeypatch.setattr(module, "uncovered", lambda buckets, bounds: (buckets, bounds))
    monkeypatch.setattr(module, "score", lambda *scored: scored)
    return seen


def judged(algorithm: str, env: dict[str, str]) -> Judged:
    shapes: Any = "shapes"
    return judge(PLAIN_GRID, Strategy("name", algorithm, env), BOUNDS, shapes, ONE_CARD_8B)


def scored(buckets: Buckets) -> tuple[Any, ...]:
    return (buckets, (buckets, BOUNDS), (buckets, "shapes", ONE_CARD_8B))


def test_a_list_that_is_too_long_is_counted_only(asked: list[Any]) -> None:
    assert judged("long", {}) == Judged("name", 150_000, 50_001, None, None, None)
    assert judged("full", {}).buckets == BUCKETS


def test_the_failure_of_an_engine_is_an_answer(asked: list[Any]) -> None:
    assert judged("broken", {}) == Judged(
        "name", 0, 0, None, None, None, "hang: a minimum of 0 never grows"
    )


def test_a_family_without_a_script_has_the_variables_of_the_limits() -> None:
    assert script_ranges(CONTEXT_LADDER, BOUNDS) == {}
    names = ("exponential", "pad", "linear")
    assert strategies(CONTEXT_LADDER, BOUNDS, (8, 1000)) == [
        Strategy(name, name, {}) for name in names
    ]
    env = {"VLLM_CONTIGUOUS_PA": "true"}
    assert strategies(CONTEXT_LADDER, limits(contiguous_pa=True)) == [
        Strategy(name, name, env) for name in names
    ]
