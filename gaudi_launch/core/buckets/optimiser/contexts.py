"""Prompt buckets with a context dimension.

Prompts come in parts, or behind a prefix that is in the cache. A forward pass of one prompt has two
sizes, query and context, and the engine takes the first bucket of its sorted list that is large
enough in both. That is the optimiser's problem of decode (batch and blocks) with other names, so
the same programme solves it: a row is a number of blocks of query, a size the blocks of context.
"""

from __future__ import annotations

from typing import Any

from gaudi_launch.core.buckets.optimiser.candidates import OptimiserPhase, plan_phase
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import Shapes, Weighted, weighted
from gaudi_launch.core.predict.step_time import StepTime

Entry = tuple[int, int, int]
"""(batch, query tokens, context blocks), as in the engine's file."""


def plan(
    shapes: Shapes, limits: EngineLimits, cost: StepTime, price: float, *, thorough: bool
) -> set[Entry]:
    """Return the buckets of one prompt for a price.

    The price is in the unit of weight times time.
    """
    block, longest, most = limits.block_size, limits.longest_query, limits.most_context
    rows = -(-longest // block)

    def query(row: Any) -> Any:
        return row * block

    def time(row: Any, size: Any) -> Any:
        # the programme's sizes begin at 1, which stands for an empty context
        return cost.in_blocks(1, query(row), size - 1)

    # the engine keeps every pair up to the longest query and the longest context, so one bucket
    # covers all
    phase = OptimiserPhase(rows, lambda _: most + 1, (rows,), 1, time)
    found = plan_phase(_cells(shapes, limits), phase, price, thorough)
    return {(1, min(query(row), longest), size - 1) for row, size in found}


def _cells(shapes: Shapes, limits: EngineLimits) -> Weighted:
    """Return prompts by blocks of query and blocks of context plus one."""
    import numpy as np

    block = limits.block_size
    fresh, behind = shapes.prompt, shapes.continued
    single = fresh.batch == 1
    return weighted(
        np.concatenate([-(-fresh.size[single] // block), -(-behind.query // block)]),
        np.concatenate([np.ones(int(single.sum()), dtype=np.int64), behind.context + 1]),
        np.concatenate([fresh.weight[single], behind.weight]),
    )
