"""Fleet arithmetic: against queueing theory where it has an answer, and the properties that must
always hold."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.capacity.search import (
    CEILING,
    RESERVE,
    SHARES,
    Curve,
    Fleet,
    LoadPoint,
    Targets,
    fleet_for,
    latencies_at,
    most_requests,
    nodes_for,
    rate_within,
    replicas_on,
    simulate_curve,
)
from gaudi_launch.capacity.traffic import Traffic, from_ranges
from gaudi_launch.performance.simulator import simulate_times
from gaudi_launch.performance.step_time import ONE_CARD_8B, StepTime
from tests.support.traces import limits, made_up

# a prefill takes 100 ms whatever its length, and nothing decodes: one server with a known service
# time
FIXED = StepTime(prefill_fixed=100.0, prefill_token=0.0, prefill_attention=0.0, basis="fixed")
BY_TOKEN = StepTime(prefill_fixed=0.0, prefill_token=0.1, prefill_attention=0.0, basis="by token")


def poisson(
    count: int, lengths: list[int], output: int, seed: int = 3
) -> list[tuple[float, int, int]]:
    chance = random.Random(seed)
    now, requests = 0.0, []
    for _ in range(count):
        now += chance.expovariate(1.0)
        requests.append((now, chance.choice(lengths), output))
    return requests


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waiting_is_that_of_a_queue_with_fixed_service(load: float) -> None:
    # M/D/1 (Pollaczek-Khinchine): mean wait = load * service / (2 (1 - load))
    times = simulate_times(poisson(60_000, [500], 1), limits(), FIXED, rate=10 * load)
    found = float((times.first - times.came).mean())
    assert found == pytest.approx(0.1 + load * 0.1 / (2 * (1 - load)), rel=0.05)


def test_waiting_is_that_of_a_queue_with_mixed_service() -> None:
    # M/G/1: mean wait = rate * E[S^2] / (2 (1 - load)); service 10 ms or 400 ms
    rate = 2.0
    times = simulate_times(poisson(60_000, [100, 4000], 1), limits(), BY_TOKEN, rate=rate)
    mean, square = (0.01 + 0.4) / 2, (0.01**2 + 0.4**2) / 2
    expected = mean + rate * square / (2 * (1 - rate * mean))
    assert float((times.first - times.came).mean()) == pytest.approx(expected, rel=0.05)


def test_the_most_it_can_do_is_one_over_the_service_time() -> None:
    traffic = Traffic(tuple(poisson(1000, [500], 1)))
    assert most_requests(traffic, limits(), FIXED) == pytest.approx(10.0, rel=1e-6)


def test_a_curve_waits_as_long_as_the_queue_it_is() -> None:
    """95 % of M/D/1's waits at three loads, from its distribution (Erlang): P(W <= t) =
    (1 - load) * sum over n <= t of exp(load (t - n)) (-load (t - n))^n / n!, in services."""
    traffic = from_ranges((500, 500), (1, 1))
    curve = simulate_curve(traffic, limits(), FIXED, 95)
    assert curve is not None and curve.most == pytest.approx(10.0, rel=1e-3)
    found = {round(load.share, 2): load for load in curve.loads}
    for share, ttft in ((0.5, 0.3051), (0.8, 0.7620), (0.9, 1.5129)):
        assert found[share].ttft == pytest.approx(ttft, rel=0.1)
        # mean number inside: load + load^2 / (2 (1 - load))
        assert found[share].inside == pytest.approx(share + share**2 / (2 * (1 - share)), rel=0.1)


def test_the_number_inside_is_rate_times_stay() -> None:
    requests = poisson(4000, [200], 50)
    times = simulate_times(requests, limits(), ONE_CARD_8B, rate=8.0)
    # counted at evenly spaced moments, without Little's law
    end = float(times.came[-1])
    moments = [end * (at + 0.5) / 500 for at in range(500)]
    counted = sum(int(((times.came <= now) & (times.done > now)).sum()) for now in moments) / len(
        moments
    )
    stay = float((times.done - times.came).mean())
    assert counted == pytest.approx(len(requests) / end * stay, rel=0.05)


def test_a_lone_request_decodes_at_the_step_time() -> None:
    times = simulate_times([(0.0, 100, 11)], limits(), ONE_CARD_8B)
    assert times.first[0] == pytest.approx(ONE_CARD_8B.prefill(1, 100) / 1000)
    # 101 to 110 tokens are one block
    assert times.done[0] - times.first[0] == pytest.approx(10 * ONE_CARD_8B.decode(1, 1) / 1000)
    assert times.output.tolist() == [11]


def test_refused_requests_have_no_times() -> None:
    times = simulate_times([(0.0, 9000, 5), (0.0, 100, 1)], limits(), ONE_CARD_8B)
    assert [bool(value == value) for value in times.first] == [False, True]
    assert times.done[1] == times.first[1]


def curve_of(ttft: list[float], tpot: list[float]) -> Curve:
    most = 20.0
    rows = zip(SHARES, ttft, tpot, strict=True)
    return Curve(
        tuple(LoadPoint(most * s, s, one, each, 100 * s, 1.0) for s, one, each in rows), most, 0.0
    )


LATENCIES = st.lists(st.floats(0.001, 100), min_size=len(SHARES), max_size=len(SHARES))
CURVES = st.builds(curve_of, LATENCIES, LATENCIES)
TARGET = st.none() | st.floats(0.0005, 200)


@given(
    CURVES,
    TARGET,
    TARGET,
    st.floats(0.01, 1e6),
    st.floats(0.01, 1e6),
    st.sampled_from([1, 2, 3, 8, 16]),
)
def test_more_rate_never_needs_fewer(
    curve: Curve, ttft: float | None, tpot: float | None, one: float, other: float, cards: int
) -> None:
    targets = Targets(ttft, tpot)
    small, large = (fleet_for(curve, targets, rate, cards, 8) for rate in sorted((one, other)))
    if small is None or large is None:
        assert small is large
        return
    assert (
        small.replicas <= large.replicas
        and small.nodes <= large.nodes
        and small.cards <= large.cards
    )


@given(CURVES, st.floats(0.0005, 200), st.floats(0.0005, 200), TARGET, st.floats(0.01, 1e6))
def test_a_tighter_target_never_needs_fewer(
    curve: Curve, one: float, other: float, second: float | None, rate: float
) -> None:
    tight, loose = sorted((one, other))
    pairs = (
        (Targets(loose, second), Targets(tight, second)),
        (Targets(second, loose), Targets(second, tight)),
    )
    for easy, hard in pairs:
        few, many = fleet_for(curve, easy, rate, 1, 8), fleet_for(curve, hard, rate, 1, 8)
        if few is None:
            assert many is None
        elif many is not None:
            assert many.replicas >= few.replicas


@given(CURVES, TARGET, TARGET, st.floats(0.01, 1e6))
def test_a_fleet_meets_its_targets_and_carries_its_rate(
    curve: Curve, ttft: float | None, tpot: float | None, rate: float
) -> None:
    fleet = fleet_for(curve, Targets(ttft, tpot), rate, 2, 8)
    if fleet is None:
        assert (ttft is not None and curve.loads[0].ttft > ttft) or (
            tpot is not None and curve.loads[0].tpot > tpot
        )
        return
    assert fleet.replicas * fleet.rate >= rate * (1 - 1e-6)
    assert fleet.replicas == 1 or (fleet.replicas - 1) * fleet.rate < rate
    assert fleet.rate <= CEILING * curve.most * (1 + 1e-9)
    assert ttft is None or fleet.ttft <= ttft * (1 + 1e-6)
    assert tpot is None or fleet.tpot <= tpot * (1 + 1e-6)


@given(st.integers(1, 10_000), st.integers(1, 64), st.sampled_from([1, 4, 8]))
def test_nodes_hold_what_they_were_counted_for(replicas: int, cards: int, per_node: int) -> None:
    nodes = nodes_for(replicas, cards, per_node)
    assert replicas_on(nodes, cards, per_node) >= replicas
    assert nodes == 1 or replicas_on(nodes - 1, cards, per_node) < replicas


def test_between_two_loads_latency_is_read_from_a_line() -> None:
    ttft = [float(number) for number in range(1, len(SHARES) + 1)]
    curve = curve_of(ttft, [0.01] * len(SHARES))
    middle = (curve.loads[3].rate + curve.loads[4].rate) / 2
    assert latencies_at(curve, middle)[:2] == pytest.approx((4.5, 0.01))
    target = 4.5 / (1 - RESERVE)
    assert rate_within(curve, Targets(target, None)) == pytest.approx(middle)
    assert rate_within(curve, Targets(0.5, None)) is None
    assert rate_within(curve, Targets(None, 0.02)) == curve.loads[-1].rate
    # without room for the reserve the target itself counts
    assert rate_within(curve, Targets(1.0, None)) == curve.loads[0].rate
    found = fleet_for(curve, Targets(target, 0.02), 10 * middle, 4, 8)
    assert found == Fleet(10, 40, 5, middle, *latencies_at(curve, middle)[:2])


@settings(max_examples=2, deadline=None)
@given(st.integers(0, 1000))
def test_a_simulated_curve_rises_and_is_whole(seed: int) -> None:
    curve = simulate_curve(from_ranges((50, 2000), (20, 200), seed), limits(), ONE_CARD_8B, 95)
    assert curve is not None and curve.refused == 0
    assert [load.share for load in curve.loads] == list(SHARES)
    # per token a fuller batch is slower; up to noise, and far more at the end than at the start
    assert curve.loads[-1].tpot > 2 * curve.loads[0].tpot
    assert curve.loads[-1].ttft > 2 * curve.loads[0].ttft
    assert all(one.rate < other.rate for one, other in pairwise(curve.loads))


def test_twice_the_speed_carries_twice_the_rate() -> None:
    traffic = from_ranges((50, 2000), (20, 200))
    half = ONE_CARD_8B.with_constants(
        {name: value / 2 for name, value in ONE_CARD_8B.constants().items()}
    )
    slow = simulate_curve(traffic, limits(), ONE_CARD_8B, 95)
    quick = simulate_curve(traffic, limits(), half, 95)
    assert slow is not None and quick is not None
    assert quick.most == pytest.approx(2 * slow.most, rel=1e-6)
    assert quick.loads[9].ttft == pytest.approx(slow.loads[9].ttft / 2, rel=1e-6)


def test_no_request_fits() -> None:
    assert simulate_curve(Traffic(((0.0, 9000, 5),)), limits(), ONE_CARD_8B, 95) is None
    part = simulate_curve(
        Traffic(tuple(made_up(60)) + ((99.0, 9000, 5),) * 20), limits(), ONE_CARD_8B, 95
    )
    assert part is not None and part.refused == 0.25
