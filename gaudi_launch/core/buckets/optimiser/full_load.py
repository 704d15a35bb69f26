"""The padding of a bucket list at full load.

The engine serves as many requests as it admits, with lengths within its ranges. A plan prints this
workload's padding: it can be served again, by the real scheduler too, unlike the mixture that
buckets are planned for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache

from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.optimiser.padding_cost import Score, score
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import Shapes, Times, serve
from gaudi_launch.core.predict.step_time import StepTime

# tokens to decode; more say the same and take longer
_TOKENS = 400_000
_ROUNDS = 4
_FEWEST = 24
_SEED = 3


@lru_cache(maxsize=32)
def at_full_load(limits: EngineLimits, cost: StepTime) -> tuple[Shapes, Times]:
    """Return the shapes and times of `range_requests`.

    Pure, and cached by its arguments.
    """
    return serve(range_requests(limits), limits, cost, concurrency=limits.max_num_seqs)


def drawn_length(chance: random.Random, low: int, high: int) -> int:
    """Return a random length: half of them are log-uniform, half uniform."""
    if chance.random() < 0.5:
        return round(math.exp(chance.uniform(math.log(low), math.log(high))))
    return chance.randint(low, high)


def range_requests(limits: EngineLimits) -> list[tuple[float, int, int]]:
    """Return requests for a closed loop of ``max_num_seqs`` clients."""
    chance = random.Random(_SEED)
    found: list[tuple[float, int, int]] = []
    tokens = 0
    for _ in range(max(_FEWEST, _ROUNDS * limits.max_num_seqs)):
        prompt = drawn_length(chance, limits.input_min, limits.input_max)
        output = drawn_length(chance, limits.output_min, limits.output_max)
        found.append((0.0, prompt, output))
        tokens += output
        if tokens > _TOKENS and len(found) >= max(_FEWEST, limits.max_num_seqs):
            break
    return found


def overhead_percent(found: Score | None) -> str:
    """Return an overhead as text in percent; "-" for a list that is not written."""
    if found is None:
        return "-"
    return f"{100 * found.overhead:.1f}"


def padding(
    lists: Sequence[Buckets | None], limits: EngineLimits, cost: StepTime
) -> list[Score | None]:
    """Return the overhead of each list at full load.

    Return None for a list that is not written.
    """
    shapes, _ = at_full_load(limits, cost)
    return [score(buckets, shapes, cost) if buckets is not None else None for buckets in lists]
