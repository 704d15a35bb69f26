"""Plan a bucket list from limits and a workload: full coverage with few graphs."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets import ladders
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.coverage import prove
from gaudi_launch.core.buckets.optimiser import contexts
from gaudi_launch.core.buckets.optimiser import workload_mix as expecting
from gaudi_launch.core.buckets.optimiser.candidates import OptimiserPhase, corners, plan_phase
from gaudi_launch.core.buckets.optimiser.padding_cost import Score, score
from gaudi_launch.core.buckets.optimiser.workload_mix import Expectation, Requests
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import Shapes, Weighted
from gaudi_launch.core.predict.step_time import ONE_CARD_8B, StepTime

# the share of all step time that one graph must save
PRICE_TRACE = 5e-4
# ranges alone give little information, so finer is safer
PRICE_RANGES = 2e-4
# several prompts per step: as fine as this share of the 1.21 script's grid allows
GRID_SHARE = 0.3
# one prompt a step: with this share of the graphs of the padding-aware strategy half of its padding
# is reached
PADDED_SHARE = 1 / 3
FINEST, COARSEST = 1e-7, 1e3
# shapes outside the hot part still count, but little
COLD_WEIGHT = 0.02
_PADDING_PERCENT = 25


@dataclass(frozen=True)
class BucketGoal:
    """A goal of a plan; all None is the default price.

    ``graphs``: at most this number; ``overhead``: at most this share of step time (0.05 is 5 %)
    with the fewest graphs; ``reduce`` (hot batch, hot length in tokens): tight there, coarse
    elsewhere, nothing left out.
    """

    price: float | None = None
    graphs: int | None = None
    overhead: float | None = None
    reduce: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class Aim:
    """The workload and goal of a plan.

    ``floor`` is the least number of graphs of any list without holes. ``expectation`` is the
    complete workload, ``shapes`` those as weighed for the plan (less outside the hot part).
    """

    expectation: Expectation
    shapes: Shapes
    floor: int

    @property
    def traced(self) -> bool:
        """Return True if the workload has more than ranges."""
        return self.expectation.distance is not None

    def price(self, ask: BucketGoal) -> float:
        """Return the share of step time that a graph must save.

        It applies where the goal limits neither graphs nor overhead.
        """
        if ask.price:
            return ask.price
        if self.traced:
            return PRICE_TRACE
        return PRICE_RANGES


@dataclass(frozen=True, eq=False)
class PlannedBuckets:
    """A plan with its aim; ``score`` is on the aim's shapes."""

    buckets: Buckets
    price: float
    score: Score
    aim: Aim


def aim_for(
    limits: EngineLimits,
    workload: Requests | None,
    ask: BucketGoal,
    *,
    cost: StepTime = ONE_CARD_8B,
) -> Aim:
    """Return the aim of a plan for this workload and goal.

    Raises LaunchError (USAGE) for an inconsistent goal.
    """
    if ask.price is not None and not ask.price > 0:
        raise LaunchError("warmup.bad_price", ExitCode.USAGE, found=ask.price)
    if workload is not None:
        workload = sorted(
            (float(time), int(tokens), int(output)) for time, tokens, output in workload
        )
    expected = _expect(workload, limits, cost)
    if ask.reduce:
        shapes = _heat(expected.shapes, limits, ask.reduce)
    else:
        shapes = expected.shapes
    return Aim(expected, shapes, len(corners(limits)) + 1)


def plan(
    limits: EngineLimits,
    workload: Requests | None,
    ask: BucketGoal | None = None,
    *,
    cost: StepTime = ONE_CARD_8B,
) -> PlannedBuckets:
    """Return a plan for a goal, with its score on the expected workload."""
    ask = ask or BucketGoal()
    return solve(limits, aim_for(limits, workload, ask, cost=cost), ask, cost)


def solve(limits: EngineLimits, aim: Aim, ask: BucketGoal, cost: StepTime) -> PlannedBuckets:
    """Return the plan for an aim."""
    solver = _Solver(limits, aim, cost)
    if ask.graphs is not None:
        price = solver.for_graphs(ask.graphs)
    elif ask.overhead is not None:
        price = solver.for_overhead(ask.overhead)
    elif ask.price is not None or not aim.traced or limits.mixed_steps:
        price = aim.price(ask)
    elif limits.prefill_rows > 1:
        price = solver.for_graphs(
            max(aim.floor, int(GRID_SHARE * script_grid(limits))), finest=1e-5
        )
    else:
        price = solver.for_graphs(
            max(aim.floor, int(PADDED_SHARE * padded_grid(limits))), finest=1e-5
        )
    # a price that was searched for has its plan already, and a better one could have other graphs
    # than requested
    found = solver.made.get(price) or solver.at(price, thorough=True)
    prove(found, limits)
    return PlannedBuckets(found, price, score(found, aim.shapes, cost), aim)


class _Solver:
    """Plans of one workload at different prices, each made once."""

    def __init__(self, limits: EngineLimits, aim: Aim, cost: StepTime) -> None:
        self.limits = limits
        self.shapes = aim.shapes
        self.floor = aim.floor
        self.cost = cost
        self.total = max(aim.shapes.milliseconds(cost), 1e-9)
        rows = corners(limits)
        self.prompt = OptimiserPhase(
            limits.prefill_rows, limits.query_top, rows, limits.block_size, cost.prefill
        )
        self.decode = OptimiserPhase(
            limits.max_num_seqs, self._decode_top, (limits.max_num_seqs,), 1, cost.decode
        )
        self.made: dict[float, Buckets] = {}

    def _decode_top(self, batch: int) -> int:
        """Return the top of the last row: the complete cache.

        The engine's way of counting blocks in use makes no difference.
        """
        last = batch == self.limits.max_num_seqs
        if last:
            return max(batch, self.limits.num_blocks)
        return self.limits.block_top(batch)

    def at(self, price: float, thorough: bool = False) -> Buckets:
        if price not in self.made:
            pay = price * self.total
            self.made[price] = Buckets(
                self._prompts(pay, thorough),
                [
                    [batch, 1, size]
                    for batch, size in plan_phase(self.shapes.decode, self.decode, pay, thorough)
                ],
            )
        return self.made[price]

    def _prompts(self, pay: float, thorough: bool) -> list[list[int]]:
        """Return the prompt buckets.

        They have a context dimension where prompts come in parts or behind a cached prefix.
        """
        limits = self.limits
        if not limits.mixed_steps:
            return [
                [batch, size, 0]
                for batch, size in plan_phase(self.shapes.prompt, self.prompt, pay, thorough)
            ]
        found = contexts.plan(self.shapes, limits, self.cost, pay, thorough=thorough)
        if limits.prefill_rows > 1:
            several = plan_phase(self.shapes.prompt, self.prompt, pay, thorough)
            found |= {(batch, size, 0) for batch, size in several}
        return [list(bucket) for bucket in sorted(found)]

    def for_graphs(self, most: int, finest: float = FINEST) -> float:
        """Return the lowest price, down to ``finest``, with at most ``most`` graphs."""
        if most < self.floor:
            raise LaunchError("warmup.too_few_graphs", ExitCode.USAGE, found=most, floor=self.floor)
        return self._cheapest(lambda buckets: buckets.graphs <= most, finest, COARSEST)

    def for_overhead(self, share: float) -> float:
        """Return the highest price whose plan has at most this overhead.

        Raises LaunchError (USAGE) where not even the finest plan has.
        """

        def exceeds(buckets: Buckets) -> bool:
            return score(buckets, self.shapes, self.cost).overhead > share

        if exceeds(self.at(FINEST)):
            best = score(self.at(FINEST), self.shapes, self.cost).overhead
            raise LaunchError(
                "warmup.overhead_too_low",
                ExitCode.USAGE,
                found=f"{100 * share:g}",
                best=f"{100 * best:.2f}",
            )
        self._cheapest(exceeds, FINEST, COARSEST)
        return max((price for price, buckets in self.made.items() if not exceeds(buckets)))

    def _cheapest(self, good: Callable[[Buckets], bool], low: float, high: float) -> float:
        """Return the lowest price found whose plan is ``good``.

        Every price above it is good too.
        """
        if good(self.at(low)):
            return low
        while high / low > 1.1:
            middle = (low * high) ** 0.5
            if good(self.at(middle)):
                high = middle
            else:
                low = middle
        self.at(high)
        return high


def script_grid(limits: EngineLimits) -> int:
    """Return the number of graphs of the 1.21 start script's linear grid.

    Ranges: HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh set_bucketing.
    """
    block, budget = limits.block_size, limits.max_num_batched_tokens
    batches = max(
        1, min(budget // limits.input_min, limits.max_num_seqs, limits.max_num_prefill_seqs)
    )
    longest = (-(-limits.input_max // block) + 1) * block
    shortest = -(-limits.input_min // block) * block
    prompt = sum(
        max(0, (min(longest, budget // batch) - shortest) // block + 1)
        for batch in range(1, batches + 1)
    )
    step = min(-(-limits.max_num_seqs // 16), 16)
    rows = (step - 1).bit_length() + -(-limits.max_num_seqs // step)
    return prompt + rows * -(-limits.num_blocks // block)


def padded_grid(limits: EngineLimits) -> int:
    """Return the number of graphs of vllm-gaudi's padding-aware strategy.

    Contexts are left out.
    vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/extension/bucketing/padding_aware.py, contiguous
    attention.
    """
    block, budget, seqs = limits.block_size, limits.max_num_batched_tokens, limits.max_num_seqs
    blocks = limits.cache_blocks or limits.num_blocks
    prompts = ladders.padded(block, block, budget, math.ceil(budget / 4), _PADDING_PERCENT)
    batches = ladders.padded(1, 2, seqs, math.ceil(seqs / 4), _PADDING_PERCENT)
    held = ladders.padded(block, block, blocks, math.ceil(blocks / 4), _PADDING_PERCENT)
    return len(prompts) + len(batches) * len(held)


def _heat(shapes: Shapes, limits: EngineLimits, reduce: tuple[int, int]) -> Shapes:
    """Return the same shapes with little weight outside the hot batch and length."""
    import numpy as np

    batch, length = reduce
    if batch < 1 or length < 1:
        raise LaunchError("warmup.bad_reduce", ExitCode.USAGE, found=f"{batch},{length}")
    blocks = batch * -(-length // limits.block_size)

    def weigh(part: Weighted, hot: Any) -> Weighted:
        inside, outside = part.weight[hot].sum(), part.weight[~hot].sum()
        cold = 1.0
        if inside and outside:
            cold = COLD_WEIGHT * (inside / outside)
        return replace(part, weight=np.where(hot, part.weight, part.weight * min(cold, 1.0)))

    prompt, decode, behind = shapes.prompt, shapes.decode, shapes.continued
    hot = limits.block_size * behind.context + behind.query <= length
    return Shapes(
        weigh(prompt, (prompt.batch <= batch) & (prompt.size <= length)),
        weigh(decode, (decode.batch <= batch) & (decode.size <= blocks)),
        replace(behind, weight=np.where(hot, behind.weight, behind.weight * COLD_WEIGHT)),
    )


_kept: OrderedDict[tuple[Any, ...], Expectation] = OrderedDict()
_MOST_KEPT = 8


def _expect(workload: Requests | None, limits: EngineLimits, cost: StepTime) -> Expectation:
    """Return `expect`, cached: goals differ, but the simulation does not."""
    key = (limits, cost, None if workload is None else hash(tuple(workload)))
    if key not in _kept:
        _kept[key] = expecting.expect(workload, limits, cost)
        while len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]
