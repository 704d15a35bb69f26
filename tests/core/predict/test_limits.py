"""The limits of an engine, and the shapes that they allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.predict.limits import EngineLimits
from tests.support.refusals import refused

LIMITS = EngineLimits(
    max_num_seqs=16,
    max_num_prefill_seqs=8,
    max_num_batched_tokens=1000,
    max_model_len=700,
    num_blocks=90,
    input_min=1,
    input_max=600,
    output_min=1,
    output_max=100,
)


def test_a_range_is_not_backwards() -> None:
    for name in ("input", "output"):
        ends: dict[str, Any] = {f"{name}_min": 9, f"{name}_max": 8}
        with refused("warmup.range_backwards", ExitCode.USAGE, name=name, low=9, high=8):
            replace(LIMITS, **ends)
        assert replace(LIMITS, **{**ends, f"{name}_min": 8})


@pytest.mark.parametrize(
    "name",
    ["max_num_seqs", "max_num_prefill_seqs", "max_num_batched_tokens", "max_model_len",
     "num_blocks", "block_size", "input_min", "output_min"],
)  # fmt: skip
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_below_one_is_refused(name: str, value: int) -> None:
    changed: dict[str, Any] = {name: value}
    with refused("warmup.limit_too_small", ExitCode.USAGE, name=name, found=value):
        replace(LIMITS, **changed)
