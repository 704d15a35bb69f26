"""Our own tuning: each difference from the start scripts, with its reason, and what is refused
before a start."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.coverage import uncovered
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host import simulated
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.plan import Plan, Setting
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.profiles import own_dir, read_document, shipped_dir
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.predict.limits import as_limits
from tests.support.refusals import failing

HLS2 = simulated.make("hls2")
DENSE = Model(
    "/m/Qwen2-7B", "Qwen2-7B", "config.json", moe=False, heads=28, kv_heads=4, remote_code=False
)
MOE = Model(
    "/m/Qwen3-30B-A3B", "Qwen3-30B-A3B", "config.json", moe=True, experts=128, heads=32, kv_heads=4
)


def plan(
    model: Model = DENSE, engine: str = "vllm-fork@1.21", facts: Any = None, **wishes: Any
) -> Plan:
    request = Request(model=model.path, **wishes)
    installed = Installed("/e/python", engine, {}, facts) if facts is not None else None
    return make_plan(request, HLS2, model, find(engine, installed))


def setting(made: Plan, name: str) -> Setting | None:
    return next((s for s in made.settings if s.name == name), None)


def refused(
    model: Model = DENSE, engine: str = "vllm-fork@1.21", facts: Any = None, **wishes: Any
) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        plan(model, engine, facts, **wishes)
    assert str(caught.value)
    return caught.value


def test_limits_only_where_the_extension_knows_them() -> None:
    names = [
        f"VLLM_{part}_BUCKET_LIMIT"
        for part in ("PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK")
    ]
    known, old = {"bucket_limit": "true"}, {"bucket_limit": "false"}
    asked = plan(DENSE, "vllm-fork@1.22", known, padding_limit="0.1").command.env
    assert [asked.get(name) for name in names] == ["0.1"] * 4
    for facts in (None, old):
        assert not set(names) & set(plan(DENSE, "vllm-fork@1.22", facts).command.env)
    assert refused(DENSE, "vllm-fork@1.22", old, padding_limit="0.1").id == "plan.limit_old"
    assert refused(DENSE, "vllm-fork@1.22", None, padding_limit="0.1").id == "plan.limit_unknown"
    exported = {"VLLM_PROMPT_BS_BUCKET_LIMIT": "0.25"}
    assert refused(DENSE, "vllm-fork@1.22", old, environment=exported).id == "plan.limit_exported"
    assert (
        plan(DENSE, "vllm-fork@1.22", known, environment=exported).command.env[names[0]] == "0.25"
    )


@pytest.mark.parametrize(
    ("engine", "wishes"),
    [
        ("vllm-fork@1.21", {}),
        ("vllm-fork@1.21", {"reduce": (8, 4000)}),
        ("vllm-fork@1.22", {"input_range": (1000, 3000), "output_range": (100, 500)}),
        ("vllm-fork@1.22", {"dtype": "fp8", "extra": ("--enable-prefix-caching",)}),
    ],
)
def test_buckets_are_planned_for_the_blocks_that_the_memory_leaves(
    engine: str, wishes: dict[str, Any]
) -> None:
    made = plan(
        known_model("Qwen/Qwen3-32B", False), engine, {"bucket_limit": "true"}, cards=2, **wishes
    )
    limits = find(engine).limits(
        Request(model="m", **wishes), HLS2, known_model("Qwen/Qwen3-32B", False)
    )
    assert made.buckets is not None and made.num_blocks is not None
    assert made.num_blocks < limits.max_num_seqs * limits.max_model_len / 128
    bounds = as_limits({**asdict(limits), "max_num_prefill_seqs": 1, "num_blocks": made.num_blocks})
    assert uncovered(made.buckets, bounds).shapes == 0
    top = setting(made, "VLLM_DECODE_BLOCK_BUCKET_MAX")
    told = top or setting(made, "VLLM_EXPONENTIAL_BUCKETING")
    assert told is not None and told.reason.values["graphs"] == made.buckets.graphs
    # a larger cache than thought has its buckets too; the exponential list follows the engine's own
    # number
    assert (top is None) == (made.bucket_strategy == "exponential")
    assert top is None or int(top.value or 0) >= bounds.max_num_seqs * bounds.blocks_per_sequence


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1"])
def test_short_prompts_share_a_step_unless_the_user_forbids_it(engine: str) -> None:
    model = MOE if engine == "deepseek_r1" else DENSE
    cards = 8 if engine == "deepseek_r1" else 1
    lengths = {} if engine == "deepseek_r1" else {"input_range": (30, 128), "output_range": (4, 32)}
    wishes: dict[str, Any] = {"max_model_len": 256, "max_num_seqs": 64, "cards": cards, **lengths}
    made = plan(model, engine, **wishes)
    found = setting(made, "--max-num-prefill-seqs")
    assert (
        found is not None
        and found.reason.id == "plan.prompts_several"
        and int(found.value or 0) > 1
    )
    assert made.buckets is not None
    assert max(batch for batch, _, _ in made.buckets.prompt) == int(found.value or 0)
    own = setting(plan(model, engine, max_prefill_seqs=1, **wishes), "--max-num-prefill-seqs")
    assert own is not None and (own.value, own.source) == ("1", "flag")
    question = find(engine).question(
        made.settings, context_of(made, model, engine, wishes), made.num_blocks
    )
    assert question is not None and question.limits.max_num_prefill_seqs == int(found.value or 0)


def context_of(made: Plan, model: Model, engine: str, wishes: dict[str, Any]) -> Context:
    request = Request(model=model.path, **wishes)
    return Context(request, HLS2, model, made.placement, find(engine).limits(request, HLS2, model))


def test_prefix_caching_on_1_22_does_not_warm_up_every_context() -> None:
    """A linear list has each length with each context that fits beside it: 4224 prompt graphs
    for these words."""
    extra = ("--enable-prefix-caching",)
    known = known_model("meta-llama/Llama-3.1-8B-Instruct", False)
    made = plan(known, "vllm-fork@1.22", extra=extra, max_num_seqs=128, max_model_len=16384)
    assert made.buckets is not None and made.bucket_strategy == "exponential"
    assert (len(made.buckets.prompt), made.buckets.graphs < 300) == (120, True)
    assert made.command.env["VLLM_EXPONENTIAL_BUCKETING"] == "true"
    # the ranges that this strategy does not read are not sent
    assert not [name for name in made.command.env if "_BUCKET_" in name]
    short = plan(known, "vllm-fork@1.22", extra=extra, max_num_seqs=7, max_model_len=5000)
    # here the exponential list has holes
    assert short.bucket_strategy.startswith("linear")


def test_buckets_of_the_users_own_profile_stand(own_folders: Path) -> None:
    document = read_document(shipped_dir() / "qwen3-32b.yaml")
    step = {
        "kind": "env",
        "name": "VLLM_PROMPT_SEQ_BUCKET_STEP",
        "value": "1024",
        "engines": ["1.21"],
    }
    own_dir().mkdir(parents=True)
    (own_dir() / "mine.yaml").write_text(
        json.dumps({**document, "settings": [{**step, "source": "tried here"}]}), encoding="utf-8"
    )
    made = plan(known_model("Qwen/Qwen3-32B", False), cards=2)
    assert made.command.env["VLLM_PROMPT_SEQ_BUCKET_STEP"] == "1024"
    assert "plan.own_buckets" in [warning.id for warning in made.warnings]


def test_a_switch_that_the_engine_dies_of_is_told() -> None:
    # vllm-gaudi's word, which 1.22 has under another one: an error in its constructor
    with failing("plan.buckets_fail", ExitCode.USAGE) as caught:
        plan(engine="vllm-fork@1.22", environment={"VLLM_BUCKETING_STRATEGY": "pad"})
    assert "pad is not in allowed options" in str(caught.value)


HOT: dict[str, Any] = {
    "reduce": (8, 24000),
    "input_range": (4, 38000),
    "max_model_len": 40960,
    "max_num_batched_tokens": 40960,
}


def test_every_bucket_of_a_hot_plan_is_compiled() -> None:
    made = plan(**HOT)
    assert "VLLM_SKIP_LAZY_WARMUP" not in made.command.env
    assert made.buckets is not None
    assert max(batch * query for batch, query, _context in made.buckets.prompt) >= 40960


@pytest.mark.parametrize(
    ("extra", "longest"), [((), 8192), (("--max-seq-len-to-capture", "2048"), 2048)]
)
def test_buckets_over_the_capture_length_do_not_count_as_warmed(
    extra: tuple[str, ...], longest: int
) -> None:
    exported = {"VLLM_SKIP_LAZY_WARMUP": "true"}
    made = plan(**HOT, environment=exported, extra=extra)
    assert made.buckets is not None and made.buckets.prompt and made.buckets.decode
    assert max(batch * query for batch, query, _context in made.buckets.prompt) <= longest
    eager = plan(**HOT, environment=exported, extra=("--enforce-eager",))
    assert eager.buckets is not None and eager.buckets.graphs == 0
    # the script's own -r has the variable
    reference = plan(**HOT, tuning="reference")
    assert reference.buckets is not None
    assert max(batch * query for batch, query, _context in reference.buckets.prompt) <= 8192
