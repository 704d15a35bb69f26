"""A generated workload, and the public traces if they are next to the checkout."""

from __future__ import annotations

import random

from gaudi_launch.core.predict.limits import EngineLimits
from tests.support.places import SHARED

TRACES = SHARED / "traces"


def made_up(count: int = 800, seed: int = 1) -> list[tuple[float, int, int]]:
    """Return poisson arrivals, log-normal lengths."""
    chance = random.Random(seed)
    now = 0.0
    requests = []
    for _ in range(count):
        now += chance.expovariate(4.0)
        requests.append(
            (
                now,
                max(1, int(chance.lognormvariate(6.5, 1.0))) % 6000 + 1,
                int(chance.lognormvariate(4.5, 0.8)) + 1,
            )
        )
    return requests


def limits(**changes: object) -> EngineLimits:
    values: dict[str, object] = {
        "max_num_seqs": 64,
        "max_num_prefill_seqs": 1,
        "max_num_batched_tokens": 8192,
        "max_model_len": 8192,
        "num_blocks": 2000,
        "input_min": 1,
        "input_max": 6144,
        "output_min": 1,
        "output_max": 2048,
    }
    return EngineLimits(**{**values, **changes})  # type: ignore[arg-type]
