"""The cost of a bucket list for a workload, by the engine's look-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.ladders import fallback
from gaudi_launch.core.buckets.lookup import BucketTable
from gaudi_launch.core.predict.simulator import Shapes
from gaudi_launch.core.predict.step_time import StepTime
from gaudi_launch.core.predict.weighted_sum import weighted_sum

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# of an added bucket: batch, tokens, blocks
_ADDED_STEPS = (2, 32, 32)


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


def score(buckets: Buckets, shapes: Shapes, cost: StepTime) -> Score:
    """Return the overhead of ``buckets`` on ``shapes``.

    A shape outside is charged for the bucket that 1.22 and vllm-gaudi add for it
    (``core.buckets.ladders.fallback``), without its compilation.
    """
    import numpy as np

    fresh, behind, decode = shapes.prompt, shapes.continued, shapes.decode
    prompts = (
        np.concatenate([fresh.batch, np.ones_like(behind.query)]),
        np.concatenate([fresh.size, behind.query]),
        np.concatenate([np.zeros_like(fresh.size), behind.context]),
    )
    weight = np.concatenate([fresh.weight, behind.weight])
    prompt_exact, prompt_padded, prompt_out = _phase(
        BucketTable(buckets.prompt), prompts, weight, cost.in_blocks
    )
    decode_exact, decode_padded, decode_out = _phase(
        BucketTable(buckets.decode),
        (decode.batch, np.ones_like(decode.batch), decode.size),
        decode.weight,
        lambda batch, _, blocks: cost.decode(batch, blocks),
    )
    exact = max(prompt_exact + decode_exact, 1e-12)
    steps = float(weight.sum() + decode.weight.sum())
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


def _phase(
    table: BucketTable,
    shapes: Sequence[NDArray[np.int64]],
    weight: NDArray[np.float64],
    time: Callable[[Any, Any, Any], Any],
) -> tuple[float, float, float]:
    """Return (unpadded time, padded time, weight outside) of one phase.

    ``shapes`` are batches, queries and contexts.
    """
    import numpy as np

    numbers = table.find_all(*shapes)
    chosen = table.sizes[numbers]
    missing = np.flatnonzero(numbers == len(table.buckets))
    for at in missing:
        sizes = zip((int(values[at]) for values in shapes), _ADDED_STEPS, strict=True)
        chosen[at] = [fallback(value, step) if value else 0 for value, step in sizes]
    padded = weighted_sum(weight, time(*chosen.T))
    return weighted_sum(weight, time(*shapes)), padded, float(weight[missing].sum())
