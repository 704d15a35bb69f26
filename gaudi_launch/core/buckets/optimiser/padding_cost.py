"""The cost of a bucket list for a workload, by the engine's look-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gaudi_launch.core.buckets.bucket_list import Bucket, Buckets
from gaudi_launch.core.buckets.ladders import fallback
from gaudi_launch.core.predict.simulator import Shapes, Weighted
from gaudi_launch.core.predict.step_time import StepTime
from gaudi_launch.core.predict.weighted_sum import weighted_sum

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BATCH_STEP, _TOKEN_STEP, _BLOCK_STEP = 2, 32, 32


@dataclass(frozen=True)
class Score:
    """A plan on a workload. Shares of step time: 0.05 is 5 %.

    ``overhead`` = step time with bucket padding over step time without, minus 1. ``outside`` is the
    share of steps without a bucket (each new shape of them compiles while requests wait; that time
    is not in ``overhead``).
    """

    overhead: float
    prompt_overhead: float
    decode_overhead: float
    outside: float


def look_up(buckets: Sequence[Bucket], axis: int, shapes: Weighted) -> NDArray[np.int64]:
    """Return the number of the first bucket, in sorted order, for each shape.

    -1 for none.

    ``axis`` is 1 for prompt buckets (query tokens) and 2 for decode (blocks). Prompt buckets with
    context are left out by the caller.
    vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/extension/bucketing/common.py
    (find_equal_or_closest_greater_config) and 1.22's common.py.
    """
    import numpy as np

    found = np.full(len(shapes), -1, dtype=np.int64)
    table = np.asarray(sorted(buckets), dtype=np.int64).reshape(-1, 3)
    open_ = np.ones(len(shapes), dtype=bool)
    rows, starts = np.unique(table[:, 0], return_index=True)
    for row, start, end in zip(rows, starts, [*starts[1:], len(table)], strict=False):
        sizes = table[start:end, axis]
        fits = np.flatnonzero(open_ & (shapes.batch <= row) & (shapes.size <= sizes[-1]))
        found[fits] = start + np.searchsorted(sizes, shapes.size[fits])
        open_[fits] = False
    return found


def score(buckets: Buckets, shapes: Shapes, cost: StepTime) -> Score:
    """Return the overhead of ``buckets`` on ``shapes``.

    A shape outside is charged for the bucket that 1.22 and vllm-gaudi add for it
    (``core.buckets.ladders.fallback``), without its compilation.
    """
    if len(shapes.continued) or any(bucket[2] for bucket in buckets.prompt):
        prompt_exact, prompt_padded, prompt_out = _prompts(buckets.prompt, shapes, cost)
    else:
        prompt_exact, prompt_padded, prompt_out = _phase(
            list(buckets.prompt), 1, shapes.prompt, cost.prefill, _TOKEN_STEP
        )
    decode_exact, decode_padded, decode_out = _phase(
        list(buckets.decode), 2, shapes.decode, cost.decode, _BLOCK_STEP
    )
    exact = max(prompt_exact + decode_exact, 1e-12)
    steps = float(
        shapes.prompt.weight.sum() + shapes.decode.weight.sum() + shapes.continued.weight.sum()
    )
    return Score(
        (prompt_padded + decode_padded) / exact - 1,
        _overhead(prompt_padded, prompt_exact),
        _overhead(decode_padded, decode_exact),
        (prompt_out + decode_out) / max(steps, 1e-12),
    )


def _overhead(padded: float, exact: float) -> float:
    """Return the share of time that padding adds; 0 of a phase without steps."""
    if not exact:
        return 0.0
    return padded / exact - 1


def _prompts(
    buckets: Sequence[Bucket], shapes: Shapes, cost: StepTime
) -> tuple[float, float, float]:
    """Return (unpadded time, padded time, weight outside) of prompts.

    Those behind a context are included.
    """
    import numpy as np

    from gaudi_launch.core.buckets.lookup import BucketTable

    table = BucketTable(buckets)
    fresh, behind = shapes.prompt, shapes.continued
    batch = np.concatenate([fresh.batch, np.ones(len(behind), dtype=np.int64)])
    query = np.concatenate([fresh.size, behind.query])
    context = np.concatenate([np.zeros(len(fresh), dtype=np.int64), behind.context])
    weight = np.concatenate([fresh.weight, behind.weight])
    numbers = table.find_all(batch, query, context)
    chosen = np.asarray([*table.buckets, [0, 0, 0]], dtype=np.int64)[numbers]
    missing = np.flatnonzero(numbers == len(table.buckets))
    for at in missing:
        shape = (int(batch[at]), int(query[at]), int(context[at]))
        steps = zip(shape, (_BATCH_STEP, _TOKEN_STEP, _BLOCK_STEP), strict=True)
        chosen[at] = [fallback(value, step) if value else 0 for value, step in steps]
    outside = float(weight[missing].sum())
    padded = weighted_sum(weight, cost.in_blocks(chosen[:, 0], chosen[:, 1], chosen[:, 2]))
    return weighted_sum(weight, cost.in_blocks(batch, query, context)), padded, outside


def _phase(
    buckets: list[Bucket], axis: int, shapes: Weighted, time: object, step: int
) -> tuple[float, float, float]:
    """Return (unpadded time, padded time, weight outside) of one phase."""
    import numpy as np

    assert callable(time)
    exact = 0.0
    if len(shapes):
        exact = weighted_sum(shapes.weight, time(shapes.batch, shapes.size))
    if not len(shapes):
        return 0.0, 0.0, 0.0
    table = np.asarray(sorted(buckets), dtype=np.int64).reshape(-1, 3)
    found = look_up(buckets, axis, shapes)
    inside = found >= 0
    padded = weighted_sum(
        shapes.weight[inside], time(table[found[inside], 0], table[found[inside], axis])
    )
    for at in np.flatnonzero(~inside):
        batch, size = (
            fallback(int(shapes.batch[at]), _BATCH_STEP),
            fallback(int(shapes.size[at]), step),
        )
        padded += float(shapes.weight[at] * time(batch, size))
    return exact, padded, float(shapes.weight[~inside].sum())
