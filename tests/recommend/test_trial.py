"""Short simulations of replicas under a load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.capacity.search import Targets
from gaudi_launch.recommend.analytic import Fitting, Group, fitting
from gaudi_launch.recommend.finder import find
from gaudi_launch.recommend.goal import Goal
from gaudi_launch.recommend.space import Candidate
from gaudi_launch.recommend.trial import Simulation, Trial
from tests.support.recommend import goal, search_case

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
