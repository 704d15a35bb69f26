"""Shapes without a bucket, counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.buckets.bucket_list import Bucket, Buckets
from gaudi_launch.core.buckets.coverage import prove, uncovered
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


@given(top=st.integers(1, 1024), reach=st.integers(1, 1200))
def test_prompts_without_a_bucket_are_those_that_are_enumerated(top: int, reach: int) -> None:
    bounds = limits(max_num_seqs=1, max_num_batched_tokens=top, max_model_len=1024)
    padded = {min(blocks * 128, top) for blocks in range(1, 9)}
    found = uncovered(Buckets([[1, reach, 0]], [[1, 1, 1000]]), bounds)
    assert found.prompt == sum(length > reach for length in padded)


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
