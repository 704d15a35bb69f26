"""Forecasts of candidates by arithmetic, to choose which to simulate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gaudi_launch.core.models.card_memory import CardMemory, ServingDemand, divide_card, serves
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import BLOCK
from gaudi_launch.core.models.stages import stage_of
from gaudi_launch.core.planning.precision import fp8_cache
from gaudi_launch.core.predict.balance import balanced
from gaudi_launch.core.predict.limits import as_limits
from gaudi_launch.core.predict.scaling import Speed, step_time, with_stages
from gaudi_launch.core.predict.simulate import ServedSetup
from gaudi_launch.extensions.recommend.carried import CEILING
from gaudi_launch.extensions.recommend.goal import Goal, Served, alike, objective
from gaudi_launch.extensions.recommend.space import (
    Candidate,
    SearchCase,
    SearchedEngine,
    members,
    samples,
)

# an engine gives at most this share of its free memory to the cache, and keeps some for graphs
_MOST_CACHE, _GRAPHS = 0.95, 0.05
# arithmetic counts no queues, and some of them are shorter than this assumes: a replica less may be
# enough
_LENIENT = 0.8
# lengths to compare where the longest is searched: the longest may fail when it is planned
_LENGTHS = 2


@dataclass(frozen=True)
class Forecast:
    """A candidate with what it does by arithmetic.

    ``miss`` is by how much the worst target is missed, as a factor; 1 where all are met.
    """

    candidate: Candidate
    served: Served
    score: float
    miss: float


@dataclass(frozen=True)
class Group:
    """Candidates with one engine, type of weights, number of cards and length."""

    case: SearchCase
    searched: SearchedEngine
    sample: Candidate

    @cached_property
    def stage(self) -> Model:
        """Return the largest stage of the model, of which each card has a part."""
        return stage_of(self.case.model, self.sample.pipeline)

    @cached_property
    def kv_dtype(self) -> str:
        """Return the type of the KV cache: calibrated fp8 writes its own."""
        if self.sample.kv_dtype:
            return self.sample.kv_dtype
        if self.sample.dtype != "fp8":
            return "auto"
        engine = self.searched.engine.innermost
        return fp8_cache(self.case.model, engine.calibration)

    @cached_property
    def demand(self) -> ServingDemand:
        """Return how the engine divides a card at best, before its plan is drawn up."""
        longest = min(self.case.lengths[0], self.sample.length)
        return ServingDemand(
            max_model_len=self.sample.length,
            max_num_seqs=1,
            max_num_batched_tokens=self.sample.tokens,
            longest_prompt=longest,
            utilization=_MOST_CACHE,
            reserved=_GRAPHS,
            kv_dtype=self.kv_dtype,
            cache=self.searched.engine.innermost.support(self.case.model).cache_rules,
        )

    @cached_property
    def memory(self) -> CardMemory | None:
        """Return a card's memory; None where the model does not fit, or not known to fit."""
        product = self.case.pool.accelerator
        card = product.usable_bytes
        rules = self.searched.engine.innermost.memory_rules({})
        sample = self.sample
        found = divide_card(self.stage, sample.cards, sample.dtype, card, self.demand, rules)
        if found is None or not serves(found, self.demand):
            return None
        return found

    @cached_property
    def computed(self) -> float:
        """Return the mean tokens of a prompt that no prefix cache has."""
        load = self.case.load
        if not (self.sample.prefix_caching and load.shared and self.memory is not None):
            return load.mean_input
        return load.mean_input - load.with_cache(self.memory.tokens).mean_cached

    @cached_property
    def speed(self) -> Speed:
        """Return the step times."""
        sample = self.sample
        scheduling = self.searched.engine.innermost.scheduling
        product = self.case.pool.accelerator
        speed = step_time(
            self.case.model, sample.cards, sample.dtype, product, self.kv_dtype, scheduling
        )
        return with_stages(speed, self.case.model, sample.pipeline)

    def setup(self, candidate: Candidate) -> ServedSetup | None:
        """Return a candidate's setup before its plan is drawn up; None if unfit."""
        demand = replace(
            self.demand, max_num_seqs=candidate.batch, max_num_batched_tokens=candidate.tokens
        )
        product = self.case.pool.accelerator
        rules = self.searched.engine.innermost.memory_rules({})
        found = divide_card(
            self.stage, candidate.cards, candidate.dtype, product.usable_bytes, demand, rules
        )
        if found is None or not found.blocks or not serves(found, demand):
            return None
        mixed = self.searched.is_mixed
        limits = as_limits(
            {
                "max_num_seqs": candidate.batch,
                "max_num_prefill_seqs": candidate.prompts,
                # an engine without chunked prefill reads a prompt in one step
                "max_num_batched_tokens": max(candidate.tokens, 0 if mixed else candidate.length),
                "max_model_len": candidate.length,
                "num_blocks": found.blocks,
                "mixed_steps": mixed,
                "prefix_caching": candidate.prefix_caching,
            }
        )
        return ServedSetup(
            limits, self.speed, candidate.dtype, measured=not candidate.needs_cluster
        )


@dataclass(frozen=True)
class Fitting:
    """Every candidate that fits a card, with the groups of candidates."""

    candidates: tuple[Candidate, ...]
    groups: Mapping[Candidate, Group]

    def group(self, candidate: Candidate) -> Group:
        """Return the group of a candidate."""
        return self.groups[kind_of(candidate)]

    def nearest(self, wanted: Candidate) -> Candidate | None:
        """Return the candidate with the tokens per step nearest below, else the fewest."""
        alike = [each for each in self.candidates if replace(each, tokens=wanted.tokens) == wanted]
        below = [each for each in alike if each.tokens <= wanted.tokens]
        if below:
            return max(below, key=lambda each: each.tokens)
        return min(alike, key=lambda each: each.tokens, default=None)


def kind_of(candidate: Candidate) -> Candidate:
    """Return a candidate that represents its group."""
    return replace(candidate, batch=1, prompts=1, tokens=1, padding="")


def fits(case: SearchCase) -> bool:
    """Return True if a layout of the case has memory for the model."""
    groups = (Group(case, case.engine(sample.engine), sample) for sample in samples(case))
    return any(group.memory is not None for group in groups)


def fitting(case: SearchCase) -> Fitting:
    """Return every candidate that fits a card.

    Of several lengths the longest two of each type and number of cards.
    """
    lengths: dict[Candidate, int] = {}
    found: list[Candidate] = []
    groups: dict[Candidate, Group] = {}
    for sample in samples(case):
        key = replace(kind_of(sample), length=0)
        group = Group(case, case.engine(sample.engine), sample)
        if lengths.get(key, 0) == _LENGTHS or group.memory is None:
            continue
        lengths[key] = lengths.get(key, 0) + 1
        groups[kind_of(sample)] = group
        found += members(case, sample)
    return Fitting(tuple(found), groups)


@dataclass(frozen=True)
class _Cycle:
    """``count`` requests together: seconds of one of them, and of its parts."""

    count: float
    ttft: float
    tpot: float
    e2e: float
    rate: float


class Forecaster:
    """Forecasts of one case, with the cycles that were computed."""

    def __init__(self, case: SearchCase, goal: Goal) -> None:
        self.case = case
        self.goal = goal
        self.input = case.load.mean_input
        self.output = max(2.0, case.load.mean_output)
        self._cycles: dict[tuple[Candidate, float], _Cycle] = {}

    def forecast(self, candidate: Candidate, group: Group) -> Forecast:
        """Return what a candidate does by arithmetic."""
        assert group.memory is not None, "groups without memory are left out"
        inside = min(float(candidate.batch), group.memory.tokens / (self.input + self.output / 2))
        counts = [1.0]
        while counts[-1] < inside:
            counts.append(min(inside, counts[-1] * 2))
        cycles = [self._cycle(candidate, group, count) for count in counts]
        if not self.goal.demand:
            most = cycles[-1]
            if self.goal.name == "latency":
                # one client has the lowest latency
                most = cycles[0]
            return self._judged(candidate, most, cycles[-1], None)
        *_, most = (cycles[0], *(cycle for cycle in cycles if self._miss(cycle) <= 1.0))
        return self._judged(
            candidate, most, replace(most, rate=most.rate * CEILING), self.goal.demand
        )

    def _judged(
        self, candidate: Candidate, cycle: _Cycle, full: _Cycle, demand: float | None
    ) -> Forecast:
        # of all virtual engines of a replica
        rate = full.rate * candidate.pipeline
        most = self.case.pool.most_replicas(candidate.world)
        each = rate
        if self.goal.clients:
            each = cycle.count * candidate.pipeline
        replicas = most or max(1, self.case.pool.cards_per_node // candidate.world)
        per_card = rate * self.output / candidate.world
        # for a given load the most that a card carries decides between equal numbers of cards
        least, balance = 1, per_card
        if demand is None:
            balance = balanced(per_card, ttft=full.ttft, tpot=full.tpot)
        if demand is not None:
            least = max(1, math.ceil(_LENIENT * demand / each))
            if self.goal.name in ("cost", "balanced", "context") or most is None:
                replicas = least
        elif self.goal.name in ("latency", "cost"):
            replicas = 1
        made = replicas * rate * self.output
        served = Served(
            replicas=replicas,
            cards=replicas * candidate.world,
            nodes=1,
            ttft=cycle.ttft,
            tpot=cycle.tpot,
            e2e=cycle.e2e,
            tokens=made,
            spare=made,
            length=candidate.length,
            balance=balance,
        )
        miss = self._miss(cycle)
        if most is not None and least > most:
            miss = max(miss, least / most)
        return Forecast(candidate, served, objective(self.goal, served), miss)

    def _miss(self, cycle: _Cycle) -> float:
        return max([1.0, *self.goal.targets.shares(cycle).values()])

    def _cycle(self, candidate: Candidate, group: Group, count: float) -> _Cycle:
        # requests of a smaller batch have the same cycle
        key = (replace(candidate, batch=1), count)
        if key not in self._cycles:
            self._cycles[key] = self._computed(candidate, group, count)
        return self._cycles[key]

    def _computed(self, candidate: Candidate, group: Group, count: float) -> _Cycle:
        cost = group.speed.cost
        computed = group.computed
        prompts = max(1.0, min(candidate.prompts, candidate.tokens / computed, count))
        steps = max(1.0, -(-computed // candidate.tokens))
        # the parts of a long prompt each have the fixed time of a step
        first = (cost.prefill(prompts, computed) + (steps - 1) * cost.prefill_fixed) / 1000
        blocks = count * ((self.input + self.output / 2) // BLOCK + 1)
        decode = float(cost.decode(count, blocks)) / 1000
        e2e = float(first) * count / prompts + decode * (self.output - 1) + decode
        ttft = min(e2e, float(first) + decode)
        tpot = (e2e - ttft) / (self.output - 1)
        return _Cycle(count, ttft, tpot, e2e, count / e2e)


def survivors(forecasts: Sequence[Forecast], most: int, each: int) -> list[Forecast]:
    """Return the best forecasts, ``most`` in all and ``each`` of every kind.

    A kind is a type of weights and a number of cards; all layouts with stages are one.

    Those that meet the targets come first, then those that miss them least.
    """
    ranked = sorted(forecasts, key=rank)
    chosen = dict.fromkeys(ranked[:most])
    count: dict[tuple[str, int], int] = {}
    for forecast in ranked:
        candidate = forecast.candidate
        key = (candidate.dtype, candidate.cards * (candidate.pipeline == 1))
        count[key] = count.get(key, 0) + 1
        if count[key] <= each:
            chosen[forecast] = None
    return list(chosen)


def rank(forecast: Forecast) -> tuple[float, float, float]:
    """Return the place of a forecast: a smaller one is better."""
    return (max(1.0, forecast.miss), -alike(forecast.score), -forecast.served.balance)
