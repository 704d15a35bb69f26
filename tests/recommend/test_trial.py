"""Trials of replicas under a load: from tables, and by short simulations."""

from __future__ import annotations

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
from gaudi_launch.recommend.goal import GoalName, Served
from gaudi_launch.recommend.space import Candidate
from gaudi_launch.recommend.trial import Simulation, Trial
from tests.support.recommend import TWO_REQUESTS, goal, table_case
from tests.support.traces import limits

ONE = Candidate("toy", "bf16", 1, 8, 1, 2048, 4096, False)
COST = StepTime(100.0, 0.0, 0.0, 10.0, 0.0, 0.0, "round")
SPEED = Speed(COST, Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v0"), Shape(1, 1, 1, 1, 1, 1, 1, 1, 1))
REPLICA = Replica(1, limits(max_num_seqs=8), COST, 0.0, SPEED, ())


def test_what_takes_no_request_has_a_reason() -> None:
    short = replace(REPLICA, limits=limits(max_num_seqs=8, max_model_len=50))
    why = message("capacity.takes_none", length=50)
    for wanted in (goal("cost"), goal("latency"), goal("cost", rate=1.0)):
        group: Any = SimpleNamespace(replica=lambda candidate: short)
        found = Simulation(table_case(), wanted).quick(ONE, group)
        assert found == Trial(ONE, replica=short, why_not=why)
    none: Any = SimpleNamespace(replica=lambda candidate: None)
    found = Simulation(table_case(), goal("cost")).quick(ONE, none)
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


@pytest.mark.parametrize(
    ("low", "high", "candidate", "replicas", "cards"),
    [
        # 7.8 and 3.2 requests per second of each replica
        (0.8, 1.25, ONE, 3, (2, 4)),
        (0.8, 1.25, replace(ONE, pipeline=2), 2, (2, 4)),
        (0.8, 1.25, replace(ONE, cards=2), 3, (4, 8)),
        # never without what the prediction itself needs
        (2.0, 0.5, ONE, 3, (3, 3)),
        # at the lowest speed an idle replica misses the target
        (0.01, 1.25, ONE, 3, None),
    ],
)
def test_the_cards_within_the_range_of_the_speed(
    low: float, high: float, candidate: Candidate, replicas: int, cards: tuple[int, int] | None
) -> None:
    made = simulation("cost", 12.0)
    load = ReplicaLoad(TWO_REQUESTS, REPLICA.limits, COST, 0.5)
    served = Served(replicas, 9, 1, 0.1, 0.01, 1.0, 10.0, 10.0, 4096, 10.0)
    trial = Trial(candidate, served=served, curve=TableCurve(load, 10.0))
    assert made.cards_between(trial, evidence(low, high)) == cards
    assert made.cards_between(trial, None) is None
    assert made.cards_between(replace(trial, curve=None), evidence(low, high)) is None
    assert made.cards_between(replace(trial, missed=("ttft",)), evidence(low, high)) is None


def test_what_cannot_be_planned_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    why = message("placement.none_free", holders="-")
    outcomes: list[Unfit | ExitCode] = [ExitCode.MODEL, Unfit(1, why), ExitCode.FAILED]

    def planned_replica(setup: ReplicaSetup, traffic: Traffic) -> Unfit:
        outcome = outcomes.pop(0)
        if isinstance(outcome, ExitCode):
            raise LaunchError(why.id, outcome, **dict(why.values))
        return outcome

    monkeypatch.setattr(module, "planned_replica", planned_replica)
    assert simulation("cost").exact(ONE) == Trial(ONE, why_not=why, code=ExitCode.MODEL)
    assert simulation("cost").exact(ONE) == Trial(ONE, why_not=why)
    with pytest.raises(LaunchError):
        simulation("cost").exact(ONE)
