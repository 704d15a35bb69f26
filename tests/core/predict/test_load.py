"""Requests as one engine receives them."""

from __future__ import annotations

import pytest

from gaudi_launch.core.predict.load import (
    Load,
    SharedPrefix,
    busiest_minute,
    from_ranges,
    from_trace,
    mean_rate,
)
from tests.support.traces import made_up

TRACE = [(10.0, 5, 50), (11.0, 7, 10), (14.0, 9, 30)]
SHARED = (SharedPrefix(0, 0), SharedPrefix(4, 100), SharedPrefix(8, 200))
EVEN = from_ranges((5, 50), (7, 9))


@pytest.mark.parametrize(
    ("load", "count"),
    [
        (from_trace(made_up(800)), 800),
        (from_trace(made_up(800)), 2000),
        (EVEN, 500),
        (from_trace(made_up(800), True), None),
    ],
)
def test_requests_come_once_a_second(load: Load, count: int | None) -> None:
    sent = load.sent(count).requests
    assert len(sent) == count or (count is None and len(sent) == 800)
    assert list(sent) == sorted(sent)
    assert sent[-1][0] == pytest.approx(len(sent) - 1)


def test_recorded_requests_keep_their_order_and_times() -> None:
    own = from_trace(TRACE, True).sent()
    assert list(own.requests) == [(0.0, 5, 50), (0.5, 7, 10), (2.0, 9, 30)]


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


def test_every_seed_sends_the_same_lengths_in_another_order() -> None:
    one, other, again = (EVEN.sent(8192, seed).requests for seed in (0, 1, 0))
    assert one == again != other
    assert sorted(each[1:] for each in one) == sorted(each[1:] for each in other)


def test_lengths_of_a_range_are_half_even_and_half_logarithmic() -> None:
    load = from_ranges((1, 1000), (20, 20))
    assert load.output_range == (20, 20)
    assert load.input_range == (1, 1000)
    below = sum(tokens <= 100 for _, tokens, _ in load.requests) / len(load.requests)
    # a tenth of the even half and two thirds of the logarithmic one
    assert below == pytest.approx((0.1 + 2 / 3) / 2, abs=0.01)
    # what is drawn for inputs says nothing of outputs
    wide = from_ranges((1, 1000), (1, 1000)).requests
    high = [output for _, tokens, output in wide if tokens > 500]
    low = [output for _, tokens, output in wide if tokens <= 500]
    assert sum(high) / len(high) == pytest.approx(sum(low) / len(low), rel=0.05)


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
