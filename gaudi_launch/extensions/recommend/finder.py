"""Find the best configuration: forecast all, simulate some, plan a few."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import filterfalse
from operator import attrgetter
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.models.sizing import divides
from gaudi_launch.core.predict.evidence import Evidence
from gaudi_launch.extensions.recommend.analytic import (
    Fitting,
    Forecaster,
    Group,
    fitting,
    kind_of,
    survivors,
)
from gaudi_launch.extensions.recommend.front import front
from gaudi_launch.extensions.recommend.goal import Goal, objective
from gaudi_launch.extensions.recommend.space import (
    CARDS,
    Candidate,
    SearchCase,
    on_other,
    with_fewer_graphs,
)
from gaudi_launch.extensions.recommend.trial import Limit, Planner, Simulation, Trial, limit_of

Progress = Callable[[int, int], None]
"""Receives how many steps of the work are done, of how many."""

# simulated without buckets: the best in all, and of each type and number of cards
_SIMULATED, _OF_EACH = 12, 2
# this many of the best are compared with their neighbours
_CLIMBING, _NEIGHBOURS = 3, 16
# with a load, also the best of each number of cards whose score is this share of the best one
_CLOSE = 0.6
# planned: the best of each batch and of each number of prompts that is about as good as the best by
# few requests, and some of the front
_PLANNED, _ABOUT, _FRONT = 10, 0.97, 3
# this many are always planned, with the precision and the release of the best
BEST = 3
# two that differ less than this are alike, and the one with the shorter warm-up is the answer
_ALIKE = 0.005
# candidates that are planned to find one that meets the targets
_MOST_PLANNED = 14
# as many processes as work on one search
_TOGETHER = 2
# factors: a short simulation that misses a target by at most the first is planned, too; when every
# plan misses one by at least the second, no more are planned
_NEARLY, _FAR = 1.1, 2.0
_MOST_SHRUNKEN = 12
# without stages in both a difference of layouts is one of cards
_NAMES = {("layout", 1): "cards"}


@dataclass(frozen=True)
class Sensitivity:
    """One change of the winner, and the objective with it as a share of the winner's.

    ``field`` is a property of `Candidate`, ``value`` its other value. ``factor`` is 0 where no
    configuration with it meets the targets. ``ended``: the date on which an engine's makers ended
    it.
    """

    field: str
    value: str
    factor: float
    ended: str = ""


@dataclass(frozen=True)
class Recommendation:
    """The answer of a search.

    ``trials`` are planned completely, the best first; ``winner`` is None where none meets the
    targets, and the first trial is then the nearest. ``front``: no other has more tokens per second
    and card at a shorter time per token. ``searched`` configurations were forecast, ``simulated``
    simulated. ``evidence`` and ``limit`` are of the winner, else of the nearest; ``cards`` is the
    range of its number of cards, by that evidence.
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
    limit: Limit | None = None
    cards: tuple[int, int] | None = None


def find(
    case: SearchCase, goal: Goal, planner: Planner, progress: Progress | None = None
) -> Recommendation:
    """Return the best configuration for ``goal``.

    Raises LaunchError (MACHINE) where the model fits no number of these cards.
    """
    show = progress or (lambda done, total: None)
    able = fitting(case)
    if not able.candidates:
        raise _nothing_fits(case)
    forecaster = Forecaster(case, goal)
    forecasts = [
        forecaster.forecast(candidate, able.group(candidate)) for candidate in able.candidates
    ]
    chosen = [each.candidate for each in survivors(forecasts, _SIMULATED, _OF_EACH)]
    simulation = _Simulations(Simulation(case, goal, planner), able)
    simulated = len(chosen) + _NEIGHBOURS
    total = simulated + _PLANNED + _FRONT
    quick = simulation.quick(chosen, lambda done: show(done, total))
    # there may be more neighbours than that
    quick = _climbed(simulation, quick, able, lambda done: show(min(done, simulated), total))
    begun = min(len(quick), simulated)
    exact = _planned(
        simulation, quick, able, lambda done: show(min(begun + done, total - 1), total)
    )
    ranked = sorted(exact, key=simulation.one.place)
    _check_planned(ranked[0])
    winner = _settled(simulation.one, ranked)
    show(total, total)
    shown = winner or ranked[0]
    evidence = shown.outcome.evidence if shown.outcome is not None else None
    sensitivity: tuple[Sensitivity, ...] = ()
    if winner is not None:
        sensitivity = _sensitivity(simulation.one, winner, _Known(quick, exact), able)
    return Recommendation(
        case=case,
        goal=goal,
        winner=winner,
        runner_up=_runner_up(simulation.one, winner, ranked),
        trials=tuple(ranked),
        front=front(ranked),
        sensitivity=sensitivity,
        searched=len(able.candidates),
        simulated=len(quick),
        evidence=evidence,
        limit=limit_of(case, shown, ranked),
        cards=simulation.one.cards_between(shown, evidence),
    )


def _check_planned(first: Trial) -> None:
    """Raise LaunchError where even the first trial is an error."""
    if first.code is not None:
        assert first.why_not is not None, "a code is that of a reason"
        raise LaunchError(first.why_not.id, first.code, **dict(first.why_not.values))


def _nothing_shown(done: int) -> None:
    """Receive progress that is not shown."""


@dataclass(frozen=True)
class _Simulations:
    """Trials of several candidates."""

    one: Simulation
    able: Fitting

    def quick(
        self, candidates: Sequence[Candidate], show: Callable[[int], None] = _nothing_shown
    ) -> list[Trial]:
        """Return the short trials of these candidates."""
        found = []
        for number, each in enumerate(candidates, 1):
            found.append(self.one.quick(each, self.able.group(each), counted=False))
            show(number)
        return found

    def exact(
        self, candidates: Sequence[Candidate], show: Callable[[int], None] = _nothing_shown
    ) -> list[Trial]:
        """Return the trials of these candidates as their plans would have them."""
        found = []
        for number, each in enumerate(candidates, 1):
            found.append(self.one.exact(each))
            show(number)
        return found


def _climbed(
    simulation: _Simulations, quick: Sequence[Trial], able: Fitting, show: Callable[[int], None]
) -> list[Trial]:
    """Return the trials, best first, with the neighbours of the best.

    Neighbours are simulated until none is better.
    """
    known = {trial.candidate: trial for trial in quick}
    possible = set(able.candidates)
    climbed: set[Candidate] = set()
    while True:
        ranked = sorted(known.values(), key=simulation.one.place)
        starts = [trial.candidate for trial in ranked[:_CLIMBING]]
        if simulation.one.goal.demand:
            starts += _best_of_cards(ranked)
        open_ones = [each for each in dict.fromkeys(starts) if each not in climbed]
        if not open_ones:
            return ranked
        climbed.update(open_ones)
        near = [other for each in open_ones for other in _neighbours(each)]
        # one prompt per step is often best, and several of several are alike
        near += [replace(each, prompts=1) for each in open_ones]
        if not any(trial.meets for trial in ranked):
            # no neighbour leads to what alone may meet
            near += _of_any_tokens(open_ones, able)
        others = [each for each in dict.fromkeys(near) if each in possible and each not in known]
        known.update(zip(others, simulation.quick(others), strict=True))
        show(len(known))


def _best_of_cards(ranked: Sequence[Trial]) -> list[Candidate]:
    """Return the best of each layout, of those that are not far behind.

    All of them while none meets the targets: any may be the nearest.
    """
    top = max((trial.score for trial in ranked if trial.meets), default=-math.inf)
    found: dict[str, Candidate] = {}
    for trial in ranked:
        if trial.score >= _CLOSE * top:
            found.setdefault(trial.candidate.layout, trial.candidate)
    return list(found.values())


def _neighbours(base: Candidate) -> list[Candidate]:
    """Return the candidates with one number doubled or halved."""
    found: list[Candidate] = []
    for name in ("batch", "prompts", "tokens"):
        value = getattr(base, name)
        changes: list[dict[str, Any]] = [{name: value * 2}, {name: value // 2}]
        found += [replace(base, **change) for change in changes]
    return found


def _of_any_tokens(bases: Sequence[Candidate], able: Fitting) -> list[Candidate]:
    """Return the candidates with one prompt and every number of tokens of a step."""
    tokens = sorted({each.tokens for each in able.candidates})
    return [replace(each, prompts=1, tokens=most) for each in bases for most in tokens]


def _nothing_fits(case: SearchCase) -> LaunchError:
    """Return the error of a model that no number of these cards runs."""
    pool = case.pool
    cards = ", ".join(map(str, case.cards))
    is_spread = any(each.spreads for each in case.engines)
    # over servers any number is possible
    most = max(pool.cards_per_node, max(case.cards) * is_spread)
    if min(case.cards) > most:
        return LaunchError(
            "recommend.few_cards",
            ExitCode.MACHINE,
            cards=cards,
            have=pool.cards_per_node,
            servers=pool.nodes or 1,
        )
    if not any(divides(case.model, number) for number in case.cards):
        allowed = [f"-n {number}" for number in CARDS if divides(case.model, number)]
        return LaunchError(
            "plan.heads",
            ExitCode.MODEL,
            heads=case.model.heads,
            cards=cards,
            allowed=", ".join(allowed),
        )
    types = dict.fromkeys(dtype for each in case.engines for dtype in each.dtypes)
    return LaunchError(
        "recommend.nothing_fits",
        ExitCode.MACHINE,
        model=case.model.name,
        card=pool.accelerator.title,
        cards=cards,
        dtypes=", ".join(types),
    )


def _planned(
    simulation: _Simulations, quick: Sequence[Trial], able: Fitting, show: Callable[[int], None]
) -> list[Trial]:
    """Return the complete trials of the best and of the front.

    And of more, where none of them meets the targets.
    """
    found = _best_of_kinds(simulation, quick)
    quick = _corrected(simulation, quick, able, found)
    chosen = dict.fromkeys(trial.candidate for trial in _about_best(simulation.one, quick))
    others = filterfalse(lambda trial: trial.candidate.is_last_resort, quick)
    chosen.update(dict.fromkeys(trial.candidate for trial in front(others)[:_FRONT]))
    rank = simulation.one.case.rank
    alike = [each.candidate for each in quick if rank(each.candidate) == rank(quick[0].candidate)]
    chosen.update(dict.fromkeys(alike[:BEST]))
    known = {trial.candidate for trial in found}
    found += simulation.exact([each for each in chosen if each not in known], show)
    if simulation.one.goal.most_start is not None and not any(trial.meets for trial in found):
        found += _with_short_start(simulation, quick, able, found)
    known = {trial.candidate for trial in found}
    rest = [trial for trial in quick if trial.candidate not in known and trial.miss <= _NEARLY]
    while rest and len(found) < _MOST_PLANNED and _is_open(simulation.one, found, rest[0]):
        found += simulation.exact([trial.candidate for trial in rest[:_TOGETHER]])
        del rest[:_TOGETHER]
    return found


def _best_of_kinds(simulation: _Simulations, quick: Sequence[Trial]) -> list[Trial]:
    """Return the complete trial of the best of each kind.

    No more where one meets the targets and no other may be better. A kind that meets them by few
    requests may miss them by all.
    """
    kinds: dict[Candidate, Trial] = {}
    for trial in quick:
        if trial.miss <= max(_NEARLY, quick[0].miss):
            kinds.setdefault(kind_of(trial.candidate), trial)
    found: list[Trial] = []
    for trial in kinds.values():
        if any(each.meets for each in found) and not _is_open(simulation.one, found, trial):
            break
        found += simulation.exact([trial.candidate])
    return found


def _corrected(
    simulation: _Simulations, quick: Sequence[Trial], able: Fitting, found: Sequence[Trial]
) -> list[Trial]:
    """Return the short trials, corrected by the complete ones.

    The best kind is first, late kinds are last. Neighbours of the best are among them.
    """
    late = {kind_of(trial.candidate): trial.miss for trial in found if trial.is_late}
    known = [
        replace(trial, miss=max(trial.miss, late.get(kind_of(trial.candidate), 1.0)))
        for trial in quick
    ]
    ranked = _climbed(simulation, known, able, _nothing_shown)
    if any(trial.meets for trial in found):
        best = kind_of(min(found, key=simulation.one.place).candidate)
        ranked.sort(key=lambda trial: kind_of(trial.candidate) != best)
    return ranked


def _about_best(one: Simulation, quick: Sequence[Trial]) -> list[Trial]:
    """Return the best of each batch and of each number of prompts.

    Those that may be the answer. The best, and the best of another precision, are always among
    them.
    """
    first = quick[0]
    near = [
        trial
        for trial in quick
        if trial.miss <= max(_NEARLY, first.miss)
        and trial.score >= _ABOUT * first.score
        and one.case.rank(trial.candidate) == one.case.rank(first.candidate)
    ]
    found: dict[Candidate, Trial] = {}
    for name in ("batch", "prompts"):
        seen: set[int] = set()
        for trial in near:
            value = getattr(trial.candidate, name)
            if value not in seen:
                seen.add(value)
                found[trial.candidate] = trial
    kept = [trial for trial in quick if trial.candidate in found][:_PLANNED]
    other = [trial for trial in quick if not one.case.keeps_type(trial.candidate)]
    return [first, *kept, *other[:1]]


def _is_open(one: Simulation, found: Sequence[Trial], other: Trial) -> bool:
    """Return True while one nearly meets, none has a plan, or the other is better."""
    least = min(trial.miss for trial in found)
    if least > 1:
        return least == math.inf or least < _FAR
    first = min(found, key=one.place)
    # not by what decides between those that are alike
    return one.goal.counts_replicas and one.place(other)[:-2] < one.place(first)[:-2]


def _with_short_start(
    simulation: _Simulations, quick: Sequence[Trial], able: Fitting, found: Sequence[Trial]
) -> list[Trial]:
    """Return trials with fewer graphs, until no better one can meet the start.

    Fewer prompts of a step need fewer graphs, and then smaller batches; another list of buckets, or
    none of cached contexts, may have fewer too.
    """
    known = {trial.candidate for trial in found}
    made: list[Trial] = []
    first = min(found, key=simulation.one.place)
    if first.missed == ("start",):
        made += simulation.exact(with_fewer_graphs(simulation.one.case, first.candidate))
    expected = _Starts([*found, *made])

    def lateness(trial: Trial) -> float:
        return simulation.one.lateness(expected.of(trial.candidate))

    pool = sorted(_with_shrunken(simulation, quick, able), key=simulation.one.place)
    open_ones = [trial for trial in pool if trial.candidate not in known]
    while len(made) < _MOST_SHRUNKEN:
        top = max((trial.score for trial in made if trial.meets), default=-math.inf)
        open_ones = [each for each in open_ones if each.score > top and lateness(each) <= _NEARLY]
        if not open_ones:
            break
        made += simulation.exact([each.candidate for each in open_ones[:_TOGETHER]])
        del open_ones[:_TOGETHER]
        expected = _Starts([*found, *made])
    if not any(trial.meets for trial in made):
        # what is possible
        planned = known.union(map(attrgetter("candidate"), made))
        made += simulation.exact(list({min(pool, key=lateness).candidate} - planned))
    return made


class _Starts:
    """Seconds of warm-ups: of trials, and expected ones of candidates.

    They follow the prompts and the batch; the type and the cards do not change them much.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.known: dict[tuple[int, int], float] = {}
        self.shares: list[float] = []
        for trial in trials:
            candidate = trial.candidate
            if trial.start and not candidate.padding:
                self.known[candidate.prompts, candidate.batch] = trial.start
                self.shares.append(trial.start / _graph_share(candidate))

    def of(self, candidate: Candidate) -> float:
        """Return the expected seconds; 0 while nothing is known."""
        known = self.known.get((candidate.prompts, candidate.batch))
        if known is not None or not self.shares:
            return known or 0.0
        # the lowest, so that no candidate is left out that may meet the start
        return min(self.shares) * _graph_share(candidate)


def _graph_share(candidate: Candidate) -> float:
    """Return how many graphs a candidate has, relative to one prompt and one request.

    Assumed, from plans of Llama-3.1-70B: a list grows by the logarithms of the prompts and of the
    batch.
    """
    return 1.0 + math.log2(candidate.prompts) + 0.27 * math.log2(candidate.batch)


def _with_shrunken(simulation: _Simulations, quick: Sequence[Trial], able: Fitting) -> list[Trial]:
    """Return the trials, with smaller shapes of the best of each kind.

    A kind is a type of weights and a number of cards.
    """
    known = {trial.candidate: trial for trial in quick}
    kinds: dict[tuple[str, str], Candidate] = {}
    for trial in quick:
        kinds.setdefault((trial.candidate.dtype, trial.candidate.layout), trial.candidate)
    smaller = dict.fromkeys(each for start in kinds.values() for each in _shrinking(start, able))
    new = [candidate for candidate in smaller if candidate not in known]
    return [*known.values(), *simulation.quick(new)]


def _shrinking(start: Candidate, able: Fitting) -> list[Candidate]:
    """Return candidates with fewer and fewer shapes; given options stay."""
    fewer = [replace(start, prompts=prompts) for prompts in (4, 1) if prompts < start.prompts]
    *_, last = (start, *fewer)
    halves = [2**power for power in range(1, last.batch.bit_length())]
    fewer += [replace(last, batch=last.batch // part) for part in halves]
    found = [able.nearest(each) for each in fewer]
    return [each for each in found if each is not None]


def best(case: SearchCase, trials: Iterable[Trial]) -> Trial | None:
    """Return the best trial that meets the targets.

    One that changes the precision, one of an older release, and one with pipeline stages on a
    server only where no other meets the targets. Of those that are alike the one that `goal.second`
    prefers, then the one with the shorter warm-up. Where a model needs several servers, each layer
    stays in one if that is alike (vLLM 0.8.4, docs/serving/distributed_serving.md).
    """
    able = [trial for trial in trials if trial.meets]
    if not able:
        return None
    first = min(map(case.rank, (trial.candidate for trial in able)))
    able = [trial for trial in able if case.rank(trial.candidate) == first]
    close = _alike(able, [trial.score for trial in able])
    inside = [trial for trial in close if not trial.candidate.splits_layers] or close
    even = _alike(inside, [trial.second for trial in inside])
    return min(even, key=lambda trial: (trial.start, trial.candidate.batch, -trial.second))


def _alike(trials: Sequence[Trial], values: Sequence[float]) -> list[Trial]:
    """Return the trials whose value is about the highest."""
    least = (1 - _ALIKE) * max(values)
    return [trial for trial, value in zip(trials, values, strict=True) if value >= least]


def _settled(simulation: Simulation, ranked: list[Trial]) -> Trial | None:
    """Return the best after a complete simulation, now first of ``ranked``."""
    while (winner := best(simulation.case, ranked)) is not None:
        ranked.remove(winner)
        if winner.settled:
            ranked.insert(0, simulation.with_spare(winner))
            return ranked[0]
        ranked.append(simulation.settled(winner))
        ranked.sort(key=simulation.place)
    # what is nearest is printed, too
    ranked[0] = simulation.with_spare(simulation.settled(ranked[0]))
    return None


def _runner_up(simulation: Simulation, winner: Trial | None, ranked: list[Trial]) -> Trial | None:
    """Return the best that is another kind: engine, type, cards or batch differ.

    One that gains by another precision comes first. It is settled, too.
    """
    if winner is None:
        return None
    others = [
        trial
        for trial in ranked
        if trial.served is not None and _kind(trial.candidate) != _kind(winner.candidate)
    ]
    changed = [
        trial
        for trial in others
        if trial.meets
        and simulation.case.rank(trial.candidate) > simulation.case.rank(winner.candidate)
        and trial.score > winner.score
    ]
    found = next(iter([*changed, *others]), None)
    if found is None:
        return None
    shown = simulation.settled(found)
    ranked[ranked.index(found)] = shown
    return shown


def _kind(candidate: Candidate) -> tuple[object, ...]:
    return (
        candidate.engine,
        candidate.dtype,
        candidate.layout,
        candidate.batch,
        candidate.length,
    )


class _Known:
    """Trials of both kinds, to compare two of the same kind."""

    def __init__(self, quick: Sequence[Trial], exact: Sequence[Trial]) -> None:
        self.quick = {trial.candidate: trial for trial in quick}
        self.exact = {trial.candidate: trial for trial in exact}

    def knows(self, goal: Goal, other: Candidate) -> bool:
        """Return True if the start of ``other`` is known, or does not matter."""
        return goal.most_start is None or other in self.exact

    def factor(self, goal: Goal, other: Candidate, winner: Candidate) -> float:
        """Return the objective of ``other`` as a share of the winner's.

        0 where it misses a target.
        """
        both = self.quick
        if {other, winner} <= self.exact.keys():
            both = self.exact
        one, own = both[other], both[winner]
        if not one.meets or one.served is None or own.served is None:
            return 0.0
        return objective(goal, one.served) / objective(goal, own.served)


def _sensitivity(
    simulation: Simulation, winner: Trial, known: _Known, able: Fitting
) -> tuple[Sensitivity, ...]:
    """Return the effect of other values, by equally short simulations."""
    candidate = winner.candidate
    searched = simulation.case.engine(candidate.engine)
    prefixes = searched.caches_prefixes(simulation.case.model)
    base = replace(candidate, padding="", prefix_caching=prefixes)
    if base not in known.quick:
        known.quick[base] = simulation.quick(base, able.group(base))
    return (
        *_other_parts(simulation, base, known),
        *_other_engines(simulation, known.quick[base]),
        *_other_experts(simulation.case, base),
        *_other_steps(simulation, base, known, able),
    )


def _other_parts(simulation: Simulation, base: Candidate, known: _Known) -> Iterator[Sensitivity]:
    """Yield the objective with each other data type, layout and engine."""
    goal = simulation.goal
    ranked = sorted([*known.exact.values(), *known.quick.values()], key=simulation.place)
    for part in ("dtype", "layout", "engine"):
        others: dict[str, list[Candidate]] = {}
        for trial in ranked:
            others.setdefault(getattr(trial.candidate, part), []).append(trial.candidate)
        others.pop(getattr(base, part), None)
        for value, candidates in others.items():
            # the best of them, whatever else changes with it
            other = next(
                (each for each in candidates if known.knows(goal, each) and each in known.quick),
                None,
            )
            if other is not None:
                name = _NAMES.get((part, other.pipeline * base.pipeline), part)
                yield Sensitivity(name, str(value), known.factor(goal, other, base))


def _other_steps(
    simulation: Simulation, base: Candidate, known: _Known, able: Fitting
) -> Iterator[Sensitivity]:
    """Yield the objective with each neighbouring limit of a step."""
    goal = simulation.goal
    for other in _neighbours(base):
        if other not in able.candidates or not known.knows(goal, other):
            continue
        if other not in known.quick or known.quick[other].is_late:
            known.quick[other] = simulation.quick(other, able.group(other))
        part = next(
            name
            for name in ("batch", "prompts", "tokens")
            if getattr(other, name) != getattr(base, name)
        )
        yield Sensitivity(part, str(getattr(other, part)), known.factor(goal, other, base))


def _other_experts(case: SearchCase, base: Candidate) -> list[Sensitivity]:
    """Return the objective with the experts divided in the other way.

    Nothing where an option decides.

    It is equal: memory and predicted speed are those of the same functions (`Candidate.experts`).
    """
    if not case.model.moe or base.cards == 1 or case.engine(base.engine).decides_experts():
        return []
    return [Sensitivity("experts", str(base.cards - base.experts), 1.0)]


def _other_engines(simulation: Simulation, own: Trial) -> list[Sensitivity]:
    """Return the objective of the same configuration on the other engines."""
    case, goal = simulation.case, simulation.goal
    found: list[Sensitivity] = []
    if goal.most_start is not None:
        return []
    for searched in case.others:
        trials: list[Trial] = []
        for candidate in on_other(case, own.candidate, searched):
            group = Group(case, searched, candidate)
            if group.memory is not None:
                trials.append(simulation.quick(candidate, group))
        top = best(replace(case, engines=(searched,)), trials)
        if top is not None and top.served is not None and own.served is not None:
            factor = objective(goal, top.served) / objective(goal, own.served)
            ended = searched.engine.ended or ""
            found.append(Sensitivity("engine", searched.engine.identity.label, factor, ended))
    return found
