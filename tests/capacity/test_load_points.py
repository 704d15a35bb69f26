"""Loads of one replica whose prompts take 100 ms and whose decode steps take 10 ms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.capacity.search import (
    Curve,
    LoadPoint,
    ReplicaLoad,
    latencies_at,
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


def test_latencies_between_loads_and_beyond_them() -> None:
    assert latencies_at(CURVE, 0.5) == pytest.approx((0.1, 0.01, 1.0))
    assert latencies_at(CURVE, 3.0) == pytest.approx((0.3, 0.03, 1.5))
    assert latencies_at(CURVE, 9.0) == pytest.approx((0.5, 0.06, 4.0))
