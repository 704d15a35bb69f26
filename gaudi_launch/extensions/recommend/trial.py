"""Candidates simulated under the load, by few requests or by all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.predict.balance import balanced
from gaudi_launch.core.predict.evidence import Evidence
from gaudi_launch.core.predict.simulate import Outcome, ServedSetup, most_rate, simulate
from gaudi_launch.core.predict.targets import Targets
from gaudi_launch.extensions.recommend.analytic import Group, kind_of
from gaudi_launch.extensions.recommend.carried import (
    CEILING,
    RESERVE,
    SHARES,
    carried,
    fewest,
    nodes_for,
)
from gaudi_launch.extensions.recommend.goal import Goal, Served, alike, objective, second
from gaudi_launch.extensions.recommend.space import Candidate, SearchCase

# requests of a simulation: to rank by speed or by the number of replicas, and to compare
_QUICK, _COUNTED, _EXACT = 500, 2000, 4000
# a part may be later than all by this factor, where only lengths make a request late
_NEARLY = 1.1
# more replicas than this beyond the fewest only lower a latency that meets its target
_MORE_REPLICAS = 8


@dataclass(frozen=True)
class Trial:
    """A candidate after its simulation.

    ``second`` decides where ``score`` is alike. ``miss`` is by how much the worst target is missed,
    as a factor, and ``missed`` names them: ttft, tpot, e2e, cards, start. ``each`` is the most that
    one virtual engine carries within the targets, as far as known, ``full`` what it serves with any
    latency.
    ``why_not`` is the reason why there is nothing to simulate, ``code`` the exit code where that is
    an error. ``settled``: simulated under the complete load.
    """

    candidate: Candidate
    setup: ServedSetup | None = None
    plan: Plan | None = None
    outcome: Outcome | None = field(default=None, compare=False, repr=False)
    served: Served | None = None
    score: float = -math.inf
    second: float = 0.0
    miss: float = math.inf
    missed: tuple[str, ...] = ()
    each: float = 0.0
    full: float = 0.0
    why_not: Message | None = None
    code: ExitCode | None = None
    settled: bool = False

    @property
    def meets(self) -> bool:
        """Return True if it runs and meets every target."""
        return self.served is not None and not self.missed

    @property
    def is_late(self) -> bool:
        """Return True if it misses the target of a latency."""
        return bool({"ttft", "tpot", "e2e"} & set(self.missed))

    @property
    def graphs(self) -> int:
        """Return the graphs of its warm-up; 0 without a plan or a warm-up."""
        if self.plan is None or self.plan.buckets is None or self.plan.skips_warmup:
            return 0
        return self.plan.buckets.graphs

    @property
    def start(self) -> float:
        """Return the seconds of the longest warm-up by its estimate; 0 without one."""
        if self.plan is None or self.plan.estimate is None:
            return 0.0
        return self.plan.estimate.high_seconds


Planner = Callable[[Candidate], Trial]
"""Returns a candidate with its plan and its setup. Raises LaunchError where it has none."""


class Simulation:
    """Trials of one case and goal."""

    def __init__(self, case: SearchCase, goal: Goal, planner: Planner) -> None:
        self.case = case
        self.goal = goal
        self.planner = planner
        # the most that one of a kind carried, by the requests of its simulation and by any;
        # replicas of which each is idle
        self._near: dict[tuple[Candidate, int | None] | Candidate, float] = {}
        self._idle: dict[Candidate, int] = {}

    def quick(self, candidate: Candidate, group: Group, *, counted: bool = True) -> Trial:
        """Return a trial without a plan, by a part of the requests.

        ``counted`` False: one that needs more cards than the best of its kind is late with those.
        """
        setup = group.setup(candidate)
        if setup is None:
            return Trial(candidate, why_not=message("recommend.no_memory"))
        most = _COUNTED if self.goal.counts_replicas else _QUICK
        return self._served(Trial(candidate, setup), setup, most, counted=counted)

    def exact(self, candidate: Candidate) -> Trial:
        """Return the trial of a candidate by its plan.

        Replicas are counted on the complete trace.
        """
        try:
            made = self.planner(candidate)
        except LaunchError as error:
            if error.exit_code == ExitCode.FAILED:
                raise
            return Trial(candidate, why_not=error.text, code=error.exit_code)
        assert made.setup is not None, "it is planned"
        counts = self.goal.counts_replicas and self.case.load.recorded
        return self._served(made, made.setup, None if counts else _EXACT)

    def settled(self, trial: Trial) -> Trial:
        """Return a planned trial under the complete load."""
        if trial.setup is None or trial.settled:
            return trial
        return self._served(replace(trial, missed=(), miss=math.inf, full=0.0), trial.setup, None)

    def _served(
        self, trial: Trial, setup: ServedSetup, most: int | None, *, counted: bool = True
    ) -> Trial:
        """Return the trial with what its replicas do under the load."""
        load = self.case.load
        if load.recorded and most is not None and most >= len(load.requests):
            most = None
        trial = replace(trial, settled=most is None)
        if self.goal.demand:
            found = self._loaded(trial, setup, most, counted=counted)
        else:
            found = self._unloaded(trial, setup, most)
        if found is None:
            length = setup.limits.max_model_len
            return replace(trial, why_not=message("capacity.takes_none", length=length))
        return found

    def _unloaded(self, trial: Trial, setup: ServedSetup, most: int | None) -> Trial | None:
        """Return what replicas do with as many clients as they serve at once.

        For the goal of the lowest latency the load is one client.
        """
        goal, candidate = self.goal, trial.candidate
        full = simulate(setup, self.case.load.of_clients(candidate.batch), most=most)
        load = full
        if goal.name == "latency":
            load = simulate(setup, self.case.load.of_clients(1), most=most)
        if load is None or full is None:
            return None
        replicas = 1
        if goal.name not in ("latency", "cost"):
            pool = self.case.pool.most_replicas(candidate.world)
            replicas = pool or self.case.pool.cards_per_node // candidate.world
        served = self._of_load(candidate, load, max(1, replicas), full)
        return self._judged(replace(trial, outcome=load), served, self._targets(most))

    def _expected(self, trial: Trial, setup: ServedSetup, most: int | None) -> Trial | None:
        """Return the trial with what it serves at most, and is expected to carry.

        None where the engine accepts no request.
        """
        full = trial.full or most_rate(setup, self.case.load, most and _QUICK)
        if full is None:
            return None
        kind = kind_of(trial.candidate)
        each = self._near.get((kind, most), self._near.get(kind, 0.0))
        trial = replace(trial, full=full, each=each)
        if self.goal.name == "throughput" and (most is not None or self.case.load.recorded):
            # more of the same show no other rate
            return replace(trial, each=self._carried(trial, setup, most))
        return trial

    def _loaded(
        self, given: Trial, setup: ServedSetup, most: int | None, *, counted: bool
    ) -> Trial | None:
        """Return what the best number of replicas does with the given load."""
        goal, engines, kind = self.goal, given.candidate.pipeline, kind_of(given.candidate)
        trial = self._expected(given, setup, most)
        if trial is None:
            return None
        # without a limit of cards as few as are needed
        pool = self.case.pool.most_replicas(trial.candidate.world) or 1
        least, idle = self._bounds(trial, setup, most)
        if goal.name in ("throughput", "latency"):
            # they use all replicas in any case
            least = max(least, pool)
        # candidates share the run of a nearly idle engine
        idle = max(least, self._idle.setdefault(kind, idle))
        known: dict[int, Trial] = {}

        def at(replicas: int) -> Trial:
            if replicas not in known:
                known[replicas] = self._with_replicas(trial, setup, replicas, most)
            return known[replicas]

        near = least
        if trial.each:
            near = min(idle, max(least, math.ceil(goal.demand / (trial.each * engines) - 1e-9)))
        is_known = kind in self._near
        if is_known and not counted and at(near).is_late:
            return at(near)
        looks_late = not is_known or (most is None and at(near).is_late)
        if looks_late and (alone := self._alone(at(idle), most)).is_late:
            return alone
        found = fewest(least, idle, near, lambda replicas: not at(replicas).is_late)
        if found > idle:
            return self._alone(at(idle), most)
        best = max(map(at, _numbers(goal, found, pool)), key=lambda each: each.score)
        for key in ((kind, most), kind):
            self._near[key] = max(best.each, self._near.get(key, 0.0))
        return best

    def _bounds(self, trial: Trial, setup: ServedSetup, most: int | None) -> tuple[int, int]:
        """Return the fewest replicas that serve the load at all, and as many as are idle.

        More clients than requests that run only wait.
        """
        demand = self.goal.demand / trial.candidate.pipeline
        busy, idle = trial.full, SHARES[0] * trial.full
        if self.goal.clients:
            busy, idle = float(setup.limits.max_num_seqs), 1.0
        elif most is None or not self.goal.has_targets:
            busy = CEILING * trial.full
        return max(1, math.ceil(demand / busy - 1e-9)), max(1, math.ceil(demand / idle))

    def _alone(self, idle: Trial, most: int | None) -> Trial:
        """Return the trial of one nearly idle replica: only lengths make it late."""
        outcome = idle.outcome
        assert outcome is not None, "it was simulated"
        served = self._of_load(idle.candidate, outcome, 1, outcome)
        targets = self.goal.targets.times(_NEARLY if most else 1.0)
        return self._judged(replace(idle, each=0.0), served, targets)

    def with_spare(self, trial: Trial) -> Trial:
        """Return the trial with the most that it carries within the targets."""
        if trial.setup is None or trial.served is None or not trial.each:
            return trial
        each = max(trial.each, self._carried(trial, trial.setup, _EXACT))
        spare = max(trial.served.spare, trial.served.tokens * each / trial.each)
        return replace(trial, each=each, served=replace(trial.served, spare=spare))

    def _carried(
        self, trial: Trial, setup: ServedSetup, most: int | None, factor: float = 1.0
    ) -> float:
        """Return what one virtual engine carries within ``factor`` times the targets."""
        targets, clients = self.goal.targets.times(factor), bool(self.goal.clients)
        return carried(setup, self.case.load, targets, clients=clients, most=most, near=trial.each)

    def _with_replicas(
        self, trial: Trial, setup: ServedSetup, replicas: int, most: int | None
    ) -> Trial:
        """Return the trial with this number of replicas."""
        goal, engines = self.goal, trial.candidate.pipeline
        amount = goal.demand / (replicas * engines)
        load = self.case.load
        asked = load.of_clients(max(1, math.ceil(amount - 1e-9)))
        if not goal.clients:
            asked = load.at_rate(amount)
        outcome = simulate(setup, asked, most=most, full=trial.full)
        assert outcome is not None, "an engine that is full takes requests"
        served = self._of_load(trial.candidate, outcome, replicas, outcome)
        each = amount
        if goal.name == "throughput":
            each = max(amount, trial.each)
        served = replace(served, spare=served.tokens * each / amount)
        return self._judged(replace(trial, outcome=outcome, each=each), served, self._targets(most))

    def cards_between(self, trial: Trial, evidence: Evidence | None) -> tuple[int, int] | None:
        """Return the fewest and the most cards within the range of the speed.

        None without a given load or evidence, or where the slowest misses the targets.
        """
        goal = self.goal
        if evidence is None or trial.setup is None or not trial.meets or not goal.demand:
            return None
        assert trial.served is not None, "it meets its targets"
        found: list[int] = []
        world, engines = trial.candidate.world, trial.candidate.pipeline
        for factor in (evidence.high, evidence.low):
            able = self._carried(trial, trial.setup, _EXACT, factor)
            if not able:
                return None
            # slower steps do not change the number of clients, but the rate that a replica carries
            each = able * (1.0 if goal.clients else factor)
            found.append(world * max(1, math.ceil(goal.demand / (each * engines) - 1e-9)))
        cards = world * trial.served.replicas
        return min(found[0], cards), max(found[1], cards)

    def _of_load(self, candidate: Candidate, load: Outcome, replicas: int, full: Outcome) -> Served:
        per_node = self.case.pool.cards_per_node
        # each stage's cards run as many virtual engines as there are stages
        engines = replicas * candidate.pipeline
        percentile = self.goal.targets.percentile
        latencies = (full.ttft.at(percentile), full.tpot.at(percentile))
        return Served(
            replicas=replicas,
            cards=replicas * candidate.world,
            nodes=nodes_for(replicas, candidate.world, per_node),
            ttft=load.ttft.at(percentile),
            tpot=load.tpot.at(percentile),
            e2e=load.e2e.at(percentile),
            tokens=engines * load.tokens,
            spare=engines * full.tokens,
            length=candidate.length,
            balance=balanced(full.tokens / candidate.cards, ttft=latencies[0], tpot=latencies[1]),
        )

    def place(self, trial: Trial) -> tuple[float, ...]:
        """Return the place of a trial: a smaller one is better."""
        rank = self.case.rank(trial.candidate)
        return (trial.miss, *rank, -alike(trial.score), -trial.second, trial.start)

    def lateness(self, seconds: float) -> float:
        """Return the time of a warm-up as a share of the longest one allowed."""
        most = self.goal.most_start
        if most is None:
            return 0.0
        return seconds / most

    def _targets(self, most: int | None) -> Targets:
        """Return the targets of a part of the requests, which none misses that all meet.

        As many requests of a trace may be late as of all of them. Other arrivals of drawn ones move
        a percentile.
        """
        targets, load = self.goal.targets, self.case.load
        if most is None:
            return targets
        if not load.recorded:
            return targets.times(1 + RESERVE)
        late = (100 - targets.percentile) * len(load.requests) / most
        return replace(targets, percentile=max(1.0, 100 - late))

    def _judged(self, trial: Trial, served: Served, targets: Targets) -> Trial:
        goal = self.goal
        names = list(targets.missed(trial.outcome))
        shares = goal.targets.shares(served)
        miss = max([1.0, *map(shares.__getitem__, names)])
        most = self.case.pool.most_replicas(trial.candidate.world)
        if most is not None and served.replicas > most:
            names.append("cards")
            miss = max(miss, served.replicas / max(most, 0.5))
        late = self.lateness(trial.start)
        if late > 1:
            names.append("start")
            miss = max(miss, late)
        return replace(
            trial,
            served=served,
            score=objective(goal, served),
            second=second(goal, served),
            missed=tuple(names),
            # a target that only another seed misses is missed, too
            miss=max(miss, 1.0 + 1e-9) if names else miss,
        )


def _numbers(goal: Goal, least: int, most: int) -> list[int]:
    """Return the numbers of replicas to compare."""
    if goal.name == "cost" or most <= least:
        return [least]
    return sorted({*range(least, min(most, least + _MORE_REPLICAS) + 1), most})


@dataclass(frozen=True)
class Limit:
    """The limit by name, and the parts of the step time as shares of it.

    ``name`` is a part (weights, kv, arithmetic, links, host), "cache" where the KV cache is too
    small for the batch, or "start" where a better one takes too long to warm up.
    """

    name: str
    shares: Mapping[str, float]


def limit_of(case: SearchCase, trial: Trial, others: Sequence[Trial]) -> Limit | None:
    """Return the limit of a trial; None where it does not run."""
    if trial.setup is None or trial.outcome is None:
        return None
    name, limits, load = trial.outcome.bound, trial.setup.limits, case.load
    longest = -(-int(load.mean_input + load.mean_output) // limits.block_size)
    if longest * trial.candidate.batch > limits.num_blocks:
        name = "cache"
    elif any(each.missed == ("start",) and each.score > trial.score for each in others):
        name = "start"
    return Limit(name, trial.outcome.share)
