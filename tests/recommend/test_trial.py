"""Trials of replicas under a load: from tables, and by short simulations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.buckets.shared_prefixes import SharedPrefix
from gaudi_launch.buckets.warmup_time import Measured, Span
from gaudi_launch.capacity.planned_replica import ReplicaSetup
from gaudi_launch.capacity.replica import Replica, Unfit
from gaudi_launch.capacity.search import (
    QUICK_SHARES,
    SHARES,
    LoadCurve,
    LoadPoint,
    ReplicaLoad,
    Targets,
)
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message
from gaudi_launch.performance.evidence import Evidence
from gaudi_launch.performance.published import Kind
from gaudi_launch.performance.scaling import Speed
from gaudi_launch.performance.shape import Shape
from gaudi_launch.performance.step_model import Setup
from gaudi_launch.performance.step_time import StepTime
from gaudi_launch.recommend import trial as module
from gaudi_launch.recommend.analytic import Fitting, Group, fitting
from gaudi_launch.recommend.finder import find
from gaudi_launch.recommend.goal import Goal, GoalName, Served
from gaudi_launch.recommend.space import Candidate, request_of
from gaudi_launch.recommend.trial import Simulation, Trial, place, scaled
from tests.support.recommend import (
    NO_TARGETS,
    TWO_REQUESTS,
    goal,
    search_case,
    table_case,
)
from tests.support.records import near
from tests.support.traces import limits

TARGETS = Targets(1.0, 0.04)


def loaded(rate: float) -> Goal:
    return goal("cost", targets=TARGETS, rate=rate)


def large_replica() -> tuple[Simulation, Candidate, Fitting]:
    case = replace(
        search_case(nodes=None, dtype="bfloat16", max_prefill_seqs=4, max_num_batched_tokens=4096),
        cards=(8,),
    )
    able = fitting(case)
    candidate = next(each for each in able.candidates if each.batch == 256)
    return Simulation(case, loaded(1.0)), candidate, able


def carried_by_one(simulation: Simulation, candidate: Candidate, group: Group) -> float:
    """Return the rate that one replica carries within the targets by a short simulation."""
    trial = simulation.quick(candidate, group)
    assert trial.curve is not None
    found = trial.curve.within(TARGETS)
    assert found is not None
    # a target limits it, not the most that the simulation loads a replica with
    assert found < trial.curve.amount(trial.curve.size - 1)
    return found


def quick(rate: float) -> Trial:
    simulation, candidate, able = large_replica()
    simulation = Simulation(simulation.case, loaded(rate))
    return simulation.quick(candidate, able.group(candidate))


@pytest.mark.parametrize(("share", "replicas"), [(0.9, 1), (1.08, 1), (1.2, 2)])
def test_a_replica_less_that_may_be_enough_misses_nothing(share: float, replicas: int) -> None:
    simulation, candidate, able = large_replica()
    each = carried_by_one(simulation, candidate, able.group(candidate))
    trial = quick(share * each)
    assert trial.served is not None
    assert (trial.served.replicas, trial.missed, trial.miss) == (replicas, (), 1.0)


def test_the_nearest_of_all_layouts_is_shown_where_none_meets_the_targets() -> None:
    case = search_case(dtype="bfloat16", max_prefill_seqs=1, max_num_batched_tokens=2048)
    impossible = goal("cost", targets=Targets(None, 0.001), rate=1.0)
    found = find(case, impossible)
    assert found.winner is None
    # one request at a time on all cards has the shortest steps
    assert (found.trials[0].candidate.cards, found.trials[0].candidate.batch) == (8, 1)


ONE = Candidate("toy", "bf16", 1, 8, 1, 2048, 4096, False)
# two stages of two cards: as many virtual engines
STAGED = replace(ONE, cards=2, pipeline=2)
COST = StepTime(100.0, 0.0, 0.0, 10.0, 0.0, 0.0, "round")
SPEED = Speed(COST, Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v0"), Shape(1, 1, 1, 1, 1, 1, 1, 1, 1))
REPLICA = Replica(1, limits(max_num_seqs=8), COST, 0.0, SPEED, ())
DELAY = 0.5


def given_group(made: Replica | None = REPLICA) -> Any:
    return SimpleNamespace(replica=lambda candidate: made)


def served(**changes: Any) -> Served:
    """Return what one replica of one card does; numbers may differ by rounding."""
    known: dict[str, Any] = {
        "replicas": 1,
        "cards": 1,
        "nodes": 1,
        "ttft": 0.1,
        "tpot": 0.01,
        "e2e": 1.0,
        "tokens": 10.0,
        "spare": 10.0,
        "length": 4096,
        "balance": 10.0,
    }
    known.update(changes)
    return Served(**{name: near(value) for name, value in known.items()})


FULL = LoadPoint(2.0, 1.0, 0.4, 0.02, 100.0, 8.0, 3.0)
ALONE = LoadPoint(1.0, 1.0, 0.1, 0.01, 10.0, 1.0, 1.0)


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ReplicaLoad, int, int]]:
    """Replace the simulation of clients by a table; return what is simulated."""
    asked: list[tuple[ReplicaLoad, int, int]] = []

    def settled_clients(load: ReplicaLoad, count: int, requests: int) -> LoadPoint:
        asked.append((load, count, requests))
        return ALONE if count == 1 else FULL

    monkeypatch.setattr(module, "settled_clients", settled_clients)
    monkeypatch.setattr(module, "request_delay", lambda: DELAY)
    return asked


def unloaded(
    name: GoalName, candidate: Candidate = STAGED, nodes: int | None = 1, **changes: Any
) -> Trial:
    case = table_case(nodes=nodes)
    return Simulation(case, goal(name, **changes)).quick(candidate, given_group())


def test_without_a_load_all_cards_have_as_many_clients_as_they_serve(
    clients: list[tuple[ReplicaLoad, int, int]],
) -> None:
    found = unloaded("throughput", nodes=2)
    # four replicas of four cards, with two virtual engines each
    expected = served(
        replicas=4,
        cards=16,
        nodes=2,
        ttft=0.4,
        tpot=0.02,
        e2e=3.0,
        tokens=800.0,
        spare=800.0,
        balance=50.0,
    )
    assert found == Trial(
        STAGED, expected, score=800.0, second=50.0, miss=1.0, missed=(), replica=REPLICA
    )
    assert clients == [(ReplicaLoad(TWO_REQUESTS, REPLICA.limits, COST, 95.0, DELAY), 8, 500)]


def test_the_lowest_latency_is_that_of_one_client(
    clients: list[tuple[ReplicaLoad, int, int]],
) -> None:
    found = unloaded("latency")
    expected = served(cards=4, tokens=20.0, spare=200.0, balance=50.0)
    assert (found.served, found.score, found.second) == (expected, 1.0, 50.0)
    assert [(count, requests) for _, count, requests in clients] == [(8, 500), (1, 500)]


@pytest.mark.usefixtures("clients")
@pytest.mark.parametrize(
    ("name", "nodes", "candidate", "replicas", "over", "miss"),
    [
        ("cost", 1, STAGED, 1, (), 1.0),
        ("balanced", 1, STAGED, 2, (), 1.0),
        ("context", 3, STAGED, 6, (), 1.0),
        # one server, where their number follows from a load
        ("balanced", None, STAGED, 2, (), 1.0),
        ("balanced", None, replace(STAGED, cards=8, hosts=2), 1, (), 1.0),
        ("balanced", 2, replace(STAGED, cards=8, hosts=2), 1, (), 1.0),
        ("balanced", 1, replace(STAGED, cards=8, hosts=2), 1, ("cards",), 2.0),
    ],
)
def test_the_replicas_without_a_load(
    name: GoalName,
    nodes: int | None,
    candidate: Candidate,
    replicas: int,
    over: tuple[str, ...],
    miss: float,
) -> None:
    found = unloaded(name, candidate, nodes)
    assert found.served is not None
    assert (found.served.replicas, found.missed, found.miss) == (replicas, over, miss)


@pytest.mark.usefixtures("clients")
def test_the_worst_of_the_missed_targets_counts() -> None:
    found = unloaded("cost", targets=Targets(0.1, 0.02, e2e=2.0))
    assert (found.missed, found.miss, found.meets) == (("ttft", "e2e"), near(4.0), False)
    assert not Trial(ONE).meets


def test_what_takes_no_request_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "settled_clients", lambda *asked: None)
    monkeypatch.setattr(module, "load_curve", lambda *asked, **more: None)
    why = message("capacity.takes_none", length=8192)
    for wanted in (goal("cost"), goal("latency"), goal("cost", rate=1.0)):
        found = Simulation(table_case(), wanted).quick(ONE, given_group())
        assert found == Trial(ONE, replica=REPLICA, why_not=why)
    found = Simulation(table_case(), goal("cost")).quick(ONE, given_group(None))
    assert found == Trial(ONE, why_not=message("recommend.no_memory"))


def test_a_prefix_cache_has_its_part_of_the_traffic(
    clients: list[tuple[ReplicaLoad, int, int]],
) -> None:
    traffic = replace(TWO_REQUESTS, shared=(SharedPrefix(0, 0), SharedPrefix(64, 2000 * 128)))
    case = replace(table_case(), traffic=traffic)
    simulation = Simulation(case, goal("cost"))
    simulation.quick(replace(ONE, prefix_caching=True), given_group())
    smaller = replace(REPLICA, limits=limits(num_blocks=1999))
    simulation.quick(replace(ONE, prefix_caching=True), given_group(smaller))
    simulation.quick(ONE, given_group())
    assert [load.traffic.cached for load, _, _ in clients] == [(0, 64), (0, 0), ()]


class TableCurve(LoadCurve):
    """Loads whose latencies and tokens follow the amount: no queue."""

    def _simulated(self, at: int) -> LoadPoint:
        amount = self.amount(at)
        return LoadPoint(
            amount, 0.5, amount / 10, amount / 100, 10 * amount, 2 * amount, 2 * amount
        )

    def of(self, replica: ReplicaLoad) -> LoadCurve:
        return TableCurve(replica, self.most, self.shares, self.counts)


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ReplicaLoad, bool, Sequence[float]]]:
    """Replace the curve of a replica by a table; return what is simulated."""
    asked: list[tuple[ReplicaLoad, bool, Sequence[float]]] = []

    def load_curve(load: ReplicaLoad, *, clients: bool, shares: Sequence[float]) -> LoadCurve:
        asked.append((load, clients, shares))
        return TableCurve(load, 10.0, shares, (1, 2, 4, 8) if clients else ())

    monkeypatch.setattr(module, "load_curve", load_curve)
    monkeypatch.setattr(module, "request_delay", lambda: DELAY)
    planned(monkeypatch, lambda asked: REPLICA)
    return asked


def planned(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[ReplicaSetup], Replica | Unfit]
) -> list[tuple[ReplicaSetup, Traffic]]:
    """Replace the plan of a replica; return what is planned."""
    asked: list[tuple[ReplicaSetup, Traffic]] = []

    def planned_replica(setup: ReplicaSetup, traffic: Traffic) -> Replica | Unfit:
        asked.append((setup, traffic))
        return made(setup)

    monkeypatch.setattr(module, "planned_replica", planned_replica)
    return asked


# five requests per second of one replica, with the reserve
WITHIN = Targets(0.5 / 0.98, None)


def simulation(
    name: GoalName, rate: float = 0.0, *, nodes: int | None = 1, **changes: Any
) -> Simulation:
    wanted = goal(name, rate=rate, **{"targets": WITHIN, **changes})
    return Simulation(table_case(nodes=nodes), wanted)


@pytest.mark.usefixtures("curves")
def test_the_fewest_replicas_for_a_rate() -> None:
    found = simulation("cost", 12.0).exact(ONE)
    # four requests per second of each
    expected = served(
        replicas=3, cards=3, ttft=0.4, tpot=0.04, e2e=8.0, tokens=120.0, spare=150.0, balance=50.0
    )
    assert found == Trial(
        ONE,
        expected,
        score=1 / 3,
        second=near(0.5 / 0.98 / 0.4),
        miss=1.0,
        replica=REPLICA,
    )
    staged = simulation("cost", 12.0).exact(replace(ONE, pipeline=2))
    assert staged.served == served(
        replicas=2, cards=4, ttft=0.3, tpot=0.03, e2e=6.0, tokens=120.0, spare=200.0, balance=50.0
    )


@pytest.mark.usefixtures("curves")
@pytest.mark.parametrize(
    ("name", "nodes", "rate", "replicas", "over", "miss"),
    [
        ("throughput", 1, 12.0, 8, (), 1.0),
        ("latency", 2, 12.0, 16, (), 1.0),
        ("throughput", None, 12.0, 3, (), 1.0),
        # fewer requests of each replica give fewer tokens of each card
        ("balanced", 1, 12.0, 3, (), 1.0),
        ("cost", 1, 0.001, 1, (), 1.0),
        ("cost", 1, 60.0, 12, ("cards",), 1.5),
        ("throughput", 1, 60.0, 12, ("cards",), 1.5),
    ],
)
def test_the_replicas_for_a_rate(
    name: GoalName,
    nodes: int | None,
    rate: float,
    replicas: int,
    over: tuple[str, ...],
    miss: float,
) -> None:
    found = simulation(name, rate, nodes=nodes).exact(ONE)
    assert found.served is not None
    assert (found.served.replicas, found.missed, found.miss) == (replicas, over, miss)


@pytest.mark.usefixtures("curves")
def test_a_rate_of_one_replica_is_no_whole_number() -> None:
    # 4.7 requests per second of each
    found = simulation("cost", 14.0, targets=Targets(0.47 / 0.98, None)).exact(ONE)
    assert found.served is not None
    assert found.served.replicas == 3


@pytest.mark.parametrize(
    ("name", "least", "most", "numbers"),
    [
        ("cost", 2, 4, [2]),
        ("balanced", 2, None, [2]),
        ("balanced", 4, 4, [4]),
        ("balanced", 2, 4, [2, 3, 4]),
        ("context", 2, 30, [*range(2, 11), 30]),
        ("latency", 2, 4, [4]),
        ("throughput", 2, 4, [4]),
    ],
)
def test_the_numbers_of_replicas_to_compare(
    name: GoalName, least: int, most: int | None, numbers: list[int]
) -> None:
    assert module._numbers(goal(name), least, most) == numbers


@pytest.mark.usefixtures("curves")
def test_targets_that_an_idle_replica_misses() -> None:
    found = simulation("cost", 12.0, targets=Targets(0.01, None)).exact(ONE)
    idle = served(ttft=0.02, tpot=0.002, e2e=0.4, tokens=2.0, spare=2.0, balance=2.0)
    assert (found.served, found.missed, found.miss) == (idle, ("ttft",), near(2.0))


def test_few_requests_rank_by_what_a_card_carries(
    curves: list[tuple[ReplicaLoad, bool, Sequence[float]]],
) -> None:
    case = replace(table_case(), traffic=Traffic(tuple((float(n), 100, 10) for n in range(600))))
    quick = Simulation(case, goal("cost", rate=5.4, targets=WITHIN))
    found = quick.quick(ONE, given_group())
    # a tenth more than it carries may be enough, and misses nothing
    expected = served(ttft=0.5, tpot=0.05, e2e=10.0, tokens=50.0, spare=50.0, balance=50.0)
    assert (found.served, found.missed, found.second) == (expected, (), near(50.0))
    more = Simulation(case, goal("cost", rate=6.0, targets=WITHIN)).quick(ONE, given_group())
    assert more.served == served(
        replicas=2, cards=2, ttft=0.3, tpot=0.03, e2e=6.0, tokens=60.0, spare=100.0, balance=50.0
    )
    again = quick.settled(quick.exact(ONE))
    assert again.served is not None and again.served.replicas == 2
    assert [
        (len(load.traffic.requests), load.delay, clients, shares)
        for load, clients, shares in curves
    ] == [
        (500, DELAY, False, QUICK_SHARES),
        (500, DELAY, False, QUICK_SHARES),
        (600, DELAY, False, SHARES),
        (600, DELAY, False, SHARES),
    ]
    assert curves[0][0].traffic == case.traffic.first(500)


def test_a_settled_trial_has_all_requests(
    curves: list[tuple[ReplicaLoad, bool, Sequence[float]]],
) -> None:
    traffic = Traffic(tuple((float(n), 100, 10) for n in range(4001)))
    loaded = Simulation(replace(table_case(), traffic=traffic), goal("cost", rate=12.0))
    first = replace(loaded.exact(ONE), missed=("ttft",), miss=9.0)
    settled = loaded.settled(first)
    assert (settled.missed, settled.miss) == ((), 1.0)
    assert [len(load.traffic.requests) for load, _, _ in curves] == [4000, 4001]
    # nothing to settle without a replica or a load
    none = Trial(ONE)
    assert loaded.settled(none) is none
    assert Simulation(table_case(), goal("cost")).settled(first) is first


def test_clients_are_complete_ones(
    curves: list[tuple[ReplicaLoad, bool, Sequence[float]]],
) -> None:
    # 4.7 clients of each replica within the target
    targets = Targets(0.47 / 0.98, None)
    found = simulation("cost", clients=12, targets=targets).exact(ONE)
    assert found.served == served(
        replicas=3, cards=3, ttft=0.4, tpot=0.04, e2e=8.0, tokens=120.0, spare=120.0, balance=40.0
    )
    assert [clients for _, clients, _ in curves] == [True]


def evidence(low: float, high: float) -> Evidence:
    return Evidence(Kind.DENSE, 9, 0.1, low, high, True, ())


@pytest.mark.usefixtures("curves")
@pytest.mark.parametrize(
    ("low", "high", "candidate", "cards"),
    [
        # 7.8 and 3.2 requests per second of each replica
        (0.8, 1.25, ONE, (2, 4)),
        (0.8, 1.25, replace(ONE, pipeline=2), (2, 4)),
        (0.8, 1.25, replace(ONE, cards=2), (4, 8)),
        # never without what the prediction itself needs
        (2.0, 0.5, ONE, (3, 3)),
        # at the lowest speed an idle replica misses the target
        (0.01, 1.25, ONE, None),
    ],
)
def test_the_cards_within_the_range_of_the_speed(
    low: float, high: float, candidate: Candidate, cards: tuple[int, int] | None
) -> None:
    made = simulation("cost", 12.0)
    trial = made.exact(candidate)
    assert made.cards_between(trial, evidence(low, high)) == cards
    assert made.cards_between(trial, None) is None
    assert made.cards_between(replace(trial, curve=None), evidence(low, high)) is None
    assert made.cards_between(replace(trial, missed=("ttft",)), evidence(low, high)) is None


@pytest.mark.usefixtures("curves")
def test_clients_wait_longer_instead_of_coming_less_often() -> None:
    made = simulation("cost", clients=12)
    # 6 and 4 clients of each replica
    assert made.cards_between(made.exact(ONE), evidence(0.8, 1.25)) == (2, 3)


def test_the_range_of_cards_needs_no_more_requests_than_a_comparison(
    curves: list[tuple[ReplicaLoad, bool, Sequence[float]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(tuple((float(n), 100, 10) for n in range(4001)))
    made = Simulation(
        replace(table_case(), traffic=traffic), goal("cost", rate=12.0, targets=WITHIN)
    )
    trial = made.settled(made.exact(ONE))
    counted: list[int] = []

    def of(self: LoadCurve, replica: ReplicaLoad) -> LoadCurve:
        counted.append(len(replica.traffic.requests))
        return self

    monkeypatch.setattr(TableCurve, "of", of)
    assert made.cards_between(trial, evidence(0.8, 1.25)) == (2, 4)
    assert counted == [4000]


@pytest.mark.usefixtures("clients")
def test_a_plan_makes_the_replica_and_its_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    buckets = Buckets([[1, 128, 0]], [[1, 1, 1], [2, 1, 2]])
    seen = planned(monkeypatch, lambda asked: replace(REPLICA, buckets=buckets))
    made = simulation("cost")
    found = made.exact(STAGED)
    case = made.case
    asked = ReplicaSetup(
        case.engines[0].engine,
        request_of(case, STAGED),
        case.pool.accelerator,
        case.model,
        2,
        "bf16",
        stages=2,
    )
    assert seen == [(asked, TWO_REQUESTS)]
    assert found.graphs == buckets.graphs == 3
    basis = message("warmup.basis_published")
    assert found.start == Span(near(0.7 * 3), near(2.2 * 3), basis)
    assert found.replica == replace(REPLICA, buckets=buckets)


@pytest.mark.usefixtures("clients")
def test_a_replica_without_buckets_starts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    planned(monkeypatch, lambda asked: REPLICA)
    found = simulation("cost", most_start=0.001).exact(ONE)
    assert (found.graphs, found.start, found.missed) == (0, None, ())


def test_what_cannot_be_planned_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(code: ExitCode) -> Callable[[ReplicaSetup], Replica | Unfit]:
        def raised(asked: ReplicaSetup) -> Replica | Unfit:
            raise LaunchError("placement.none_free", code, holders="-")

        return raised

    why = message("placement.none_free", holders="-")
    planned(monkeypatch, refused(ExitCode.MODEL))
    assert simulation("cost").exact(ONE) == Trial(ONE, why_not=why, code=ExitCode.MODEL)
    planned(monkeypatch, lambda asked: Unfit(1, why))
    assert simulation("cost").exact(ONE) == Trial(ONE, why_not=why)
    planned(monkeypatch, refused(ExitCode.FAILED))
    with pytest.raises(LaunchError):
        simulation("cost").exact(ONE)


# ten graphs in a second each, on one card
MEASURED = Measured("toy", "m", 1, "bf16", 10, 10.0)


@pytest.mark.parametrize(
    ("most", "graphs", "candidate", "given", "share"),
    [
        (100.0, 20, ONE, {}, 1.05 * 1.15 * 20 / 100),
        # other cards: less is known
        (100.0, 20, replace(ONE, cards=2), {}, 1.05 * 1.6 * 20 / 100),
        (100.0, 20, replace(ONE, dtype="fp8"), {}, 1.05 * 2.2 * 7.6 * 20 / 100),
        (100.0, 0, ONE, {}, 0.0),
        (None, 20, ONE, {}, 0.0),
        (100.0, 20, ONE, {"skip_warmup": True}, 0.0),
    ],
)
def test_the_warm_up_as_a_share_of_the_longest_allowed(
    most: float | None, graphs: int, candidate: Candidate, given: dict[str, Any], share: float
) -> None:
    made = Simulation(table_case(**given), goal("cost", most_start=most), [MEASURED])
    assert made.lateness(candidate, graphs) == near(share)


@pytest.mark.usefixtures("clients")
def test_a_warm_up_that_takes_too_long_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    buckets = Buckets([[1, 128, 0]], [[n, 1, n] for n in range(1, 20)])
    planned(monkeypatch, lambda asked: replace(REPLICA, buckets=buckets))
    # twenty graphs of at most 2.2 seconds, with the margin
    late = simulation("cost", most_start=40.0, targets=NO_TARGETS).exact(ONE)
    assert (late.graphs, late.missed, late.miss) == (20, ("start",), near(1.05 * 44 / 40))
    early = simulation("cost", most_start=46.3, targets=NO_TARGETS).exact(ONE)
    assert (early.missed, early.miss) == ((), 1.0)
    # a latency that is missed by more
    both = simulation("cost", most_start=40.0, targets=Targets(0.1, None)).exact(ONE)
    assert (both.missed, both.miss) == (("ttft", "start"), near(4.0))


def test_targets_for_slower_steps() -> None:
    assert scaled(Targets(1.0, None, 90.0, 4.0), 0.5) == Targets(0.5, None, 90.0, 2.0)
    assert scaled(Targets(None, 0.04, 99.0), 2.0) == Targets(None, 0.08, 99.0)


def test_the_place_of_a_trial() -> None:
    def made(miss: float, score: float, second: float, **changes: Any) -> Trial:
        return Trial(replace(ONE, **changes), score=score, second=second, miss=miss)

    ordered = [
        made(1.0, 3.0, 1.0),
        # alike but for digits that a simulation does not know
        made(1.0, 2.00001, 9.0),
        made(1.0, 2.0002, 8.0),
        made(1.0, 1.0, 99.0),
        made(1.0, 99.0, 99.0, pipeline=2),
        made(1.2, 99.0, 99.0),
        Trial(ONE),
    ]
    mixed = ordered[::-1]
    assert sorted(mixed, key=place) == ordered
