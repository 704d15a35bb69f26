"""The outcome of a load: against queueing theory where it has an answer, and round numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.load import Load, from_ranges, from_trace
from gaudi_launch.core.predict.scaling import Speed
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.simulate import (
    Outcome,
    ServedSetup,
    most_rate,
    request_delay,
    simulate,
)
from gaudi_launch.core.predict.step_model import Setup as Division
from gaudi_launch.core.predict.step_time import ONE_CARD_8B, StepTime
from tests.support.traces import limits, made_up

SETUP = Division("gaudi2", 1, "bf16", 2.0, 2.0, "v0")
SHAPE = Shape(32, 32, 4096, 14336, 7e9, 5e8, 4096, 8, 128)
# a prefill takes 100 ms whatever its length, and nothing decodes: one server with a known service
# time
FIXED = StepTime(prefill_fixed=100.0, prefill_token=0.0, prefill_attention=0.0, basis="fixed")
# a prompt takes 100 ms and a decode step 10 ms
ROUND = StepTime(100.0, 0.0, 0.0, 10.0, 0.0, 0.0, "round")


def setup(cost: StepTime, **changes: Any) -> ServedSetup:
    return ServedSetup(limits(**changes), Speed(cost, SETUP, SHAPE))


def found(made: ServedSetup, load: Load, most: int | None = None) -> Outcome:
    outcome = simulate(made, load, most=most)
    assert outcome is not None
    return outcome


@pytest.mark.parametrize("share", [0.3, 0.6, 0.79])
def test_waiting_is_that_of_a_queue_with_fixed_service(share: float) -> None:
    """M/D/1: Pollaczek-Khinchine's mean wait, and its distribution (Erlang).

    P(W <= t) = (1 - load) * sum over n <= t of exp(load (t - n)) (-load (t - n))^n / n!, in
    services.
    """
    outcome = found(setup(FIXED), from_ranges((500, 500), (1, 1)).at_rate(10 * share))
    wait = outcome.ttft.mean - request_delay() - 0.1
    assert wait == pytest.approx(share * 0.1 / (2 * (1 - share)), rel=0.05)
    assert outcome.full == pytest.approx(10.0, rel=1e-3)
    assert outcome.inside == pytest.approx(
        share + share**2 / (2 * (1 - share)) + 10 * share * request_delay(), rel=0.05
    )
    services = (outcome.ttft.at(95) - request_delay() - 0.1) / 0.1
    below = (1 - share) * sum(
        math.exp(share * (services - n)) * (-share * (services - n)) ** n / math.factorial(n)
        for n in range(int(services) + 1)
    )
    assert below == pytest.approx(0.95, abs=0.01)


@settings(max_examples=4, deadline=None)
@given(
    st.sampled_from([(10, 1000), (1, 4000), (100, 1000)]),
    st.sampled_from([(50, 300), (1, 500)]),
    st.sampled_from([32, 128]),
    st.sampled_from([0.3, 0.5, 0.65]),
)
def test_two_seeds_agree_on_the_percentile(
    inputs: tuple[int, int], outputs: tuple[int, int], seqs: int, share: float
) -> None:
    bounds = EngineLimits(seqs, 1, 2048, 8192, 3600, 1, 8191, 1, 8192, mixed_steps=True)
    made, load = ServedSetup(bounds, Speed(ONE_CARD_8B, SETUP, SHAPE)), from_ranges(inputs, outputs)
    full = most_rate(made, load)
    assert full is not None
    one = found(made, load.at_rate(share * full))
    shuffled = replace(load, requests=tuple(load.sent(8192, 7).requests))
    other = found(made, shuffled.at_rate(share * full))
    for name in ("ttft", "tpot", "e2e"):
        ours, theirs = (getattr(each, name).at(95) for each in (one, other))
        assert ours == pytest.approx(theirs, rel=0.03)
        low, high = getattr(one, name).between(95)
        # one of twenty may be outside the range, but not by far
        assert 2 * low - high <= theirs <= 2 * high - low


def test_the_range_shows_where_seeds_differ() -> None:
    # few requests wait for one of 16 places, and the 95th percentile is where the waiting begins
    bounds = EngineLimits(16, 1, 2048, 8192, 1200, 1, 8191, 1, 8192, mixed_steps=True)
    made, load = (
        ServedSetup(bounds, Speed(ONE_CARD_8B, SETUP, SHAPE)),
        from_ranges((10, 1000), (1, 500)),
    )
    full = most_rate(made, load)
    assert full is not None
    asked = load.at_rate(0.7 * full)
    shown = found(made, asked)
    low, high = shown.ttft.between(95)
    assert high > 1.1 * low and shown.seeds == 3
    for seed in (7, 8):
        shuffled = replace(asked, requests=tuple(load.sent(8192, seed).requests))
        assert low <= found(made, shuffled).ttft.at(95) <= high
    # few requests that rank setups have no range of their own
    quick = found(made, asked, 4000).ttft
    assert quick.between(95) == (quick.at(95), quick.at(95))


def test_close_to_the_most_three_seeds_show_the_spread() -> None:
    load = from_ranges((500, 500), (1, 1))
    safe, close, over = (found(setup(FIXED), load.at_rate(rate)) for rate in (3.0, 9.5, 12.0))
    assert (safe.seeds, close.seeds, over.seeds) == (1, 3, 3)
    low, high = close.ttft.between(95)
    assert low < close.ttft.at(95) < high
    assert (safe.saturated, close.saturated, over.saturated) == (False, False, True)
    assert (safe.tokens, over.tokens) == pytest.approx((3.0, over.full))
    assert over.inside == over.setup.limits.max_num_seqs
    assert close.time(close.ttft, 95).low < low and close.time(close.ttft, 95).high > high


def test_every_request_of_a_trace_counts() -> None:
    trace = [(float(second), 100, 11) for second in range(50)]
    calm = found(setup(ROUND), from_trace(trace, True).at_rate(1.0))
    burst = found(setup(ROUND), from_trace([*trace, *[(50.0, 100, 11)] * 10], True).at_rate(1.0))
    assert (calm.requests, burst.requests) == (50, 60)
    # the last 10 come at once: the last one waits for nine others
    assert calm.ttft.at(99) == pytest.approx(0.1 + request_delay())
    assert burst.ttft.at(99) == pytest.approx(1.0 + request_delay())
    assert found(setup(ROUND), from_trace(trace, True).of_clients(2)).requests == 50


def test_what_is_too_long_is_refused() -> None:
    none = from_trace([(0.0, 9000, 5)])
    for load in (none.at_rate(1.0), none.of_clients(2)):
        assert simulate(setup(ONE_CARD_8B), load) is None
    part = from_trace([*made_up(60), *[(99.0, 9000, 5)] * 20], True)
    assert found(setup(ONE_CARD_8B), part.at_rate(1.0)).refused == 0.25


def test_a_range_is_around_what_is_expected() -> None:
    outcome = found(setup(ONE_CARD_8B), from_ranges((50, 2000), (20, 200)).of_clients(8))
    for band in (outcome.throughput, outcome.time(outcome.ttft), outcome.time(outcome.e2e, 95)):
        assert band.low < band.expected < band.high
    slow = found(setup(ONE_CARD_8B), from_ranges((50, 2000), (20, 200)).at_rate(0.5))
    # a rate that can be served is kept
    assert slow.throughput.high == slow.throughput.expected == slow.tokens
