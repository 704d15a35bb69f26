"""Requests as one replica receives them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.buckets.shared_prefixes import SharedPrefix
from gaudi_launch.capacity import traffic
from gaudi_launch.capacity.traffic import (
    Traffic,
    busiest_minute,
    from_ranges,
    from_trace,
    mean_rate,
)


@pytest.fixture(autouse=True)
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "_MOST", 2000)


TRACE = [(10.0, 5, 50), (11.0, 7, 10), (14.0, 9, 30)]
SHARED = (SharedPrefix(0, 0), SharedPrefix(4, 100), SharedPrefix(8, 200))


def test_the_own_arrivals_of_a_trace_are_one_a_second() -> None:
    found = from_trace(TRACE, own_arrivals=True, shared=SHARED)
    assert found == Traffic(((0.0, 5, 50), (0.5, 7, 10), (2.0, 9, 30)), SHARED)
    at_once = from_trace([(3.0, 5, 1), (3.0, 6, 1)], own_arrivals=True)
    assert at_once == Traffic(((0.0, 5, 1), (0.0, 6, 1)))


def test_drawn_requests_keep_their_shared_beginnings() -> None:
    found = from_trace(TRACE, shared=SHARED)
    pairs = {
        (tokens, output, shared.tokens)
        for (_, tokens, output), shared in zip(found.requests, found.shared, strict=True)
    }
    assert pairs == {(5, 50, 0), (7, 10, 4), (9, 30, 8)}
    assert len(found.requests) == 2000
    assert found.requests == from_trace(TRACE).requests
    assert found.requests != from_trace(TRACE, seed=1).requests
    assert from_trace(TRACE).shared == ()


def test_the_ranges_of_drawn_lengths_are_half_logarithmic() -> None:
    found = from_ranges((1, 1024), (3, 3))
    assert (found.input_range, found.output_range) == ((1, 1024), (3, 3))
    # uniform: 3 % are below 32; logarithmic: half are
    few = sum(tokens < 32 for _, tokens, _ in found.requests) / 2000
    assert few == pytest.approx((0.5 + 31 / 1024) / 2, abs=0.05)
    assert from_ranges((1, 9), (1, 9)) == from_ranges((1, 9), (1, 9))
    assert from_ranges((1, 9), (1, 9)) != from_ranges((1, 9), (1, 9), seed=1)


def test_the_means_and_ranges_of_lengths() -> None:
    found = replace(from_trace(TRACE, own_arrivals=True), cached=(0, 4, 2))
    assert (found.mean_input, found.mean_output, found.mean_cached) == (7.0, 30.0, 2.0)
    assert (found.input_range, found.output_range) == ((5, 9), (10, 50))


def test_a_cache_has_what_was_used_within_its_size() -> None:
    found = from_trace(TRACE, own_arrivals=True, shared=SHARED)
    assert [found.with_cache(tokens).cached for tokens in (99, 100, 200)] == [
        (0, 0, 0),
        (0, 4, 0),
        (0, 4, 8),
    ]
    plain = from_trace(TRACE, own_arrivals=True)
    assert plain.with_cache(200) is plain


def test_the_first_requests_are_paced_anew_with_what_belongs_to_them() -> None:
    found = replace(from_trace(TRACE, own_arrivals=True, shared=SHARED), cached=(1, 2, 3))
    assert found.first(2) == Traffic(((0.0, 5, 50), (1.0, 7, 10)), SHARED[:2], (1, 2))
    assert found.first(3) is found


def test_rates_of_a_trace() -> None:
    assert (mean_rate(TRACE), mean_rate(TRACE[:1]), mean_rate([])) == (0.5, None, None)
    assert mean_rate([(1.0, 5, 5), (1.0, 5, 5)]) is None
    assert mean_rate([(0.0, 5, 5), (5.0, 5, 5), (5.0, 5, 5)]) == 0.4
    minute = [(0.0, 1, 1), (30.0, 1, 1), (60.0, 1, 1)]
    assert (busiest_minute(minute), busiest_minute([])) == (None, None)
    longer = [*minute, (61.0, 1, 1), (62.0, 1, 1), (200.0, 1, 1)]
    assert busiest_minute(longer) == 4 / 60
