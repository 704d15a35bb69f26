"""Shapes without a bucket, counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.buckets.bucket_list import Bucket, Buckets
from gaudi_launch.buckets.coverage import Holes, prove, uncovered
from tests.support.traces import limits

# prompts: one of 512 tokens or two of 256; sequences have up to four blocks of the ten
BOUNDS = limits(
    max_num_seqs=4,
    max_num_prefill_seqs=2,
    max_num_batched_tokens=512,
    max_model_len=512,
    num_blocks=10,
    input_max=256,
    output_max=256,
)
PROMPT: list[Bucket] = [[1, 512, 0], [2, 256, 0]]
DECODE: list[Bucket] = [[4, 1, 10]]


@pytest.mark.parametrize(
    ("prompt", "count", "examples"),
    [
        (PROMPT, 0, ()),
        ([[2, 512, 0]], 0, ()),
        # a bucket behind a context takes prompts without one
        ([[1, 512, 3], [8, 256, 0]], 0, ()),
        ([[1, 384, 0], [2, 256, 0]], 1, ((1, 512, 0),)),
        # a part of a block is a length of its own
        ([[1, 450, 0], [2, 130, 0]], 2, ((1, 512, 0), (2, 256, 0))),
        ([[1, 512, 0]], 2, ((2, 256, 0),)),
        ([], 6, ((1, 512, 0), (2, 256, 0))),
    ],
)
def test_lengths_of_prompts_without_a_bucket(
    prompt: list[Bucket], count: int, examples: tuple[tuple[int, int, int], ...]
) -> None:
    found = uncovered(Buckets(prompt, DECODE), BOUNDS)
    assert (found, found.shapes) == (Holes(count, 0, examples), count)


@given(top=st.integers(1, 1024), reach=st.integers(1, 1200))
def test_prompts_without_a_bucket_are_those_that_are_enumerated(top: int, reach: int) -> None:
    bounds = limits(max_num_seqs=1, max_num_batched_tokens=top, max_model_len=1024)
    padded = {min(blocks * 128, top) for blocks in range(1, 9)}
    found = uncovered(Buckets([[1, reach, 0]], [[1, 1, 1000]]), bounds)
    assert found.prompt == sum(length > reach for length in padded)


@pytest.mark.parametrize(
    ("decode", "count", "examples"),
    [
        (DECODE, 0, ()),
        ([[1, 1, 4], [2, 1, 8], [8, 1, 10]], 0, ()),
        # two sequences have 7 or 8 blocks without a bucket, three 3 to 10 and four 4 to 10
        ([[2, 1, 6]], 2 + 8 + 7, ((2, 1, 8), (3, 1, 10), (4, 1, 10))),
        ([[3, 1, 10]], 7, ((4, 1, 10),)),
        ([[4, 1, 9]], 2, ((3, 1, 10), (4, 1, 10))),
    ],
)
def test_blocks_of_sequences_without_a_bucket(
    decode: list[Bucket], count: int, examples: tuple[tuple[int, int, int], ...]
) -> None:
    assert uncovered(Buckets(PROMPT, decode), BOUNDS) == Holes(0, count, examples)


def test_more_sequences_than_blocks_never_decode() -> None:
    few = limits(max_num_seqs=4, num_blocks=3)
    prompt: list[Bucket] = [[1, 8192, 0]]
    assert uncovered(Buckets(prompt, [[3, 1, 3]]), few).shapes == 0
    assert uncovered(Buckets(prompt, [[2, 1, 3]]), few) == Holes(0, 1, ((3, 1, 3),))


@pytest.mark.parametrize(
    ("given", "count"),
    [
        # sequences that share a prefix name its blocks more than once
        ({"prefix_caching": True}, 1 + 1 + 1),
        ({"prefix_caching": False}, 0),
        ({"prefix_caching": True, "contiguous_pa": True}, 0),
    ],
)
def test_no_step_names_more_blocks_than_the_cache_has(given: dict[str, bool], count: int) -> None:
    bounds = limits(max_num_seqs=3, num_blocks=10, cache_blocks=9, mixed_steps=True, **given)
    longest: list[Bucket] = [[1, 8192, 0]]
    decode: list[Bucket] = [[3, 1, 9]]
    assert uncovered(Buckets(longest, decode), bounds).decode == count


def test_a_plan_with_a_hole_is_an_error_of_this_program() -> None:
    prove(Buckets(PROMPT, DECODE), BOUNDS)
    with pytest.raises(AssertionError, match=r"17 shapes without a bucket: \(\(2, 1, 8\), "):
        prove(Buckets(PROMPT, [[2, 1, 6]]), BOUNDS)


LADDER = st.tuples(st.just(1), st.integers(1, 20), st.integers(0, 12)).map(list)


@given(length=st.integers(2, 40), budget=st.integers(4, 20), ladder=st.lists(LADDER, max_size=8))
def test_queries_behind_a_context_are_those_that_are_enumerated(
    length: int, budget: int, ladder: list[Bucket]
) -> None:
    given = {"max_num_batched_tokens": budget, "max_model_len": length, "block_size": 4}
    bounds = limits(mixed_steps=True, **given)
    missing = {
        (-(-query // 4), -(-before // 4))
        for before in range(1, length)
        for query in range(1, min(budget, length - before) + 1)
        if not any(q >= query and c >= -(-before // 4) for _, q, c in ladder)
    }
    assert uncovered(Buckets(ladder, [[1, 1, 1000]]), bounds).behind == len(missing)
