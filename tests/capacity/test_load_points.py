"""Loads of one replica whose prompts take 100 ms and whose decode steps take 10 ms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.capacity import search
from gaudi_launch.capacity.search import (
    Curve,
    Fleet,
    LoadCurve,
    LoadPoint,
    ReplicaLoad,
    Targets,
    fleet_for,
    latencies_at,
    load_at,
    load_curve,
    load_of_clients,
    most_requests,
    rate_within,
    replicas_on,
    settled_clients,
    simulate_clients,
    simulate_curve,
)
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.performance.step_time import StepTime
from tests.support.records import near
from tests.support.traces import limits

COST = StepTime(100.0, 0.0, 0.0, 10.0, 0.0, 0.0, "round")
TRAFFIC = Traffic(tuple((float(second), 100, 11) for second in range(200)))
LIMITS = limits(max_num_seqs=4)
REPLICA = ReplicaLoad(TRAFFIC, LIMITS, COST, 50.0)


def near_point(*numbers: float) -> LoadPoint:
    return LoadPoint(*(near(number) for number in numbers))


# a client: 100 ms of prefill and 10 steps; of two, each waits for the other's prefill
ONE = near_point(5.0, 0.25, 0.1, 0.01, 55.0, 1.0, 0.2)
TWO = near_point(1 / 0.15, 0.5, 0.2, 0.02, 11 / 0.15, 2.0, 0.3)
FOUR = near_point(8.0, 1.0, 0.3, 0.03, 88.0, 4.0, 0.5)


def test_clients_wait_for_their_answers() -> None:
    assert [load_of_clients(REPLICA, count) for count in (1, 2, 4)] == [ONE, TWO, FOUR]
    found = simulate_clients(TRAFFIC, LIMITS, COST, 50.0)
    assert found == Curve((ONE, TWO, FOUR), near(8.0), 0.0, clients=True)
    assert found.amounts == [1.0, 2.0, 4.0]


def test_settled_clients_are_without_the_filling_and_the_emptying() -> None:
    assert settled_clients(REPLICA, 1, 40) == replace(ONE, share=1.0)
    assert settled_clients(REPLICA, 2, 40) == replace(TWO, share=1.0)
    # fewer than four requests for each client
    assert settled_clients(REPLICA, 51, 40) is None
    assert settled_clients(REPLICA, 50, 40) is not None
    # one of four requests is taken: it takes 0.2 s
    long = Traffic(
        tuple((float(n), tokens, 11) for n, tokens in enumerate((100, 9000, 9000, 9000)))
    )
    alone = settled_clients(replace(REPLICA, traffic=long), 1, 4)
    assert alone is not None and alone.rate == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("count", "requests", "simulated"),
    [
        # 100 steps of each client, in complete waves
        (1, 1000, 100),
        (2, 1000, 200),
        (2, 150, 150),
        (4, 122, 124),
        # four waves at least
        (2, 1, 8),
        # without many steps 20 requests
        (1, 90, 20),
    ],
)
def test_more_clients_need_more_requests_to_settle(
    count: int, requests: int, simulated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_SETTLED_STEPS", 110 if simulated == 20 else 1100)
    monkeypatch.setattr(search, "_FEWEST_SETTLED", 20)
    sizes: list[int] = []

    class Watched(Traffic):
        def first(self, count: int) -> Traffic:
            sizes.append(count)
            return super().first(count)

    settled_clients(replace(REPLICA, traffic=Watched(TRAFFIC.requests)), count, requests)
    assert sizes == [simulated]


def test_a_rate_below_the_most_waits_for_no_other() -> None:
    assert load_at(REPLICA, 0.5, 2.0) == near_point(1.0, 0.5, 0.1, 0.01, 11.0, 0.2, 0.2)
    delayed = load_at(replace(REPLICA, delay=0.5), 0.5, 2.0)
    assert delayed == near_point(1.0, 0.5, 0.6, 0.01, 11.0, 0.7, 0.7)


def test_requests_come_at_the_rate_of_the_load() -> None:
    # pairs, whose second request comes a fifth of a second after the first at one per second
    pairs = Traffic(tuple((float(n // 2 * 2) + 0.2 * (n % 2), 100, 1) for n in range(200)))
    replica = ReplicaLoad(pairs, LIMITS, COST, 95.0)
    assert load_at(replica, 0.5, 2.0).ttft == pytest.approx(0.1)
    # 50 ms after it, so that it waits for 50 ms
    assert load_at(replica, 0.5, 8.0).ttft == pytest.approx(0.15)


def test_a_load_needs_requests_for_what_is_inside() -> None:
    asked: list[tuple[float, float]] = []

    class Watched(Traffic):
        def part(self, share: float, inside: float) -> Traffic:
            asked.append((share, inside))
            return super().part(share, inside)

    cost = replace(COST, prefill_fixed=40.0, prefill_token=0.6)
    load_at(replace(REPLICA, traffic=Watched(TRAFFIC.requests), cost=cost), 0.25, 40.0)
    # ten per second, each 100 ms of prefill and eleven steps of 10 ms
    assert asked == [(0.25, near(2.1))]


def test_the_most_is_counted_while_the_engine_is_full() -> None:
    # the middle three fifths of 200 requests: 119 of them in 14.5 s
    assert most_requests(TRAFFIC, LIMITS, COST) == pytest.approx(119 / 14.5)
    # a prompt of 256 tokens of which a prefix cache has half
    by_token = StepTime(0.0, 1.0, 0.0, 10.0, 0.0, 0.0, "by token")
    long = Traffic(tuple((float(second), 256, 1) for second in range(50)))
    cached = replace(long, cached=(128,) * 50)
    single = limits(max_num_seqs=1, mixed_steps=True, ahead=False)
    found = [most_requests(each, single, by_token) for each in (long, cached)]
    assert found == [near(1 / 0.256), near(1 / 0.128)]
    few = Traffic(TRAFFIC.requests[:1])
    assert most_requests(few, LIMITS, COST) == pytest.approx(1 / 0.2)
    assert most_requests(TRAFFIC, limits(max_model_len=100), COST) is None


def test_a_quick_curve_has_four_loads() -> None:
    found = simulate_curve(TRAFFIC, LIMITS, COST, 50.0, delay=0.25, quick=True)
    assert found is not None
    most = 119 / 14.5
    assert [(load.share, load.rate) for load in found.loads] == [
        (share, near(share * most)) for share in (0.3, 0.55, 0.75, 0.9)
    ]
    assert found.loads[0] == near_point(
        0.3 * most, 0.3, 0.35, 0.01, 3.3 * most, 0.3 * most * 0.45, 0.45
    )
    assert (found.most, found.refused, found.clients) == (near(most), 0.0, False)
    complete = simulate_curve(TRAFFIC, LIMITS, COST, 50.0)
    assert complete is not None
    assert [load.share for load in complete.loads] == [0.02, *(n / 20 for n in range(1, 19))]
    assert (complete.loads[0].ttft, complete.loads[0].e2e) == pytest.approx((0.1, 0.2))
    assert simulate_curve(TRAFFIC, limits(max_model_len=100), COST, 50.0) is None
    assert simulate_clients(TRAFFIC, limits(max_model_len=100), COST, 50.0) is None


def test_prompts_that_are_too_long_are_refused() -> None:
    requests = tuple((float(n), tokens, 2) for n, tokens in enumerate((100, 256, 300, 500)))

    def refused(**changes: object) -> float | None:
        found = simulate_curve(Traffic(requests), limits(**changes), COST, 50.0, quick=True)
        return None if found is None else found.refused

    assert refused() == 0.0
    assert refused(max_model_len=301) == 0.25
    assert refused(max_model_len=300) == 0.5
    assert refused(num_blocks=2) == 0.75
    # a prompt in one step, without chunked prefill
    assert refused(max_num_batched_tokens=256) == 0.5
    assert refused(max_num_batched_tokens=256, mixed_steps=True) == 0.0


@pytest.mark.parametrize(
    ("seqs", "counts"), [(1, [1]), (2, [1, 2]), (4, [1, 2, 4]), (6, [1, 2, 3, 4, 6])]
)
def test_the_numbers_of_clients_grow_to_what_runs_at_once(seqs: int, counts: list[int]) -> None:
    found = load_curve(replace(REPLICA, limits=limits(max_num_seqs=seqs)), clients=True)
    assert found is not None
    assert (found.size, list(found.counts)) == (len(counts), counts)
    assert [found.amount(at) for at in range(found.size)] == [float(each) for each in counts]
    assert found.load(0) == replace(ONE, share=near(1 / seqs))


def test_the_loads_of_a_curve_are_simulated_once_and_when_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[float, float]] = []

    def simulated(replica: ReplicaLoad, share: float, most: float) -> LoadPoint:
        asked.append((share, most))
        return point(share * most, ttft=share)

    monkeypatch.setattr(search, "load_at", simulated)
    curve = LoadCurve(REPLICA, 10.0, (0.1, 0.2, 0.4, 0.8, 0.9))
    assert (curve.size, curve.amount(2), curve.load(2), curve.load(2)) == (
        5,
        4.0,
        point(4.0, ttft=0.4),
        point(4.0, ttft=0.4),
    )
    assert curve.within(Targets(0.5, None)) == pytest.approx(4.0 + 4.0 * 0.09 / 0.4)
    assert asked == [(0.4, 10.0), (0.8, 10.0)]
    assert curve.within(Targets(2.0, None)) == 9.0
    # not within the reserve, but within the target itself
    assert curve.within(Targets(0.1, None)) == pytest.approx(1.0)
    assert curve.within(Targets(0.09, None)) is None
    assert curve.at(1.5) == near_point(1.5, 0.0, 0.15, 0.0, 0.0, 0.0, 0.0)
    assert curve.at(3.0) == near_point(3.0, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0)
    assert (curve.at(0.5), curve.at(99.0)) == (point(1.0, ttft=0.1), point(9.0, ttft=0.9))
    other = curve.of(replace(REPLICA, delay=1.0))
    assert (other.replica.delay, other.most, other.shares, other.counts) == (
        1.0,
        10.0,
        curve.shares,
        (),
    )


def point(rate: float, *, ttft: float = 0.0, tpot: float = 0.0, e2e: float = 0.0) -> LoadPoint:
    return LoadPoint(rate, 0.0, ttft, tpot, 0.0, 0.0, e2e)


CURVE = Curve(
    (
        point(1.0, ttft=0.1, tpot=0.01, e2e=1.0),
        point(2.0, ttft=0.3, tpot=0.01, e2e=1.0),
        # a latency that falls again counts as the one before
        point(4.0, ttft=0.2, tpot=0.05, e2e=2.0),
        point(5.0, ttft=0.5, tpot=0.06, e2e=4.0),
    ),
    6.0,
    0.0,
)


@pytest.mark.parametrize(
    ("targets", "rate"),
    [
        (Targets(None, None), 5.0),
        (Targets(0.2 / 0.98, None), 1.5),
        (Targets(0.3 / 0.98, None), 4.0),
        (Targets(None, 0.03 / 0.98), 3.0),
        (Targets(None, None, e2e=3.0 / 0.98), 4.5),
        (Targets(0.2 / 0.98, 0.03 / 0.98), 1.5),
        (Targets(0.1, None), 1.0),
        (Targets(0.09, None), None),
        (Targets(1.0, 0.009), None),
    ],
)
def test_the_rate_within_targets(targets: Targets, rate: float | None) -> None:
    found = rate_within(CURVE, targets)
    assert found == (None if rate is None else pytest.approx(rate))


def test_latencies_between_loads_and_beyond_them() -> None:
    assert latencies_at(CURVE, 0.5) == pytest.approx((0.1, 0.01, 1.0))
    assert latencies_at(CURVE, 3.0) == pytest.approx((0.3, 0.03, 1.5))
    assert latencies_at(CURVE, 9.0) == pytest.approx((0.5, 0.06, 4.0))


def test_a_faster_replica_has_shorter_latencies_at_higher_rates() -> None:
    load = LoadPoint(2.0, 0.5, 0.2, 0.02, 100.0, 3.0, 1.0)
    assert Curve((load,), 4.0, 0.25, clients=True).faster(2.0) == Curve(
        (LoadPoint(4.0, 0.5, 0.1, 0.01, 200.0, 3.0, 0.5),), 8.0, 0.25, clients=True
    )


def test_the_smallest_fleet_for_a_rate() -> None:
    targets = Targets(0.3 / 0.98, None)
    assert fleet_for(CURVE, targets, 12.0, 2, 8) == Fleet(
        3, 6, 1, near(4.0), near(0.3), near(0.05), near(2.0)
    )
    more = fleet_for(CURVE, targets, 12.1, 4, 8)
    assert more is not None and (more.replicas, more.cards, more.nodes) == (4, 16, 2)
    none = fleet_for(CURVE, targets, 0.0, 16, 8)
    assert none is not None and (none.replicas, none.nodes, none.ttft) == (1, 2, 0.1)
    assert fleet_for(CURVE, Targets(0.01, None), 1.0, 1, 8) is None
    clients = Curve(
        tuple(replace(each, inside=each.rate + 0.7) for each in CURVE.loads), 6.0, 0.0, True
    )
    found = fleet_for(clients, targets, 9.0, 1, 8)
    # 4.7 clients are four
    assert found is not None and (found.rate, found.replicas) == (4.0, 3)


def test_the_replicas_of_some_nodes() -> None:
    found = [replicas_on(nodes, cards, 8) for nodes, cards in ((3, 2), (3, 3), (3, 16), (4, 12))]
    assert found == [12, 6, 1, 2]
