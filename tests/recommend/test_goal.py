"""What each goal counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.capacity.search import Targets
from gaudi_launch.recommend.goal import GOALS, GoalName, Served, missed, objective
from tests.support.recommend import goal

SERVED = Served(
    replicas=2,
    cards=8,
    nodes=1,
    ttft=0.5,
    tpot=0.04,
    e2e=10.0,
    tokens=4000,
    spare=6000,
    length=2048,
    balance=7.0,
)


@pytest.mark.parametrize(
    ("name", "alone", "with_a_load"),
    [
        ("balanced", 500.0, 500.0),
        ("throughput", 6000.0, 6000.0),
        ("latency", 0.1, 0.1),
        ("context", 2048.0, 2048.0),
        ("cost", 500.0, 0.125),
    ],
)
def test_the_objective_of_each_goal(name: GoalName, alone: float, with_a_load: float) -> None:
    assert objective(goal(name), SERVED) == alone
    assert objective(goal(name, rate=5.0), SERVED) == with_a_load


def test_balanced_counts_tokens_per_card_until_users_wait() -> None:
    balanced = goal("balanced")
    more, late, slow = (
        replace(SERVED, tokens=8000),
        replace(SERVED, ttft=4.0),
        replace(SERVED, tpot=0.2),
    )
    assert objective(balanced, more) == 2 * objective(balanced, SERVED)
    assert objective(balanced, late) == objective(balanced, slow) == objective(balanced, SERVED) / 2
    assert objective(balanced, replace(SERVED, ttft=2.0, tpot=0.1)) == objective(balanced, SERVED)


def test_every_goal_has_an_objective() -> None:
    assert set(GOALS) == {"balanced", "throughput", "latency", "context", "cost"}


def test_missed_targets_are_named() -> None:
    targets = Targets(ttft=0.5, tpot=0.03, e2e=9.0)
    assert missed(goal("balanced", targets=targets), SERVED) == ("tpot", "e2e")
    assert missed(goal("balanced"), SERVED) == ()
