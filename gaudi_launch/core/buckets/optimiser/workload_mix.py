"""Expected shapes of a workload: a trace at several rates, mixed with a prior.

The trace alone is not reliable: later traffic comes faster or slower, in other batches. So it is
replayed at several rates, also with its lengths in another order, and blurred a little; and a share
of the prior keeps shapes of the other ranges. The figures here were chosen by withholding later
parts of public traces, one set for all.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from gaudi_launch.core.buckets.optimiser.full_load import drawn_length
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import (
    Continued,
    Shapes,
    Weighted,
    merge,
    merge_continued,
    none_continued,
    serve,
    weighted,
)
from gaudi_launch.core.predict.step_time import ONE_CARD_8B, StepTime
from gaudi_launch.core.predict.weighted_sum import weighted_sum

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Requests = Sequence[tuple[float, int, int]]
"""(arrival seconds, input tokens, output tokens), sorted by time."""

TRACE_SHARE = 0.92
RATES = (0.4, 0.6, 1.0, 1.5, 2.0)
SHUFFLED_RATES = (0.5, 0.8, 1.25, 1.7)
# sizes of half the weight are spread by up to this ratio; prompt batches by BATCH_BLUR
SIZE_BLUR = 0.1
BATCH_BLUR = 0.15
# a longer trace adds little; simulation must stay within a second
MOST_REQUESTS = 20_000
# share of the prior that is simulated; the rest is spread evenly over the logarithms of the shapes
PRIOR_SIMULATED_PROMPT = 0.5
PRIOR_SIMULATED_DECODE = 0.15
# share of the prefill time that is behind a cached prefix, where prompts are kept (assumed: not
# known beforehand)
PRIOR_CACHED = 0.1


@dataclass(frozen=True, eq=False)
class Expectation:
    """The shapes to plan for.

    ``forecast`` are those by which padding is predicted: prompts that share a step are as frequent
    as in the simulation, while a plan also cares for batches that are possible and rare.
    ``distance`` (0 to 1) is how far the trace is from the ranges alone, None without one.
    """

    shapes: Shapes
    forecast: Shapes
    distance: float | None = None


def expect(requests: Requests | None, limits: EngineLimits, cost: StepTime) -> Expectation:
    """Return the shapes to plan for, of the trace and of the prior.

    Their times have the ratio `TRACE_SHARE` : 1 - `TRACE_SHARE`.
    """
    ranges = forecast = prior(limits, cost, limits.prefill_rows)
    if limits.prefill_rows > 1:
        forecast = prior(limits, cost, 1)
    if not requests:
        return Expectation(ranges, forecast)
    seen = replay(requests, limits, cost)
    if not len(seen.prompt):
        return Expectation(ranges, forecast)
    mixed, expected = (
        merge([(TRACE_SHARE, seen), (1 - TRACE_SHARE, each)], cost) for each in (ranges, forecast)
    )
    return Expectation(mixed, expected, distance(seen, ranges, limits, cost))


def replay(requests: Requests, limits: EngineLimits, cost: StepTime) -> Shapes:
    """Return a trace at several rates, in original and random order, blurred.

    The order is that of the lengths.
    """
    if len(requests) > MOST_REQUESTS:
        requests = requests[-MOST_REQUESTS:]
        start = requests[0][0]
        requests = [(time - start, tokens, output) for time, tokens, output in requests]
    lengths = [(tokens, output) for _, tokens, output in requests]
    chance = random.Random(2)
    runs = [serve(requests, limits, cost, rate=rate)[0] for rate in RATES]
    for rate in SHUFFLED_RATES:
        drawn = chance.choices(lengths, k=len(lengths))
        shuffled = [(time, *pair) for (time, _, _), pair in zip(requests, drawn, strict=True)]
        runs.append(serve(shuffled, limits, cost, rate=rate)[0])
    return _blur(merge([(1.0, run) for run in runs], cost), limits)


def prior(limits: EngineLimits, cost: StepTime, rows: int) -> Shapes:
    """Return the shapes that the ranges allow, with prompt batches up to ``rows``.

    Closed loops of growing concurrency with lengths drawn half log-uniform, half uniform, mixed
    with every shape within the ranges, evenly over the logarithms. Both phases get half of the
    time.
    """
    ranges = (limits.input_min, limits.input_max, limits.output_min, limits.output_max)
    runs = [
        (1.0, _closed_loop(_as_used(limits, concurrency, requests), concurrency, requests))
        for concurrency, requests in _closed_loops(limits.max_num_seqs, ranges)
    ]
    loops, even = merge(runs, cost), _even(limits, rows)
    decode = _mix(loops.decode, even.decode, PRIOR_SIMULATED_DECODE, cost.decode)
    if limits.mixed_steps:
        prompt, continued = _mix_prompts(loops, even, limits, cost)
        return Shapes(prompt, decode, continued)
    return Shapes(_mix(loops.prompt, even.prompt, PRIOR_SIMULATED_PROMPT, cost.prefill), decode)


def _as_used(limits: EngineLimits, concurrency: int, requests: Requests) -> EngineLimits:
    """Return the limits without what a closed loop of these clients never reaches.

    Plans of other batches, prompts per step and KV blocks then share its simulation.
    """
    limits = replace(
        limits,
        max_num_seqs=concurrency,
        max_num_prefill_seqs=min(limits.max_num_prefill_seqs, concurrency),
    )
    if not limits.mixed_steps:
        return limits
    block = limits.block_size
    held = sorted(-(-min(sum(each[1:]), limits.max_model_len) // block) for each in requests)
    most = max(sum(held[-concurrency:]), limits.blocks_per_sequence)
    return replace(limits, num_blocks=min(limits.physical_blocks, most), cache_blocks=None)


@lru_cache(maxsize=256)
def _closed_loop(limits: EngineLimits, concurrency: int, requests: Requests) -> Shapes:
    """Return the shapes of a closed loop; nothing arrives by the clock of its steps."""
    return serve(requests, limits, ONE_CARD_8B, concurrency=concurrency)[0]


@lru_cache(maxsize=8)
def _closed_loops(
    most: int, ranges: tuple[int, int, int, int]
) -> tuple[tuple[int, tuple[tuple[float, int, int], ...]], ...]:
    """Return numbers of clients up to ``most``, each with its requests.

    ``ranges`` are the shortest and the longest input, then those of the output. Pure, and cached:
    lists for other numbers of KV blocks are planned for the same requests.
    """
    chance = random.Random(0)
    shortest_input, longest_input, shortest_output, longest_output = ranges
    loops = []
    for concurrency in _doubling(most):
        count = min(1500, max(60, concurrency * 8))
        requests = tuple(
            (
                0.0,
                drawn_length(chance, shortest_input, longest_input),
                drawn_length(chance, shortest_output, longest_output),
            )
            for _ in range(count)
        )
        loops.append((concurrency, requests))
    return tuple(loops)


def _mix_prompts(
    loops: Shapes, even: Shapes, limits: EngineLimits, cost: StepTime
) -> tuple[Weighted, Continued]:
    """Return prompts as simulated and as evenly spread.

    The simulation alone shows how many have a context. A cached prefix is not simulated, so a share
    of the time is spread over all contexts where prompts are kept.
    """
    fresh = weighted_sum(loops.prompt.weight, cost.prefill(loops.prompt.batch, loops.prompt.size))
    behind = loops.continued.milliseconds(cost)
    cached = PRIOR_CACHED if limits.prefix_caching else 0.0
    cut = (1 - cached) * behind / max(fresh + behind, 1e-9)
    prompt = _mix(loops.prompt, even.prompt, PRIOR_SIMULATED_PROMPT, cost.prefill)
    spread = _even_contexts(limits)
    parts = []
    for part, share in ((loops.continued, cut), (spread, cached)):
        total = part.milliseconds(cost)
        if total and share:
            parts.append(replace(part, weight=part.weight * share / total))
    continued = merge_continued(parts) if parts else none_continued()
    return replace(prompt, weight=prompt.weight * (1 - cut - cached)), continued


def _even_contexts(limits: EngineLimits) -> Continued:
    """Return every query behind every context, even over the logarithms.

    Weights are steps.
    """
    import numpy as np

    def geometric(high: int, count: int) -> list[int]:
        # np.unique of this would import numpy.ma, which takes 10 ms
        return sorted({*np.exp(np.linspace(0.0, math.log(high), count)).round().tolist()})

    most = max(1, min(limits.most_context, limits.input_max // limits.block_size))
    longest = min(limits.longest_query, limits.input_max)
    query, context = (
        values.ravel().astype(np.int64)
        for values in np.meshgrid(geometric(max(longest, 2), 40), geometric(most, 24))
    )
    fits = query + limits.block_size * context <= max(limits.input_max, limits.block_size + 1)
    return merge_continued([Continued(query[fits], context[fits], np.ones(int(fits.sum())))])


def distance(one: Shapes, other: Shapes, limits: EngineLimits, cost: StepTime) -> float:
    """Return the total variation of two workloads' step time: 0 same, 1 disjoint.

    It is taken over coarse cells of shape (powers of two).
    """
    import numpy as np

    def cells(shapes: Shapes) -> NDArray[np.float64]:
        side = 24
        counts = np.zeros((2, side * side))
        for number, (part, time) in enumerate(
            ((shapes.prompt, cost.prefill), (shapes.decode, cost.decode))
        ):
            where = np.log2(part.batch).astype(int).clip(0, side - 1) * side + np.log2(
                part.size
            ).astype(int)
            np.add.at(counts[number], where, part.weight * time(part.batch, part.size))
        flat = counts.ravel()
        return flat / max(float(flat.sum()), 1e-12)

    return float(np.abs(cells(one) - cells(other)).sum() / 2)


def _doubling(most: int) -> list[int]:
    values = []
    value = 1
    while value < most:
        values.append(value)
        value *= 2
    return [*values, most]


def _mix(one: Weighted, other: Weighted, share: float, time: object) -> Weighted:
    import numpy as np

    assert callable(time)
    parts = []
    for part, wanted in ((one, share), (other, 1 - share)):
        total = weighted_sum(part.weight, time(part.batch, part.size)) if len(part) else 0.0
        if total:
            parts.append((part, wanted / total))
    return weighted(
        np.concatenate([part.batch for part, _ in parts]),
        np.concatenate([part.size for part, _ in parts]),
        np.concatenate([part.weight * factor for part, factor in parts]),
    )


def _even(limits: EngineLimits, rows: int) -> Shapes:
    """Return every shape within the ranges; weights are steps.

    They are spread evenly over the logarithms of batch and length.
    """
    import numpy as np

    def geometric(low: float, high: float, count: int) -> NDArray[np.float64]:
        return np.exp(np.linspace(math.log(max(low, 1)), math.log(max(high, low, 1)), count))

    block = limits.block_size
    batch, length = (
        values.ravel().round().astype(np.int64)
        for values in np.meshgrid(
            geometric(1, rows, 12),
            geometric(limits.input_min, limits.input_max, 160),
        )
    )
    fits = -(-length // block) * block * batch <= limits.max_num_batched_tokens
    fits |= (batch == 1) & (length <= limits.longest_query)
    prompt = weighted(batch[fits], length[fits], np.ones(int(fits.sum())))
    sequences, each = (
        values.ravel()
        for values in np.meshgrid(
            geometric(1, limits.max_num_seqs, 24),
            geometric(max(limits.input_min / block, 1), limits.blocks_per_sequence, 60),
        )
    )
    sequences = sequences.round().astype(np.int64)
    blocks = np.maximum(sequences, (sequences * each).round().astype(np.int64))
    fits = blocks <= limits.num_blocks
    return Shapes(prompt, weighted(sequences[fits], blocks[fits], np.ones(int(fits.sum()))))


def _blur(shapes: Shapes, limits: EngineLimits) -> Shapes:
    """Return the shapes with half of their weight spread to neighbouring sizes.

    Prompts are also spread to neighbouring batches.
    """
    import numpy as np

    block = limits.block_size

    def tops(part: Weighted, top: Callable[[int], int]) -> NDArray[np.int64]:
        known = {batch: top(batch) for batch in set(part.batch.tolist())}
        return np.maximum(
            part.size, np.array([known[batch] for batch in part.batch.tolist()], dtype=np.int64)
        )

    def sizes(part: Weighted, top: NDArray[np.int64]) -> Weighted:
        steps = np.linspace(-1, 1, 11)[1:-1]
        kernel = (1 - np.abs(steps)) / (1 - np.abs(steps)).sum()
        spread = [
            np.rint(part.size * (1 + step * SIZE_BLUR)).astype(np.int64).clip(1, top)
            for step in steps
        ]
        return weighted(
            np.tile(part.batch, len(steps) + 1),
            np.concatenate([part.size, *spread]),
            np.concatenate([part.weight / 2, *(part.weight / 2 * share for share in kernel)]),
        )

    def batches(part: Weighted) -> Weighted:
        moved = []
        for wanted in (
            np.floor(part.batch * (1 - BATCH_BLUR)),
            np.ceil(part.batch * (1 + BATCH_BLUR)),
        ):
            near = wanted.astype(np.int64).clip(1, limits.prefill_rows)
            fits = near * (-(-part.size // block) * block) <= limits.max_num_batched_tokens
            moved.append(np.where(fits, near, part.batch))
        return weighted(
            np.concatenate([part.batch, *moved]),
            np.tile(part.size, 3),
            np.concatenate([part.weight / 2, part.weight / 4, part.weight / 4]),
        )

    prompt = sizes(shapes.prompt, tops(shapes.prompt, limits.query_top))
    if limits.prefill_rows > 1:
        prompt = batches(prompt)
    decode = sizes(shapes.decode, tops(shapes.decode, limits.block_top))
    return Shapes(prompt, decode, _blur_contexts(shapes.continued, limits))


def _blur_contexts(part: Continued, limits: EngineLimits) -> Continued:
    """Return half of the weight spread to neighbouring contexts."""
    import numpy as np

    if not len(part):
        return part
    steps = np.linspace(-SIZE_BLUR, SIZE_BLUR, 5)
    moved = [
        np.rint(part.context * (1 + step)).astype(np.int64).clip(1, limits.most_context)
        for step in steps
    ]
    spread = [Continued(part.query, context, part.weight / (2 * len(steps))) for context in moved]
    return merge_continued([replace(part, weight=part.weight / 2), *spread])
