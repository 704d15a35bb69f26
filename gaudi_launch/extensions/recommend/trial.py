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
from gaudi_launch.core.predict.simulate import Outcome, ServedSetup, simulate
from gaudi_launch.core.predict.targets import Targets
from gaudi_launch.extensions.recommend.analytic import Group
from gaudi_launch.extensions.recommend.carried import CEILING, Carried, carried, nodes_for
from gaudi_launch.extensions.recommend.goal import Goal, Served, alike, objective, second
from gaudi_launch.extensions.recommend.space import Candidate, SearchCase

# requests of a simulation: to rank, and to compare
_QUICK, _EXACT = 500, 4000
# few requests show less than what one replica carries: a replica less may be enough
_LENIENT = 0.9
# more replicas than this beyond the fewest only lower a latency that meets its target
_MORE_REPLICAS = 8
_MOST_REPLICAS = 10_000_000


@dataclass(frozen=True)
class Trial:
    """A candidate after its simulation.

    ``second`` decides where ``score`` is alike. ``miss`` is by how much the worst target is missed,
    as a factor, and ``missed`` names them: ttft, tpot, e2e, cards, start. ``each`` is the most that
    one virtual engine carries within the targets, ``full`` what it serves with any latency.
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

    def quick(self, candidate: Candidate, group: Group) -> Trial:
        """Return a trial without a plan, by few requests."""
        setup = group.setup(candidate)
        if setup is None:
            return Trial(candidate, why_not=message("recommend.no_memory"))
        return self._served(Trial(candidate, setup), setup, _QUICK)

    def exact(self, candidate: Candidate, near: float = 0.0) -> Trial:
        """Return the trial of a candidate by its plan; ``near``: about what it carries."""
        try:
            made = self.planner(candidate)
        except LaunchError as error:
            if error.exit_code == ExitCode.FAILED:
                raise
            return Trial(candidate, why_not=error.text, code=error.exit_code)
        assert made.setup is not None, "it is planned"
        return self._served(replace(made, each=near), made.setup, _EXACT)

    def settled(self, trial: Trial) -> Trial:
        """Return a planned trial under the complete load."""
        if trial.setup is None or trial.settled:
            return trial
        fresh = replace(trial, missed=(), miss=math.inf, settled=True)
        return self._served(fresh, trial.setup, None)

    def _served(self, trial: Trial, setup: ServedSetup, most: int | None) -> Trial:
        """Return the trial with what its replicas do under the load."""
        if self.goal.demand:
            found = self._loaded(trial, setup, most)
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
        return self._judged(replace(trial, outcome=load), served)

    def _loaded(self, trial: Trial, setup: ServedSetup, most: int | None) -> Trial | None:
        """Return what the best number of replicas does with the given load."""
        goal, candidate = self.goal, trial.candidate
        able = self._carried(trial, setup, most)
        if able is None:
            return None
        if not able.amount:
            # not even idle: what one client sees
            assert able.idle is not None, "its least load was simulated"
            served = self._of_load(candidate, able.idle, 1, able.idle)
            return self._judged(replace(trial, outcome=able.idle), served)
        leniency = _LENIENT if most == _QUICK else 1.0
        each = able.amount * candidate.pipeline
        least = max(1, math.ceil(leniency * goal.demand / each - 1e-9))
        pool = self.case.pool.most_replicas(candidate.world)
        found: Trial | None = None
        for replicas in _numbers(goal, least, pool):
            asked = replace(trial, each=able.amount, full=able.full)
            tried = self._with_replicas(asked, setup, replicas, most, leniency)
            if tried is not None and (found is None or tried.score > found.score):
                found = tried
        if found is None or most is not None:
            return found
        return self._fewest_that_meet(found, setup, pool)

    def _carried(self, trial: Trial, setup: ServedSetup, most: int | None) -> Carried | None:
        """Return the most that one virtual engine carries within the targets."""
        goal, load = self.goal, self.case.load
        if most is None and trial.each and trial.full:
            if not load.recorded:
                # more of the same show no other rate
                return Carried(trial.each, trial.full)
            if goal.name != "throughput" and trial.each < goal.demand:
                # the number of replicas shows it
                return Carried(trial.each, trial.full)
        return carried(
            setup, load, goal.targets, clients=bool(goal.clients), most=most, near=trial.each
        )

    def _with_replicas(
        self,
        trial: Trial,
        setup: ServedSetup,
        replicas: int,
        most: int | None,
        leniency: float = 1.0,
    ) -> Trial | None:
        """Return the trial with this number of replicas."""
        goal, engines = self.goal, trial.candidate.pipeline
        amount = goal.demand / (replicas * engines)
        if leniency < 1:
            # a number that is too small by the leniency misses no target: it may be enough
            amount = min(amount, trial.each)
        load = self.case.load
        asked = load.of_clients(max(1, math.ceil(amount - 1e-9)))
        if not goal.clients:
            asked = load.at_rate(amount)
        outcome = simulate(setup, asked, most=most, full=trial.full)
        if outcome is None:
            return None
        per_request = outcome.tokens / max(outcome.served, 1e-9)
        spare = trial.each * per_request if goal.rate else outcome.tokens * trial.each / amount
        served = self._of_load(trial.candidate, outcome, replicas, outcome)
        served = replace(served, spare=max(served.tokens, replicas * engines * spare))
        found = self._judged(replace(trial, outcome=outcome, missed=(), miss=math.inf), served)
        if most == _QUICK:
            # few requests give the number of replicas by a fraction: the fewest cards come first
            return replace(found, second=served.spare / served.cards)
        return found

    def _fewest_that_meet(self, trial: Trial, setup: ServedSetup, pool: int | None) -> Trial:
        """Return the trial with the fewest replicas that meet the targets.

        On the complete load. Or with the most that there are. Goals that use all replicas in any
        case keep their number.
        """
        goal, engines = self.goal, trial.candidate.pipeline
        assert trial.served is not None, "it was simulated"
        known = {trial.served.replicas: trial}
        first = trial.served.replicas

        def meets(replicas: int) -> bool:
            if replicas not in known:
                known[replicas] = self._with_replicas(trial, setup, replicas, None) or trial
            return not set(known[replicas].missed) & {"ttft", "tpot", "e2e"}

        def is_served(replicas: int) -> bool:
            # beyond it no replica serves its part with any latency
            return goal.demand / (replicas * engines) <= CEILING * trial.full

        fewest = first
        if not meets(first):
            fewest = _fewest_above(first, min(pool or _MOST_REPLICAS, _MOST_REPLICAS), meets)
        elif goal.name in ("throughput", "latency"):
            return trial
        else:
            while fewest > 1 and is_served(fewest - 1) and meets(fewest - 1):
                fewest -= 1
        found = known[fewest]
        if not self.case.load.recorded and fewest == first:
            return found
        least = trial.each if fewest == 1 else 0.0
        return replace(found, each=max(least, goal.demand / (fewest * engines)))

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
            targets = goal.targets.times(factor)
            able = carried(
                trial.setup,
                self.case.load,
                targets,
                clients=bool(goal.clients),
                most=_EXACT,
                near=trial.each,
            )
            if able is None or not able.amount:
                return None
            # slower steps do not change the number of clients, but the rate that a replica carries
            each = able.amount * (1.0 if goal.clients else factor)
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

    def _judged(self, trial: Trial, served: Served) -> Trial:
        goal = self.goal
        names = list(goal.targets.missed(trial.outcome))
        miss = max([1.0, *(over(goal.targets, served, name) for name in names)])
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


def _fewest_above(first: int, most: int, meets: Callable[[int], bool]) -> int:
    """Return the fewest of more than ``first`` that meet; ``most`` where none do.

    By steps that double, then by halves.
    """
    low, high, step = first, first, 1
    while not meets(high) and high < most:
        low, high, step = high, min(most, high + step), 2 * step
    while meets(high) and high - low > 1:
        middle = (low + high) // 2
        if meets(middle):
            high = middle
        else:
            low = middle
    return high


def _numbers(goal: Goal, least: int, most: int | None) -> list[int]:
    """Return the numbers of replicas to compare."""
    if goal.name == "cost" or most is None or most <= least:
        return [least]
    if goal.name in ("throughput", "latency"):
        return [most]
    return sorted({*range(least, min(most, least + _MORE_REPLICAS) + 1), most})


def over(targets: Targets, served: Served, name: str) -> float:
    """Return how many times its target a latency is."""
    most: float = getattr(targets, name)
    value: float = getattr(served, name)
    return value / most


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
