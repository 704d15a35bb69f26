"""Candidates simulated on the traffic, by few requests or by many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gaudi_launch.buckets.warmup_time import Measured, Span, per_graph, times
from gaudi_launch.capacity.planned_replica import ReplicaSetup, planned_replica, request_delay
from gaudi_launch.capacity.replica import Replica, Unfit
from gaudi_launch.capacity.search import (
    QUICK_SHARES,
    SHARES,
    LoadCurve,
    LoadPoint,
    ReplicaLoad,
    Targets,
    load_curve,
    nodes_for,
    settled_clients,
)
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message
from gaudi_launch.performance.balance import balanced
from gaudi_launch.performance.evidence import Evidence
from gaudi_launch.recommend.analytic import Group
from gaudi_launch.recommend.goal import Goal, Served, alike, missed, objective, second
from gaudi_launch.recommend.space import Candidate, SearchCase, request_of

# requests of a simulation: to rank, to compare, and (None) as many as the load needs to settle
_QUICK, _EXACT = 500, 4000
# few requests show less than what one replica carries: a replica less may be enough
_LENIENT = 0.9
# more replicas than this beyond the fewest only lower a latency that meets its target
_MORE_REPLICAS = 8
# a plan, whose fp8 files are on the machine or not, may have a few graphs more than a trial
_START_MARGIN = 1.05


@dataclass(frozen=True)
class Trial:
    """A candidate after its simulation.

    ``second`` decides where ``score`` is alike. ``miss`` is by how much the worst target is missed,
    as a factor, and ``missed`` names them: ttft, tpot, e2e, cards, start. ``start`` is the time of
    the warm-up with ``graphs`` buckets. ``why_not`` is the reason why there is nothing to simulate,
    ``code`` the exit code where that is an error. ``curve`` are the loads of one replica.
    """

    candidate: Candidate
    served: Served | None = None
    score: float = -math.inf
    second: float = 0.0
    miss: float = math.inf
    missed: tuple[str, ...] = ()
    replica: Replica | None = None
    graphs: int = 0
    start: Span | None = None
    why_not: Message | None = None
    code: ExitCode | None = None
    curve: LoadCurve | None = field(default=None, compare=False, repr=False)

    @property
    def meets(self) -> bool:
        """Return True if it runs and meets every target."""
        return self.served is not None and not self.missed


class Simulation:
    """Trials of one case and goal."""

    def __init__(self, case: SearchCase, goal: Goal, measured: Sequence[Measured] = ()) -> None:
        self.case = case
        self.goal = goal
        self.measured = measured
        self._traffic: dict[int, Traffic] = {}

    def quick(self, candidate: Candidate, group: Group) -> Trial:
        """Return a trial without the padding of buckets, by few requests."""
        made = group.replica(candidate)
        if made is None:
            return Trial(candidate, why_not=message("recommend.no_memory"))
        return self._served(Trial(candidate, replica=made), made, _QUICK)

    def exact(self, candidate: Candidate) -> Trial:
        """Return the trial of a candidate as its plan would have it."""
        made = self._planned(candidate)
        if made.replica is None:
            return made
        return self._served(made, made.replica, _EXACT)

    def settled(self, trial: Trial) -> Trial:
        """Return a complete trial with as many requests as its load needs."""
        if trial.replica is None or not self.goal.demand:
            return trial
        return self._served(replace(trial, missed=(), miss=math.inf), trial.replica, None)

    def _planned(self, candidate: Candidate) -> Trial:
        case = self.case
        searched = case.engine(candidate.engine)
        asked = ReplicaSetup(
            searched.engine.innermost,
            request_of(case, candidate),
            case.pool.accelerator,
            case.model,
            candidate.cards,
            candidate.dtype,
            stages=candidate.pipeline,
        )
        try:
            made = planned_replica(asked, case.traffic)
        except LaunchError as error:
            if error.exit_code == ExitCode.FAILED:
                raise
            return Trial(candidate, why_not=error.text, code=error.exit_code)
        if isinstance(made, Unfit):
            return Trial(candidate, why_not=made.reason)
        graphs = 0
        if made.buckets is not None:
            graphs = made.buckets.graphs
        return Trial(candidate, replica=made, graphs=graphs, start=self._start(candidate, graphs))

    def _start(self, candidate: Candidate, graphs: int) -> Span | None:
        if not graphs or self.case.engine(candidate.engine).request.skip_warmup:
            return None
        one = per_graph(
            candidate.dtype,
            False,
            self.measured,
            engine=candidate.engine,
            model=self.case.model.name,
            cards=candidate.cards,
        )
        return times(one, graphs)

    def _served(self, trial: Trial, made: Replica, requests: int | None) -> Trial:
        """Return the trial with what its replicas do under the load."""
        goal = self.goal
        traffic = self.case.traffic
        if trial.candidate.prefix_caching:
            traffic = self._cached(made.limits.num_blocks * made.limits.block_size)
        if goal.demand and requests is not None:
            traffic = traffic.first(requests)
        delay = request_delay()
        simulated = ReplicaLoad(traffic, made.limits, made.cost, goal.targets.percentile, delay)
        if not goal.demand:
            served = self._unloaded(trial.candidate, simulated, requests or _EXACT)
        else:
            shares, leniency = SHARES, 1.0
            if requests == _QUICK:
                shares, leniency = QUICK_SHARES, _LENIENT
            curve = load_curve(simulated, clients=bool(goal.clients), shares=shares)
            served = None
            if curve is not None:
                served = self._loaded(trial.candidate, curve, leniency)
            trial = replace(trial, curve=curve)
        if served is None:
            length = made.limits.max_model_len
            return replace(trial, why_not=message("capacity.takes_none", length=length))
        return self._judged(trial, served)

    def _cached(self, tokens: int) -> Traffic:
        """Return the traffic with what a prefix cache of this many tokens has of it."""
        if tokens not in self._traffic:
            self._traffic[tokens] = self.case.traffic.with_cache(tokens)
        return self._traffic[tokens]

    def _unloaded(
        self, candidate: Candidate, simulated: ReplicaLoad, requests: int
    ) -> Served | None:
        """Return what replicas do with as many clients as they serve at once.

        For the goal of the lowest latency the load is one client.
        """
        goal = self.goal
        full = settled_clients(simulated, candidate.batch, requests)
        load = full
        if goal.name == "latency":
            load = settled_clients(simulated, 1, requests)
        if load is None or full is None:
            return None
        replicas = 1
        if goal.name not in ("latency", "cost"):
            most = self.case.pool.most_replicas(candidate.world)
            replicas = most or self.case.pool.cards_per_node // candidate.world
        return self._of_load(candidate, load, max(1, replicas), full)

    def _loaded(self, candidate: Candidate, curve: LoadCurve, leniency: float) -> Served | None:
        """Return what the best number of replicas does with the given load."""
        goal, engines = self.goal, candidate.pipeline
        each = self._each(curve, goal.targets)
        if each is None:
            # not even idle: what one client sees
            return self._of_load(candidate, curve.load(0), 1, curve.load(0))
        least = max(1, math.ceil(leniency * goal.demand / (each * engines) - 1e-9))
        most = self.case.pool.most_replicas(candidate.world)
        spare = curve.at(each)
        found: Served | None = None
        for replicas in _numbers(goal, least, most):
            amount = goal.demand / (replicas * engines)
            if leniency < 1:
                # a number that is too small by the leniency misses no target: it may be enough
                amount = min(amount, each)
            served = self._of_load(candidate, curve.at(amount), replicas, spare)
            if found is None or objective(goal, served) > objective(goal, found):
                found = served
        return found

    def _each(self, curve: LoadCurve, targets: Targets) -> float | None:
        """Return the load of one replica within the targets.

        In requests per second, or clients.
        """
        each = curve.within(targets)
        if each is None or not self.goal.clients:
            return each
        return max(1.0, float(math.floor(each + 1e-9)))

    def cards_between(self, trial: Trial, evidence: Evidence | None) -> tuple[int, int] | None:
        """Return the fewest and the most cards within the range of the speed.

        None without a given load or evidence, or where the slowest misses the targets.
        """
        if evidence is None or trial.curve is None or not trial.meets:
            return None
        # a range needs no more requests than a comparison
        replica = trial.curve.replica
        short = replace(replica, traffic=replica.traffic.first(_EXACT))
        curve = trial.curve.of(short)
        found: list[int] = []
        world, engines = trial.candidate.world, trial.candidate.pipeline
        for factor in (evidence.high, evidence.low):
            targets = scaled(self.goal.targets, factor)
            each = self._each(curve, targets)
            if each is None:
                return None
            # slower steps do not change the number of clients, but the rate that a replica carries
            if not self.goal.clients:
                each *= factor
            found.append(world * max(1, math.ceil(self.goal.demand / (each * engines) - 1e-9)))
        cards = 0
        if trial.served is not None:
            cards = world * trial.served.replicas
        return min(found[0], cards), max(found[1], cards)

    def _of_load(
        self, candidate: Candidate, load: LoadPoint, replicas: int, full: LoadPoint
    ) -> Served:
        per_node = self.case.pool.cards_per_node
        # each stage's cards run as many virtual engines as there are stages
        engines = replicas * candidate.pipeline
        return Served(
            replicas=replicas,
            cards=replicas * candidate.world,
            nodes=nodes_for(replicas, candidate.world, per_node),
            ttft=load.ttft,
            tpot=load.tpot,
            e2e=load.e2e,
            tokens=engines * load.tokens,
            spare=engines * full.tokens,
            length=candidate.length,
            balance=balanced(full.tokens / candidate.cards, ttft=full.ttft, tpot=full.tpot),
        )

    def _second(self, trial: Trial, served: Served) -> float:
        """Return what decides where scores are alike.

        Few requests give the number of replicas by a fraction: the fewest cards come first.
        """
        curve = trial.curve
        if self.goal.demand and curve is not None and curve.shares == QUICK_SHARES:
            return served.spare / served.cards
        return second(self.goal, served)

    def lateness(self, candidate: Candidate, graphs: int) -> float:
        """Return the time of the warm-up as a share of the longest one allowed."""
        most, start = self.goal.most_start, self._start(candidate, graphs)
        if most is None or start is None:
            return 0.0
        return _START_MARGIN * start.high / most

    def _judged(self, trial: Trial, served: Served) -> Trial:
        goal = self.goal
        names = list(missed(goal, served))
        miss = max([1.0, *(over(goal, served, name) for name in names)])
        most = self.case.pool.most_replicas(trial.candidate.world)
        if most is not None and served.replicas > most:
            names.append("cards")
            miss = max(miss, served.replicas / max(most, 0.5))
        late = self.lateness(trial.candidate, trial.graphs)
        if late > 1:
            names.append("start")
            miss = max(miss, late)
        score = objective(goal, served)
        return replace(
            trial,
            served=served,
            score=score,
            second=self._second(trial, served),
            missed=tuple(names),
            miss=miss,
        )


def scaled(targets: Targets, factor: float) -> Targets:
    """Return targets for steps that are simulated ``factor`` times too long."""

    def times(value: float | None) -> float | None:
        if value is None:
            return None
        return value * factor

    return Targets(times(targets.ttft), times(targets.tpot), targets.percentile, times(targets.e2e))


def _numbers(goal: Goal, least: int, most: int | None) -> list[int]:
    """Return the numbers of replicas to compare."""
    if goal.name == "cost" or most is None or most <= least:
        return [least]
    if goal.name in ("throughput", "latency"):
        return [most]
    return sorted({*range(least, min(most, least + _MORE_REPLICAS) + 1), most})


def over(goal: Goal, served: Served, name: str) -> float:
    """Return how many times its target a latency is."""
    most: float = getattr(goal.targets, name)
    value: float = getattr(served, name)
    return value / most


def place(trial: Trial) -> tuple[float, float, float, float]:
    """Return the place of a trial: a smaller one is better."""
    return (trial.miss, trial.candidate.is_last_resort, -alike(trial.score), -trial.second)
