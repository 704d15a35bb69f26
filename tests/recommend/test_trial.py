"""Trials of replicas under a load: from tables, and by short simulations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.capacity.planned_replica import ReplicaSetup
from gaudi_launch.capacity.replica import Replica, Unfit
from gaudi_launch.capacity.search import (
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
from gaudi_launch.recommend.analytic import Fitting, fitting
from gaudi_launch.recommend.goal import Goal, GoalName
from gaudi_launch.recommend.space import Candidate
from gaudi_launch.recommend.trial import Simulation, Trial
from tests.support.recommend import (
    goal,
    search_case,
    table_case,
)
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


def quick(rate: float) -> Trial:
    simulation, candidate, able = large_replica()
    simulation = Simulation(simulation.case, loaded(rate))
    return simulation.quick(candidate, able.group(candidate))


ONE = Candidate("toy", "bf16", 1, 8, 1, 2048, 4096, False)
COST = StepTime(100.0, 0.0, 0.0, 10.0, 0.0, 0.0, "round")
SPEED = Speed(COST, Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v0"), Shape(1, 1, 1, 1, 1, 1, 1, 1, 1))
REPLICA = Replica(1, limits(max_num_seqs=8), COST, 0.0, SPEED, ())
DELAY = 0.5


def given_group(made: Replica | None = REPLICA) -> Any:
    return SimpleNamespace(replica=lambda candidate: made)


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


def test_what_takes_no_request_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "settled_clients", lambda *asked: None)
    monkeypatch.setattr(module, "load_curve", lambda *asked, **more: None)
    why = message("capacity.takes_none", length=8192)
    for wanted in (goal("cost"), goal("latency"), goal("cost", rate=1.0)):
        found = Simulation(table_case(), wanted).quick(ONE, given_group())
        assert found == Trial(ONE, replica=REPLICA, why_not=why)
    found = Simulation(table_case(), goal("cost")).quick(ONE, given_group(None))
    assert found == Trial(ONE, why_not=message("recommend.no_memory"))


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
