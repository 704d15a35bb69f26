"""The strategies of an engine, and how each is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.buckets import strategies as module
from gaudi_launch.buckets.bucket_list import BucketError, Buckets, captured
from gaudi_launch.buckets.coverage import Holes
from gaudi_launch.buckets.families import (
    CONTEXT_LADDER,
    EVERY_CONTEXT,
    FIXED_LENGTHS,
    PLAIN_GRID,
)
from gaudi_launch.buckets.optimiser.padding_cost import Score
from gaudi_launch.buckets.strategies import (
    Judged,
    Strategy,
    arguments_of,
    judge,
    script_ranges,
    strategies,
)
from gaudi_launch.performance.step_time import ONE_CARD_8B
from tests.support.traces import limits

BOUNDS = limits()
BUCKETS = Buckets([[1, 8192, 0], [1, 8193, 0]], [[8192, 1, 2], [8193, 1, 2]])
NO_HOLES = Holes(0, 0)
SWITCH = "VLLM_EXPONENTIAL_BUCKETING"


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


def test_a_list_is_counted_and_scored(asked: list[Any]) -> None:
    env = {"A": "1"}
    assert judged("linear", env) == Judged("name", 2, 2, *scored(BUCKETS))
    assert judged("linear", env).graphs == 4
    assert asked[0] == (PLAIN_GRID, "linear", env, arguments_of(BOUNDS))


def test_a_warm_up_without_its_first_pass_is_what_it_captures(asked: list[Any]) -> None:
    kept = Buckets([[1, 8192, 0]], [[8192, 1, 2]])
    skipped = {"VLLM_SKIP_LAZY_WARMUP": "true"}
    assert judged("linear", skipped) == Judged("name", 1, 1, *scored(kept))
    assert judged("linear", {"VLLM_SKIP_LAZY_WARMUP": "false"}).buckets == BUCKETS


def test_a_list_that_is_too_long_is_counted_only(asked: list[Any]) -> None:
    assert judged("long", {}) == Judged("name", 150_000, 50_001, None, None, None)
    assert judged("full", {}).buckets == BUCKETS


def test_the_failure_of_an_engine_is_an_answer(asked: list[Any]) -> None:
    assert judged("broken", {}) == Judged(
        "name", 0, 0, None, None, None, "hang: a minimum of 0 never grows"
    )


def test_a_list_weighs_its_overhead_and_its_graphs() -> None:
    row = Judged("name", 30, 20, BUCKETS, NO_HOLES, Score(0.25, 0.1, 0.2, 0.3))
    assert row.weight(0.01) == pytest.approx(0.25 + 0.5)
    assert replace(row, holes=Holes(0, 1)).weight(0.01) == float("inf")
    assert replace(row, holes=None).weight(0.01) == float("inf")
    assert replace(row, score=None).weight(0.01) == float("inf")


def test_the_arguments_are_the_limits() -> None:
    assert arguments_of(limits(prefix_caching=True)) == {
        "max_num_seqs": 64,
        "max_model_len": 8192,
        "block_size": 128,
        "max_num_prefill_seqs": 1,
        "max_num_batched_tokens": 8192,
        "num_hpu_blocks": 2000,
        "prefix_caching": True,
    }
    assert arguments_of(limits(cache_blocks=3000))["num_hpu_blocks"] == 3000


def test_each_algorithm_has_what_its_start_script_exports() -> None:
    grid = script_ranges(PLAIN_GRID, BOUNDS)
    assert strategies(PLAIN_GRID, BOUNDS) == [
        Strategy("linear", "linear", {**grid, SWITCH: "false"}),
        Strategy("exponential", "exponential", {}),
    ]
    every = script_ranges(EVERY_CONTEXT, BOUNDS)
    assert strategies(EVERY_CONTEXT, BOUNDS) == [
        Strategy("linear-limit", "linear-limit", {**every, SWITCH: "false"}),
        Strategy("linear", "linear", {**every, SWITCH: "false"}),
        Strategy("exponential", "exponential", {}),
    ]
    fixed = script_ranges(FIXED_LENGTHS, BOUNDS)
    assert [each.env for each in strategies(FIXED_LENGTHS, BOUNDS)] == [fixed, fixed]


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


@pytest.mark.parametrize(
    ("family", "algorithm", "more"),
    [
        (PLAIN_GRID, "linear", {"VLLM_SKIP_LAZY_WARMUP": "true"}),
        (EVERY_CONTEXT, "linear-limit", {}),
    ],
)
def test_the_short_warm_up_of_the_scripts_is_one_more(
    family: str, algorithm: str, more: dict[str, str]
) -> None:
    *_, last = strategies(family, BOUNDS, (8, 1000))
    short = script_ranges(family, BOUNDS, (8, 1000))
    assert last == Strategy(f"{algorithm} -r 8,1000", algorithm, {**short, SWITCH: "false", **more})
    changed = {
        name for name, value in script_ranges(family, BOUNDS).items() if short[name] != value
    }
    assert changed == {
        *("VLLM_PROMPT_SEQ_BUCKET_MAX", "VLLM_DECODE_BS_BUCKET_MAX", "VLLM_DECODE_BLOCK_BUCKET_MAX")
    }


def test_prompts_count_all_their_tokens_and_sequences_one_each() -> None:
    every = Buckets(
        [[1, 128, 9], [2, 64, 0], [2, 65, 0], [1, 256, 0]], [[1, 1, 999], [128, 1, 9], [129, 1, 1]]
    )
    assert captured(every, 128) == Buckets([[1, 128, 9], [2, 64, 0]], [[1, 1, 999], [128, 1, 9]])
    assert captured(every, 0) == Buckets([], [])
