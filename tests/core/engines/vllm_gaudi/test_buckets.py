"""vllm-gaudi: the buckets of a plan, as a file of the planner's or by the engine's own
strategies."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.buckets.engine_buckets import engine_buckets
from gaudi_launch.core.buckets.families import CONTEXT_LADDER
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from tests.support.vllm_gaudi_plans import (
    HLS2,
    HYBRID,
    LLAMA,
    plan,
    refused,
    setting,
    value,
    warnings,
)


def test_the_bucket_file_is_the_planners_and_covers_everything() -> None:
    made = plan(max_model_len=8192, max_num_seqs=32)
    path = value(made, "VLLM_BUCKETING_FROM_FILE")
    assert path is not None and re.fullmatch(r"/cache/buckets/buckets-[0-9a-f]{12}\.txt", path)
    assert list(made.command.files) == [path]
    assert made.buckets is not None and made.bucket_strategy == "file"
    again = engine_buckets(
        CONTEXT_LADDER,
        "file",
        {},
        {
            "max_num_seqs": 32,
            "max_num_prefill_seqs": 1,
            "block_size": 128,
            "max_num_batched_tokens": 2048,
            "max_model_len": 8192,
            "num_hpu_blocks": made.num_blocks,
            "bucket_file": made.command.files[path],
        },
    )
    # nothing of the file is dropped or changed by the engine
    lines = [line for line in made.command.files[path].splitlines() if not line.startswith("#")]
    assert again == made.buckets and len(lines) == again.graphs
    assert max(blocks for _, _, blocks in again.decode) == 32 * 64
    assert made.to_json()["files"] == dict(made.command.files)


def test_a_small_cache_bounds_the_decode_range_at_three_times() -> None:
    made = plan(max_model_len=131072, max_num_seqs=128)
    assert made.num_blocks is not None and made.buckets is not None
    top = max(blocks for _, _, blocks in made.buckets.decode)
    assert top == min(3 * made.num_blocks, 128 * 1024)


def test_contiguous_attention_leaves_the_strategy_to_the_engine() -> None:
    made = plan(extra=("--no-enable-prefix-caching",))
    assert value(made, "VLLM_BUCKETING_STRATEGY") == "pad" and not made.command.files
    found = setting(made, "VLLM_BUCKETING_STRATEGY")
    assert found is not None and found.reason.values["graphs"] == (
        made.buckets.graphs if made.buckets else 0
    )
    assert (
        made.buckets is not None
        and max(blocks for _, _, blocks in made.buckets.decode) == made.num_blocks
    )
    assert "gaudi.reduce_left" in warnings(
        plan(extra=("--no-enable-prefix-caching",), reduce=(8, 4000))
    )


def test_inside_ray_serve_the_file_goes_with_the_head() -> None:
    request = Request(
        model=LLAMA.path,
        max_model_len=8192,
        engine="ray-serve:vllm-gaudi",
        files_dir="/cache/buckets",
    )
    made = make_plan(request, HLS2, LLAMA, find("ray-serve:vllm-gaudi"))
    assert list(made.command.files) == [made.command.env["VLLM_BUCKETING_FROM_FILE"]]


def test_where_no_file_can_go_along_the_best_of_the_engines_own_is_taken() -> None:
    request = Request(model=LLAMA.path, max_model_len=8192, max_num_seqs=32)
    made = make_plan(request, HLS2, LLAMA, find("vllm-gaudi"))
    assert value(made, "VLLM_BUCKETING_STRATEGY") == "pad" and not made.command.files
    assert value(made, "VLLM_BUCKETING_FROM_FILE") is None


def test_prompts_in_pieces_may_end_with_any_length() -> None:
    made = plan(max_model_len=16384, input_range=(4000, 8000))
    assert made.buckets is not None
    queries = sorted({query for _, query, _ in made.buckets.prompt})
    assert queries[0] <= 512 and queries[-1] == 2048
    # the blocks in front of the last piece
    assert max(context for _, _, context in made.buckets.prompt) >= (16384 - 1) // 128


def test_hot_lengths_make_a_file_of_their_own() -> None:
    made, whole = plan(reduce=(4, 2000)), plan()
    found = setting(made, "VLLM_BUCKETING_FROM_FILE")
    assert found is not None and found.reason.id == "gaudi.buckets_reduce"
    assert made.command.files != whole.command.files


def test_a_padding_limit_is_the_padding_aware_strategy() -> None:
    made = plan(padding_limit="0.1")
    assert value(made, "VLLM_BUCKETING_STRATEGY") == "pad"
    percents = {s.name: s.value for s in made.settings if s.name.endswith("PAD_PERCENT")}
    assert set(percents.values()) == {"10"} and len(percents) == 5
    assert made.bucket_strategy == "pad"


def test_a_hybrid_model_gets_the_engines_own_strategy() -> None:
    made = plan(HYBRID)
    assert value(made, "VLLM_BUCKETING_STRATEGY") == "exp" and made.bucket_strategy == "exponential"


@pytest.mark.parametrize(
    "environment",
    [
        {"VLLM_BUCKETING_STRATEGY": "lin"},
        {"VLLM_DECODE_BLOCK_BUCKET_MAX": "512", "VLLM_BUCKETING_STRATEGY": "pad"},
    ],
)
def test_exported_buckets_stand(environment: dict[str, str]) -> None:
    made = plan(environment=environment, max_model_len=2048, max_num_seqs=16)
    assert "plan.own_buckets" in warnings(made) and not made.command.files
    for name, text in environment.items():
        found = setting(made, name)
        assert found is not None and (found.value, found.source) == (text, "environment")
    assert value(made, "VLLM_BUCKETING_FROM_FILE") is None
    assert (
        made.bucket_strategy
        == {"lin": "linear", "pad": "pad"}[environment["VLLM_BUCKETING_STRATEGY"]]
    )


def test_an_exported_file_is_read_as_the_engine_reads_it() -> None:
    environment = {"VLLM_BUCKETING_FROM_FILE": "/b.txt"}
    made = plan(environment=environment, bucket_file="(1, [128, 2048], 0)\n(128, 1, 4096)\n")
    assert made.buckets is not None and (len(made.buckets.prompt), len(made.buckets.decode)) == (
        2,
        1,
    )
    assert not made.command.files and value(made, "VLLM_BUCKETING_FROM_FILE") == "/b.txt"
    error = refused(environment=environment, bucket_file="(1, 128\n")
    assert (error.id, error.exit_code) == ("plan.buckets_fail", ExitCode.USAGE)


def test_prompts_of_one_step() -> None:
    assert value(plan(), "VLLM_PROMPT_BS_BUCKET_MAX") == "1"
    made = plan(max_prefill_seqs=4)
    found = setting(made, "VLLM_PROMPT_BS_BUCKET_MAX")
    assert found is not None and (found.value, found.source) == ("4", "flag")
    assert made.buckets is not None and max(batch for batch, _, _ in made.buckets.prompt) == 4
    exported = plan(environment={"VLLM_PROMPT_BS_BUCKET_MAX": "4"})
    assert exported.command.files == made.command.files
    assert refused(environment={"VLLM_PROMPT_BS_BUCKET_MAX": "four"}).id == "plan.number"


def test_short_prompts_share_a_forward_pass_unless_the_user_or_the_model_forbids_it() -> None:
    short: dict[str, Any] = {"input_range": (30, 128), "output_range": (4, 32)}
    made = plan(**short)
    found = setting(made, "VLLM_PROMPT_BS_BUCKET_MAX")
    assert found is not None and (found.reason.id, found.source) == (
        "plan.prompts_several",
        "computed",
    )
    assert made.buckets is not None
    assert max(batch for batch, _, _ in made.buckets.prompt) == int(found.value or 0) > 1
    # a file for that number, which the engine reads
    assert made.buckets == plan(max_prefill_seqs=int(found.value or 0), **short).buckets
    assert value(plan(max_prefill_seqs=1, **short), "VLLM_PROMPT_BS_BUCKET_MAX") == "1"
    assert value(plan(padding_limit="0.25", **short), "VLLM_PROMPT_BS_BUCKET_MAX") == "1"
    assert value(plan(HYBRID, **short), "VLLM_PROMPT_BS_BUCKET_MAX") == "1"
