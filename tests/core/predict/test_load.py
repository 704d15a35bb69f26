"""Requests as one engine receives them."""

from __future__ import annotations

import pytest

from gaudi_launch.core.predict.load import SharedPrefix, busiest_minute, from_trace, mean_rate

TRACE = [(10.0, 5, 50), (11.0, 7, 10), (14.0, 9, 30)]
SHARED = (SharedPrefix(0, 0), SharedPrefix(4, 100), SharedPrefix(8, 200))


def test_requests_keep_their_shared_beginnings() -> None:
    load = from_trace(TRACE, shared=SHARED).with_cache(150)
    assert load.cached == (0, 4, 0)
    sent = load.sent(9)
    pairs = {
        (tokens, kept) for (_, tokens, _), kept in zip(sent.requests, sent.cached, strict=True)
    }
    assert pairs == {(5, 0), (7, 4), (9, 0)}
    assert load.mean_cached == pytest.approx(4 / 3)
    assert from_trace(TRACE).with_cache(150).sent().cached == ()


def test_rates_of_a_trace() -> None:
    steady = [(float(second), 5, 5) for second in range(121)]
    assert (mean_rate(steady), busiest_minute(steady)) == (1.0, 61 / 60)
    burst = [(0.0, 5, 5)] * 30 + [(300.0, 5, 5)]
    assert (mean_rate(burst), busiest_minute(burst)) == (0.1, 0.5)
    assert (mean_rate(steady[:1]), mean_rate([(1.0, 5, 5)] * 3), busiest_minute(steady[:30])) == (
        None,
        None,
        None,
    )
