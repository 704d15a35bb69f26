"""Find the best configuration: forecast all, simulate some, plan a few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gaudi_launch.buckets.warmup_time import Measured
from gaudi_launch.capacity.planned_replica import evidence_of
from gaudi_launch.capacity.replica import Replica
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.performance.evidence import Evidence
from gaudi_launch.recommend.analytic import Forecaster, Group, fitting, survivors
from gaudi_launch.recommend.goal import Goal, objective
from gaudi_launch.recommend.space import Candidate, SearchCase, with_coarse_buckets
from gaudi_launch.recommend.trial import Simulation, Trial, place

Progress = Callable[[int, int], None]
"""Receives how many steps of the work are done, of how many."""

# simulated without buckets: the best in all, and of each type and number of cards
_SIMULATED, _OF_EACH = 12, 2
# this many of the best are compared with their neighbours
_CLIMBING = 3
# planned completely: the best, and those of the front
_PLANNED, _FRONT = 4, 4
# two that differ less than this are alike, and the simpler one is the answer
_ALIKE = 0.005
# candidates that are planned to find one whose warm-up is short enough
_MOST_PLANNED = 14


@dataclass(frozen=True)
class Sensitivity:
    """One change of the winner, and the objective with it as a share of the winner's.

    ``field`` is a field of `Candidate`, ``value`` its other value. ``factor`` is 0 where no
    configuration with it meets the targets.
    """

    field: str
    value: str
    factor: float


@dataclass(frozen=True)
class Recommendation:
    """The answer of a search.

    ``trials`` are planned completely, the best first; ``winner`` is None where none meets the targets,
    and the first trial is then the nearest. ``front``: no other has more tokens per second and card at
    a shorter time per token. ``searched`` configurations were forecast, ``simulated`` simulated.
    """

    case: SearchCase
    goal: Goal
    winner: Trial | None
    runner_up: Trial | None
    trials: tuple[Trial, ...]
    front: tuple[Trial, ...]
    sensitivity: tuple[Sensitivity, ...]
    searched: int
    simulated: int
    evidence: Evidence | None = None


def find(
    case: SearchCase, goal: Goal, progress: Progress | None = None, measured: Sequence[Measured] = ()
) -> Recommendation:
    """Return the best configuration for ``goal``.

    Raises LaunchError (MACHINE) where the model fits no number of these cards.
    """
    show = progress or (lambda done, total: None)
    groups = fitting(case)
    if not groups:
        raise LaunchError("recommend.nothing_fits", ExitCode.MACHINE, **_nothing(case))
    forecaster = Forecaster(case, goal)
    forecasts = [forecaster.forecast(candidate, group) for candidate, group in groups.items()]
    chosen = [each.candidate for each in survivors(forecasts, _SIMULATED, _OF_EACH)]
    simulation = Simulation(case, goal, measured)
    total = len(chosen) + _PLANNED + _FRONT
    quick: list[Trial] = []
    for candidate in chosen:
        quick.append(simulation.quick(candidate, groups[candidate]))
        show(len(quick), total)
    quick = _climbed(simulation, quick, groups)
    exact = _planned(simulation, quick, lambda done: show(len(quick) + done, total))
    show(total, total)
    ranked = sorted(exact, key=place)
    winner = _settled(simulation, ranked)
    return Recommendation(
        case=case,
        goal=goal,
        winner=winner,
        runner_up=_runner_up(winner, ranked),
        trials=tuple(ranked),
        front=front(exact),
        sensitivity=_sensitivity(simulation, winner, quick, groups) if winner is not None else (),
        searched=len(groups),
        simulated=len(quick),
        evidence=_evidence(case, winner or ranked[0]),
    )


def _climbed(simulation: Simulation, quick: Sequence[Trial], groups: dict[Candidate, Group]) -> list[Trial]:
    """Return the trials, best first, with the neighbours of the best.

    Until no neighbour is better.
    """
    known = {trial.candidate: trial for trial in quick}
    climbed: set[Candidate] = set()
    while True:
        ranked = sorted(known.values(), key=place)
        open_ones = [trial.candidate for trial in ranked[:_CLIMBING] if trial.candidate not in climbed]
        if not open_ones:
            return ranked
        climbed.add(open_ones[0])
        for other in _neighbours(open_ones[0]):
            if other in groups and other not in known:
                known[other] = simulation.quick(other, groups[other])


def _neighbours(base: Candidate) -> list[Candidate]:
    """Return the candidates with one number doubled or halved."""
    found: list[Candidate] = []
    for name in ("batch", "prompts", "tokens"):
        value = getattr(base, name)
        changes: list[dict[str, Any]] = [{name: value * 2}, {name: value // 2}]
        found += [replace(base, **change) for change in changes]
    return found


def _nothing(case: SearchCase) -> dict[str, str]:
    types = dict.fromkeys(dtype for each in case.engines for dtype in each.dtypes)
    return {
        "model": case.model.name,
        "card": case.pool.accelerator.title,
        "cards": ", ".join(map(str, case.cards)),
        "dtypes": ", ".join(types),
    }


def _planned(simulation: Simulation, quick: Sequence[Trial], show: Callable[[int], None]) -> list[Trial]:
    """Return the complete trials of the best and of the front.

    And of more, where none of them meets the targets.
    """
    chosen = dict.fromkeys(trial.candidate for trial in quick[:_PLANNED])
    chosen.update(dict.fromkeys(trial.candidate for trial in front(quick)[:_FRONT]))
    rest = [trial.candidate for trial in quick if trial.candidate not in chosen]
    found: list[Trial] = []
    for candidate in chosen:
        found.append(simulation.exact(candidate))
        show(len(found))
    if simulation.goal.most_start is not None:
        found += _with_fewer_graphs(simulation, found)
    while rest and len(found) < _MOST_PLANNED and not any(trial.meets for trial in found):
        found.append(simulation.exact(rest.pop(0)))
    return found


def _with_fewer_graphs(simulation: Simulation, found: Sequence[Trial]) -> list[Trial]:
    """Return trials with coarser buckets of those that miss the start only."""
    made = []
    for trial in found:
        other = with_coarse_buckets(simulation.case, trial.candidate)
        if trial.missed == ("start",) and other is not None:
            made.append(simulation.exact(other))
    return made


def best(goal: Goal, trials: Iterable[Trial]) -> Trial | None:
    """Return the best trial that meets the targets.

    Of those that are alike the one that is balanced best.
    """
    able = [trial for trial in trials if trial.meets]
    if not able:
        return None
    top = max(trial.score for trial in able)
    close = [trial for trial in able if trial.score >= (1 - _ALIKE) * top]
    return max(close, key=lambda trial: trial.served.balance if trial.served is not None else 0.0)


def _settled(simulation: Simulation, ranked: list[Trial]) -> Trial | None:
    """Return the best after a complete simulation, now first of ``ranked``."""
    checked: set[Candidate] = set()
    while (winner := best(simulation.goal, ranked)) is not None:
        ranked.remove(winner)
        if winner.candidate in checked:
            ranked.insert(0, winner)
            return winner
        checked.add(winner.candidate)
        ranked.append(simulation.settled(winner))
        ranked.sort(key=place)
    return None


def _runner_up(winner: Trial | None, ranked: Sequence[Trial]) -> Trial | None:
    """Return the best that is another kind: engine, type, cards or batch differ."""
    if winner is None:
        return None
    for trial in ranked:
        if trial.served is not None and _kind(trial.candidate) != _kind(winner.candidate):
            return trial
    return None


def _kind(candidate: Candidate) -> tuple[object, ...]:
    return (candidate.engine, candidate.dtype, candidate.cards, candidate.batch, candidate.length)


def front(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the Pareto front, fastest first.

    Of tokens per second and card against time per token.
    """
    known = [trial for trial in trials if trial.served is not None and not set(trial.missed) & {"start"}]
    found: list[Trial] = []
    most = 0.0
    for trial in sorted(known, key=_by_time):
        assert trial.served is not None
        if trial.served.per_card > most:
            found.append(trial)
            most = trial.served.per_card
    return tuple(found)


def _by_time(trial: Trial) -> tuple[float, float]:
    assert trial.served is not None
    return (trial.served.tpot, -trial.served.per_card)


def _sensitivity(
    simulation: Simulation, winner: Trial, quick: Sequence[Trial], groups: dict[Candidate, Group]
) -> tuple[Sensitivity, ...]:
    """Return the effect of other values, by equally short simulations."""
    goal = simulation.goal
    known = {trial.candidate: trial for trial in quick}
    base = replace(winner.candidate, padding="")
    own = known.get(base) or simulation.quick(base, groups[base])
    found: list[Sensitivity] = []
    for field in ("dtype", "cards", "engine"):
        values = dict.fromkeys(getattr(trial.candidate, field) for trial in quick)
        for value in values:
            if value == getattr(base, field):
                continue
            others = [trial for trial in quick if getattr(trial.candidate, field) == value]
            found.append(Sensitivity(field, str(value), _factor(goal, best(goal, others), own)))
    for other in _neighbours(base):
        if other not in groups:
            continue
        trial = known.get(other) or simulation.quick(other, groups[other])
        field = next(name for name in ("batch", "prompts", "tokens") if getattr(other, name) != getattr(base, name))
        factor = _factor(goal, trial if trial.meets else None, own)
        found.append(Sensitivity(field, str(getattr(other, field)), factor))
    return tuple(found)


def _factor(goal: Goal, trial: Trial | None, own: Trial) -> float:
    if trial is None or trial.served is None or own.served is None:
        return 0.0
    return objective(goal, trial.served) / objective(goal, own.served)


def _evidence(case: SearchCase, trial: Trial) -> Evidence | None:
    """Return the published figures near one replica."""
    if trial.served is None or not isinstance(trial.replica, Replica):
        return None
    served = trial.served
    # Little's law, for one replica
    inside = served.tokens / served.replicas / case.traffic.mean_output * served.e2e
    measured = trial.candidate.cards <= case.pool.cards_per_node
    return evidence_of(trial.replica, case.traffic, min(inside, trial.candidate.batch), measured=measured)
