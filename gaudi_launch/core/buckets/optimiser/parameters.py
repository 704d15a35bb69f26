"""The best variables for engines that read only (min, step, max[, limit]).

Every ladder of a menu is made with the engine's arithmetic and scored on the expected workload;
only ladders that leave no shape without a bucket are in the menu. Prompt and decode are chosen
separately and joined to meet the goal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets import ladders
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.coverage import uncovered
from gaudi_launch.core.buckets.engine_buckets import engine_buckets
from gaudi_launch.core.buckets.families import EXPONENTIAL_SWITCH, family_named
from gaudi_launch.core.buckets.optimiser.bucket_planner import BucketGoal
from gaudi_launch.core.buckets.optimiser.candidates import corners
from gaudi_launch.core.buckets.script_ranges import variables
from gaudi_launch.core.buckets.strategies import arguments_of
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import Shapes, Weighted, weighted
from gaudi_launch.core.predict.step_time import StepTime
from gaudi_launch.core.predict.weighted_sum import weighted_sum

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Range = tuple[float, ...]
_LIMITS = (0.0, 0.1, 0.15, 0.25, 0.4)
# first value of a ladder of blocks
_MINIMA = (32, 64, 128, 512, 2048)
# a larger grid warms up for hours at any price of a graph; it is not built
_MOST_PLACES = 60_000


@dataclass(frozen=True)
class ParameterChoice:
    """One setting of a phase: (min, step, max[, limit]) by dimension, graphs, time.

    The time is padded.
    """

    ranges: Mapping[str, Range]
    graphs: int
    time: float


def search(
    family: str,
    algorithm: str,
    limits: EngineLimits,
    shapes: Shapes,
    cost: StepTime,
    goal: BucketGoal,
) -> tuple[dict[str, str], Buckets]:
    """Return the variables, and the buckets that the engine builds from them.

    ``algorithm`` is ``linear`` or ``linear-limit``; the goal's ``price`` counts where it bounds
    neither graphs nor overhead. Raises LaunchError (USAGE) when no setting meets the goal, or none
    covers every shape.
    """
    rules = family_named(family)
    limited = algorithm == "linear-limit"
    deep = rules.contexts_by_length and limits.prefix_caching
    # no bucket may have more than the tokens of a step, and a prompt is padded to complete blocks
    tokens = limits.max_num_batched_tokens // limits.block_size * limits.block_size
    whole = replace(limits, max_num_batched_tokens=max(tokens, 1))
    # the last part of a block above the tokens of a step: one shape that no list has
    unreachable = int(whole.longest_query < limits.longest_query)
    prompts = _prompts(whole, shapes.prompt, cost, limited, deep)
    # no ladder of the menu gives a cache below one step: it is used unchanged
    rounds = rules.cuts_cache and (limits.cache_blocks or 0) >= limits.block_size
    decodes = _decodes(limits, shapes.decode, cost, limited, rounds_cache=rounds)
    exact = shapes.milliseconds(cost)
    for prompt, decode in _best(prompts, decodes, exact, goal):
        env = variables({**prompt.ranges, **decode.ranges})
        if "exponential" in rules.models and not rules.linear_default:
            env[EXPONENTIAL_SWITCH] = "false"
        found = engine_buckets(family, algorithm, env, arguments_of(limits))
        if uncovered(found, limits).shapes <= unreachable:
            return env, found
    raise LaunchError("warmup.no_parameters", ExitCode.USAGE)


def _best(
    prompts: list[ParameterChoice], decodes: list[ParameterChoice], exact: float, goal: BucketGoal
) -> list[tuple[ParameterChoice, ParameterChoice]]:
    """Return the pairs in order of preference."""
    pairs = list(product(_front(prompts), _front(decodes)))
    if goal.graphs is not None:
        pairs = [pair for pair in pairs if pair[0].graphs + pair[1].graphs <= (goal.graphs or 0)]
        pairs.sort(key=lambda pair: pair[0].time + pair[1].time)
    elif goal.overhead is not None:
        most = exact * (1 + goal.overhead)
        pairs = [pair for pair in pairs if pair[0].time + pair[1].time <= most]
        pairs.sort(key=lambda pair: pair[0].graphs + pair[1].graphs)
    else:
        pay = (goal.price or 0.0) * exact
        pairs.sort(
            key=lambda pair: pair[0].time + pair[1].time + pay * (pair[0].graphs + pair[1].graphs)
        )
    return pairs


def _front(choices: list[ParameterChoice]) -> list[ParameterChoice]:
    """Return the choices that no other beats in both graphs and time."""
    best: list[ParameterChoice] = []
    for choice in sorted(choices, key=lambda choice: (choice.graphs, choice.time)):
        if not best or choice.time < best[-1].time:
            best.append(choice)
    return best


def _steps(unit: int, top: int) -> list[int]:
    """Return ``unit`` times 1, 2, 3, 4, 6, 8, 12 ..., up to ``top``."""
    values = [unit]
    factor = 2
    while unit * factor <= top:
        values += [unit * factor, unit * factor * 3 // 2]
        factor *= 2
    return [value for value in values if value <= max(top, unit)]


def _ladders(minimum: int, step: int, top: int, limited: bool) -> list[tuple[Range, list[int]]]:
    """Return the ladders of these settings that reach ``top``."""
    if not limited:
        high = -(-top // step) * step
        if minimum <= step:
            return [((minimum, step, high), ladders.linear(minimum, step, high))]
        return []
    return [
        ((minimum, step, top, limit), ladders.limited(minimum, step, top, limit))
        for limit in _LIMITS
        if minimum <= top
    ]


def _prompts(
    limits: EngineLimits, shapes: Weighted, cost: StepTime, limited: bool, deep: bool
) -> list[ParameterChoice]:
    """Return the menu of prompt settings: batch rows and lengths to the longest.

    Batch rows are 1, 2, 3 ... (several prompts) or 1. ``deep``: each length has a bucket for every
    context that fits with it (every_context.py).
    """
    block, top, budget = limits.block_size, limits.longest_query, limits.max_num_batched_tokens
    rows = limits.prefill_rows
    found = []

    def graphs_of(row: int, length: int, longest: int) -> int:
        if not deep:
            return 1
        return min((longest - length) // block + 2, (budget // row - length) // block + 1)

    for batch_step in _steps(1, rows):
        batch_ladder = ladders.linear(1, batch_step, -(-rows // batch_step) * batch_step)
        batches: Range = (1, batch_step, batch_ladder[-1], *((0.0,) if limited else ()))
        for minimum, step in product((block, 4 * block, 16 * block), _steps(block, top)):
            for lengths, ladder in _ladders(minimum, step, top, limited):
                sizes = [size for size in ladder if size <= budget]
                if not sizes or sizes[-1] < top:
                    continue
                grid = [sizes[: bisect_right(sizes, budget // row)] for row in batch_ladder]
                if sum(map(len, grid)) > _MOST_PLACES:
                    continue
                if not _holds_corners(batch_ladder, grid, limits):
                    continue
                longest = int(lengths[2])
                graphs = sum(
                    graphs_of(row, b, longest)
                    for row, held in zip(batch_ladder, grid, strict=True)
                    for b in held
                )
                time = _time(batch_ladder, grid, shapes, cost.prefill)
                found.append(
                    ParameterChoice({"PROMPT_BS": batches, "PROMPT_SEQ": lengths}, graphs, time)
                )
    return found


def _holds_corners(rows: list[int], grid: list[list[int]], limits: EngineLimits) -> bool:
    """Return True if every maximal rectangle of prompts has a bucket.

    The bucket has at least its batch.
    """
    return all(
        any(
            row >= batch and sizes and sizes[-1] >= limits.query_top(batch)
            for row, sizes in zip(rows, grid, strict=True)
        )
        for batch in corners(limits)
    )


def usable_blocks(limits: EngineLimits, step: int) -> int:
    """Return the KV blocks that are left when the cache is cut to complete steps.

    A step is ``step`` blocks. Source:
    HabanaAI/vllm-fork@277a33cd9:vllm/worker/hpu_worker.py:362-363. A cache of unknown size is not
    cut.
    """
    if limits.cache_blocks is None:
        return limits.num_blocks
    return min(limits.cache_blocks // step * step, limits.num_blocks)


def _lost_time(limits: EngineLimits, kept: int, shapes: Weighted, cost: StepTime) -> float:
    """Return the milliseconds that a smaller cache costs.

    When a fraction of the blocks is lost, that fraction of the sequences waits, and the same tokens
    take proportionally more steps, each with its fixed time. Assumed: the load fills the cache.
    """
    lost = 1 - kept / limits.num_blocks
    return float(shapes.weight.sum()) * cost.decode_fixed * lost / (1 - lost)


def _decodes(
    limits: EngineLimits,
    shapes: Weighted,
    cost: StepTime,
    limited: bool,
    *,
    rounds_cache: bool = False,
) -> list[ParameterChoice]:
    """Return the menu of decode settings.

    The block ladder reaches past any KV cache that the model's lengths can fill: the engine cuts it
    at its real number of blocks, which is not known before it starts. ``rounds_cache``: the engine
    cuts the cache to complete steps of blocks, and the cost of that is in the choice's time.
    """
    import numpy as np

    seqs = limits.max_num_seqs
    reach = max(limits.num_blocks, seqs * limits.blocks_per_sequence)
    coarse = weighted(shapes.batch, -(-shapes.size // 8) * 8, shapes.weight)
    found = []
    for batch_low, batch_step in [*((1, step) for step in _steps(1, seqs)), (seqs, seqs)]:
        high = -(-seqs // batch_step) * batch_step
        if limited:
            batches: Range = (batch_low, batch_step, high, 0.0)
            rows = ladders.limited(batch_low, batch_step, high, 0.0)
        else:
            batches = (batch_low, batch_step, high)
            rows = ladders.linear(batch_low, batch_step, high)
        sequences, held = _by_blocks(rows, limits.num_blocks, coarse, cost)
        # short lengths of few sequences have fewer blocks than any of these
        for minimum, step in product(
            sorted({min(each, reach) for each in _MINIMA}), _steps(128, reach)
        ):
            if limited and step > 256:
                continue
            kept = usable_blocks(limits, step) if rounds_cache else limits.num_blocks
            if kept < min(limits.blocks_per_sequence, limits.num_blocks):
                continue  # less than one request of the longest length: the engine would not start
            lost = _lost_time(limits, kept, shapes, cost)
            for blocks, ladder in _ladders(minimum, step, reach, limited):
                sizes = [size for size in ladder if size < kept] + [kept]
                if len(rows) * len(sizes) > _MOST_PLACES or not _reachable(rows, sizes):
                    continue
                table = np.asarray(sizes)
                # a row has no bucket of fewer blocks than sequences
                graphs = len(rows) * len(sizes) - int(np.searchsorted(table, rows).sum())
                padded = weighted_sum(np.diff(held[table], prepend=0.0), table)
                padded += float((held[-1] - held[kept]) * kept)
                time = sequences + cost.decode_block * padded + lost
                found.append(
                    ParameterChoice({"DECODE_BS": batches, "DECODE_BLOCK": blocks}, graphs, time)
                )
    return found


def _by_blocks(
    rows: list[int], most: int, shapes: Weighted, cost: StepTime
) -> tuple[float, Floats]:
    """Return the time of decode shapes padded to these batch rows, without blocks.

    Also return, for each number of blocks to ``most``, the weight of the shapes for which a bucket
    of that size is large enough. A shape larger than all buckets is padded to the largest.
    """
    import numpy as np

    row = np.asarray(rows)[np.searchsorted(rows, shapes.batch)]
    blocks = np.maximum(shapes.size, row)
    row = np.where(blocks > most, rows[-1], row)
    weight = np.bincount(np.minimum(blocks, most), weights=shapes.weight, minlength=most + 1)
    return weighted_sum(shapes.weight, cost.decode(row, 0)), weight.cumsum()


def _reachable(rows: list[int], sizes: list[int]) -> bool:
    """Return the decode rows with the buckets that remain reachable.

    The engines drop buckets with fewer blocks than sequences, but a padded shape may still need
    one. The smallest shape of a row is one sequence more than the row below, one block each.
    """
    below = 0
    for row in rows:
        # more sequences than blocks never run
        size = next((size for size in sizes if size > below), row)
        if size < row:
            return False
        below = row
    return True


def _time(rows: list[int], grid: list[list[int]], shapes: Weighted, time: Any) -> float:
    """Return the padded time of all shapes.

    A shape larger than all rows is padded to the largest bucket.
    """
    import numpy as np

    if not len(shapes):
        return 0.0
    total = 0.0
    left = np.ones(len(shapes), dtype=bool)
    for row, sizes in zip(rows, grid, strict=True):
        if not sizes:
            continue
        fits = np.flatnonzero(left & (shapes.batch <= row) & (shapes.size <= sizes[-1]))
        table = np.asarray(sizes)
        padded = table[np.searchsorted(table, shapes.size[fits])]
        total += weighted_sum(shapes.weight[fits], time(row, padded))
        left[fits] = False
    largest = max((size for sizes in grid for size in sizes), default=1)
    return total + float(shapes.weight[left].sum() * time(rows[-1], largest))
