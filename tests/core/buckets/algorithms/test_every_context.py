"""What stops the engine before it has a bucket."""

from __future__ import annotations

import pytest

from gaudi_launch.core.buckets.bucket_list import BucketError
from gaudi_launch.core.buckets.engine_buckets import engine_buckets
from gaudi_launch.core.buckets.families import EVERY_CONTEXT
from tests.support.bucket_parity import FOUR_PROMPTS


def failure(algorithm: str, env: dict[str, str]) -> str:
    with pytest.raises(BucketError) as raised:
        engine_buckets(EVERY_CONTEXT, algorithm, env, FOUR_PROMPTS)
    return str(raised.value)


@pytest.mark.parametrize("dimension", ["PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK"])
def test_a_range_that_is_no_number_stops_also_where_it_is_not_used(dimension: str) -> None:
    for word in ("MIN", "STEP", "MAX"):
        name = f"VLLM_{dimension}_BUCKET_{word}"
        assert failure("exponential", {name: "x"}) == (
            f"RuntimeError: {name}: exception during construction: "
            "invalid literal for int() with base 10: 'x'"
        )
    limit = f"VLLM_{dimension}_BUCKET_LIMIT"
    assert failure("exponential", {limit: "x"}) == (
        f"RuntimeError: {limit}: exception during construction: could not convert string to float: "
        "'x'"
    )
    # without the padding limit it is a whole number
    assert failure("linear", {limit: "0.25"}).endswith("base 10: '0.25'")


def test_a_ladder_without_values_stops_with_the_values_that_are_left() -> None:
    # HabanaAI/vllm-hpu-extension@051aa0329:vllm_hpu_extension/bucketing/linear.py
    # (generate_prompt_buckets): the lengths are named as their ladder, not as their range
    env = {"VLLM_PROMPT_SEQ_BUCKET_STEP": "-5", "VLLM_PROMPT_SEQ_BUCKET_MAX": "129"}
    assert failure("linear", env) == (
        "ValueError: No buckets could be captured with following config "
        "(min, step, max_warmup): bs:[1, 32, 4], seq:[]"
    )
