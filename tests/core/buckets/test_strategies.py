"""The strategies of an engine, and how each is judged."""

from __future__ import annotations

import numpy as np

from gaudi_launch.core.buckets.families import CONTEXT_LADDER, PLAIN_GRID
from gaudi_launch.core.buckets.strategies import Judged, Strategy, judge, script_ranges, strategies
from gaudi_launch.core.predict.simulator import Shapes, weighted
from gaudi_launch.core.predict.step_time import ONE_CARD_8B
from tests.support.traces import limits

BOUNDS = limits()


def judged(family: str, env: dict[str, str], **changes: object) -> Judged:
    """Return the linear strategy of an engine, scored on one prompt and one decode step."""
    one = weighted(np.asarray([1]), np.asarray([200]), np.asarray([1.0]))
    bounds, shapes = limits(**changes), Shapes(one, one)
    return judge(family, Strategy("name", "linear", env), bounds, shapes, ONE_CARD_8B)


def test_a_list_that_is_too_long_is_counted_only() -> None:
    many = {"max_model_len": 65_536, "max_num_batched_tokens": 65_536, "max_num_prefill_seqs": 4}
    found = judged(CONTEXT_LADDER, {}, **many)
    assert found == Judged("name", 544_730, 536, None, None, None)


def test_the_failure_of_an_engine_is_an_answer() -> None:
    for name in ("PROMPT", "DECODE"):
        found = judged(PLAIN_GRID, {f"VLLM_{name}_BS_BUCKET_MIN": "0"})
        why = "hang: a bucket minimum of 0 never reaches the step 32 by doubling"
        assert found == Judged("name", 0, 0, None, None, None, why)


def test_a_family_without_a_script_has_the_variables_of_the_limits() -> None:
    assert script_ranges(CONTEXT_LADDER, BOUNDS) == {}
    names = ("exponential", "pad", "linear")
    assert strategies(CONTEXT_LADDER, BOUNDS, (8, 1000)) == [
        Strategy(name, name, {}) for name in names
    ]
    env = {"VLLM_CONTIGUOUS_PA": "true"}
    assert strategies(CONTEXT_LADDER, limits(contiguous_pa=True)) == [
        Strategy(name, name, env) for name in names
    ]
