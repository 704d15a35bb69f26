"""The limits of an engine, and the shapes that they allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.predict.limits import EngineLimits, as_limits

LIMITS = EngineLimits(
    max_num_seqs=16,
    max_num_prefill_seqs=8,
    max_num_batched_tokens=1000,
    max_model_len=700,
    num_blocks=90,
    input_min=1,
    input_max=600,
    output_min=1,
    output_max=100,
)


def test_the_shapes_that_the_limits_allow() -> None:
    # 700 tokens are five complete blocks and a part of the sixth
    assert (LIMITS.blocks_per_sequence, LIMITS.longest_query) == (6, 768)
    assert replace(LIMITS, max_model_len=768).blocks_per_sequence == 6
    assert replace(LIMITS, max_model_len=769).blocks_per_sequence == 7
    assert replace(LIMITS, max_num_batched_tokens=500).longest_query == 500
    assert [replace(LIMITS, max_model_len=n).most_context for n in (1, 2, 129, 130)] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("seqs", "budget", "rows"),
    [(8, 1000, 7), (4, 1000, 4), (8, 1024, 8), (8, 100, 1), (8, 1, 1)],
)
def test_the_largest_prompt_batch_is_of_one_block_each(seqs: int, budget: int, rows: int) -> None:
    limits = replace(LIMITS, max_num_prefill_seqs=seqs, max_num_batched_tokens=budget)
    assert limits.prefill_rows == rows


@pytest.mark.parametrize(("batch", "top"), [(1, 768), (2, 384), (3, 256), (7, 128), (8, 0)])
def test_the_longest_prompt_of_a_batch_is_of_complete_blocks(batch: int, top: int) -> None:
    assert LIMITS.query_top(batch) == top


def test_where_the_budget_is_the_limit_a_prompt_need_not_be_complete_blocks() -> None:
    assert replace(LIMITS, max_num_batched_tokens=500).query_top(1) == 500


def test_the_blocks_of_a_decode_batch() -> None:
    assert [LIMITS.block_top(batch) for batch in (1, 4, 15, 16, 100)] == [6, 24, 90, 90, 100]
    assert replace(LIMITS, contiguous_pa=True).block_top(1) == 90


@pytest.mark.parametrize(("cache", "blocks"), [(None, 90), (0, 90), (80, 80), (100, 90)])
def test_shared_blocks_do_not_make_the_cache_larger(cache: int | None, blocks: int) -> None:
    assert replace(LIMITS, cache_blocks=cache).physical_blocks == blocks


def test_what_is_left_out_follows_the_engines_defaults() -> None:
    expected = EngineLimits(
        max_num_seqs=3,
        max_num_prefill_seqs=3,
        max_num_batched_tokens=300,
        max_model_len=300,
        num_blocks=9,
        input_min=1,
        input_max=300,
        output_min=1,
        output_max=300,
        block_size=128,
        contiguous_pa=False,
        cache_blocks=None,
        prefix_caching=False,
        mixed_steps=False,
        ahead=True,
    )
    known = {"max_num_seqs": 3, "max_model_len": 300}
    assert as_limits({**known, "num_blocks": None, "least_length": 5}) == expected
    # no length is longer than the model's
    given = {"input_min": 2, "input_max": 900, "block_size": 64, "ahead": False}
    changed: dict[str, Any] = {**given, "input_max": 300, "num_blocks": 15}
    assert as_limits({**known, **given}) == replace(expected, **changed)


def test_a_range_is_not_backwards() -> None:
    for name in ("input", "output"):
        ends: dict[str, Any] = {f"{name}_min": 9, f"{name}_max": 8}
        with pytest.raises(LaunchError) as error:
            replace(LIMITS, **ends)
        assert error.value.text == message("warmup.range_backwards", name=name, low=9, high=8)
        assert replace(LIMITS, **{**ends, f"{name}_min": 8})


@pytest.mark.parametrize(
    "name",
    ["max_num_seqs", "max_num_prefill_seqs", "max_num_batched_tokens", "max_model_len",
     "num_blocks", "block_size", "input_min", "output_min"],
)  # fmt: skip
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_below_one_is_refused(name: str, value: int) -> None:
    changed: dict[str, Any] = {name: value}
    with pytest.raises(LaunchError) as error:
        replace(LIMITS, **changed)
    assert (error.value.text, error.value.exit_code) == (
        message("warmup.limit_too_small", name=name, found=value),
        ExitCode.USAGE,
    )
