"""The look-up rules: a table against the plain scan, and what each outcome means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.buckets import lookup
from gaudi_launch.core.buckets.bucket_list import Bucket
from gaudi_launch.core.buckets.engine_buckets import lookups
from gaudi_launch.core.buckets.families import (
    CONTEXT_LADDER,
    EVERY_CONTEXT,
    FIXED_LENGTHS,
    PLAIN_GRID,
)
from gaudi_launch.core.buckets.ladders import fallback, limited
from gaudi_launch.core.buckets.lookup import BucketTable, Lookup, holds
from tests.support.bucket_parity import FOUR_PROMPTS

SIZES = st.integers(0, 12)
BUCKETS = st.lists(st.tuples(SIZES, SIZES, SIZES).map(list), max_size=30)


@given(BUCKETS, st.tuples(SIZES, SIZES, SIZES))
def test_table_is_the_first_entry_that_is_large_enough(
    buckets: list[Bucket], shape: tuple[int, int, int]
) -> None:
    first = next((bucket for bucket in sorted(buckets) if holds(bucket, *shape)), None)
    table = BucketTable(buckets)
    assert table.find(*shape) == first
    assert table._scan(*shape) == first
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "_TABLE_CELLS", -1)
        assert BucketTable(buckets).find(*shape) == first


@given(BUCKETS, st.lists(st.tuples(SIZES, SIZES, SIZES), max_size=10), st.booleans())
def test_all_shapes_together_get_the_buckets_of_each(
    buckets: list[Bucket], shapes: list[tuple[int, int, int]], has_table: bool
) -> None:
    columns = np.asarray(shapes, dtype=np.int64).reshape(-1, 3).T
    with pytest.MonkeyPatch.context() as patch:
        if not has_table:
            patch.setattr(lookup, "_TABLE_CELLS", -1)
        table = BucketTable(buckets)
    numbers = table.find_all(*columns)
    found = [[*table.buckets, None][number] for number in numbers]
    assert found == [BucketTable(buckets).find(*shape) for shape in shapes]


@given(st.integers(2, 200_000), st.sampled_from([2, 32, 256]))
def test_fallback_is_large_enough_and_in_steps(value: int, step: int) -> None:
    assert fallback(value, step) >= value
    assert fallback(value, step) % step == 0


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 9000), st.floats(0, 0.9))
def test_limited_reaches_its_maximum(low: int, step: int, high: int, limit: float) -> None:
    values = limited(min(low, high), step, high, limit)
    assert values == sorted(set(values))
    assert (values[0], values[-1]) == (min(low, high), high)


def test_by_configuration_is_not_clipped() -> None:
    rule = lookups(PLAIN_GRID, "linear", {}, FOUR_PROMPTS)
    assert rule.prompt(3, 700) == Lookup([4, 768, 0], "warmed")
    assert rule.prompt(4, 2000) == Lookup(
        [4, 2048, 0], "recompile"
    )  # over the token budget, so never warmed
    assert rule.prompt(1, 5000) == Lookup([1, 5120, 0], "recompile")
    assert rule.decode(5, 290) == Lookup([8, 1, 300], "warmed")
    assert rule.decode(5, 301) == Lookup([8, 1, 300], "error")


def test_exponential_1_21_stops_in_a_debugger() -> None:
    rule = lookups(PLAIN_GRID, "exponential", {}, FOUR_PROMPTS)
    assert rule.prompt(1, 4097) == Lookup(None, "hang")
    assert rule.decode(17, 1) == Lookup(None, "hang")


def test_deepseek_limit_uses_the_raw_shape() -> None:
    rule = lookups(FIXED_LENGTHS, "linear-limit", {}, FOUR_PROMPTS)
    assert rule.prompt(1, 1025) == Lookup([1, 1025, 0], "recompile")


def test_fallback_buckets_are_kept_only_when_asked() -> None:
    forgets, keeps = (
        lookups(EVERY_CONTEXT, "exponential", {}, FOUR_PROMPTS, remember=remember)
        for remember in (False, True)
    )
    for rule in (forgets, keeps):
        assert rule.prompt(1, 129, 17) == Lookup([1, 192, 96], "fallback", added=True)
    assert forgets.prompt(1, 130, 17) == Lookup([1, 192, 96], "fallback", added=True)
    assert keeps.prompt(1, 130, 17) == Lookup([1, 192, 96], "warmed")


def test_fallback_too_small_for_the_shape_is_an_error() -> None:
    rule = lookups(CONTEXT_LADDER, "exponential", {}, FOUR_PROMPTS)
    assert rule.prompt(17, 128).outcome == "error"
    assert rule.prompt(1, 4097).outcome == "error"
    assert rule.decode(16, 9000).outcome == "error"
