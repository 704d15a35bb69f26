"""Requests as one engine receives them."""

from __future__ import annotations

import pytest

from gaudi_launch.core.predict.load import (
    SharedPrefix,
    busiest_minute,
    from_trace,
    mean_rate,
)

TRACE = [(10.0, 5, 50), (11.0, 7, 10), (14.0, 9, 30)]
SHARED = (SharedPrefix(0, 0), SharedPrefix(4, 100), SharedPrefix(8, 200))


def test_some_of_recorded_requests_are_those_of_a_burst() -> None:
    """One in four comes ten times as fast as the others: so do 100 of them, by the same clock."""
    times = [*range(300), *(300 + step / 10 for step in range(200)), *range(321, 621)]
    load = from_trace([(float(time), number, 1) for number, time in enumerate(times)], True)
    sent = load.sent(100).requests
    pace = (len(times) - 1) / times[-1]
    first = sent[0][1]
    assert 300 <= first <= 400
    assert [at for _, at, _ in sent] == list(range(first, first + 100))
    expected = [pace * (times[at] - times[first]) for _, at, _ in sent]
    assert [time for time, _, _ in sent] == pytest.approx(expected)
    assert load.sent(9000).requests == load.sent().requests


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
