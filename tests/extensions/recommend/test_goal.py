"""What each goal counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gaudi_launch.core.predict.simulate import Latency, Outcome
from gaudi_launch.core.predict.targets import Targets
from gaudi_launch.extensions.recommend.goal import GOALS, GoalName, Served, objective
from tests.support.recommend import TWO_REQUESTS, goal

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


def outcome(ttft: Sequence[float], tpot: Sequence[float]) -> Outcome:
    """Return an outcome with these latencies of its seeds."""
    first, each, ended = (
        Latency(measure, tuple(np.array([one]) for one in runs))
        for measure, runs in (("ttft", ttft), ("tpot", tpot), ("e2e", ttft))
    )
    made: Any = None
    return Outcome(made, TWO_REQUESTS, 1, len(ttft), 1.0, 1.0, 1.0, 0.0, first, each, ended)


@pytest.mark.parametrize(
    ("ttft", "tpot", "missed"),
    [
        ((0.5,), (0.03,), ()),
        ((0.6,), (0.02,), ("ttft", "e2e")),
        # one that a seed misses is not safe
        ((0.4, 0.4, 0.4), (0.02, 0.02, 0.04), ("tpot",)),
    ],
)
def test_missed_targets_are_named(
    ttft: Sequence[float], tpot: Sequence[float], missed: tuple[str, ...]
) -> None:
    targets = Targets(ttft=0.5, tpot=0.03, e2e=0.55)
    assert targets.missed(outcome(ttft, tpot)) == missed
    assert Targets(None, None).missed(outcome(ttft, tpot)) == ()
    assert targets.missed(None) == ()


def test_the_crossing_is_that_of_the_first_target() -> None:
    low, high = outcome((0.1,), (0.01,)), outcome((0.9,), (0.03,))
    assert Targets(0.5, None).crossing(low, high) == pytest.approx(0.5)
    assert Targets(0.7, 0.015).crossing(low, high) == pytest.approx(0.25)
    assert Targets(1.0, 0.05).crossing(low, high) == 1.0
