"""Our own tuning: each difference from the start scripts, with its reason, and what is refused
before a start."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.buckets.coverage import uncovered
from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.registry import find
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host import simulated
from gaudi_launch.models.model import Model
from gaudi_launch.performance.limits import as_limits
from gaudi_launch.planning.engine import Context
from gaudi_launch.planning.plan import Plan, Setting
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model, own_dir, read_document, shipped_dir
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


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22"])
def test_expert_parallelism_for_mixtures_only(engine: str) -> None:
    assert "--enable-expert-parallel" not in plan(DENSE, engine).command.argv
    made = plan(MOE, engine, cards=4)
    found = setting(made, "--enable-expert-parallel")
    assert found is not None
    assert "--enable-expert-parallel" in made.command.argv


def test_a_model_of_which_only_the_name_is_known_says_so() -> None:
    made = plan(Model("hub/x", "x"))
    assert "--enable-expert-parallel" not in made.command.argv
    assert "plan.moe_unknown" in [warning.id for warning in made.warnings]


def test_remote_code_needs_a_need_and_an_agreement() -> None:
    own = replace(DENSE, remote_code=True)
    error = refused(own)
    assert (error.id, error.exit_code) == ("plan.remote_code", ExitCode.MODEL)
    assert "--trust-remote-code" in plan(own, trust_remote_code=True).command.argv
    unneeded = plan(trust_remote_code=True)
    assert "--trust-remote-code" not in unneeded.command.argv
    assert "plan.remote_code_unneeded" in [warning.id for warning in unneeded.warnings]


def test_the_hot_length_is_covered() -> None:
    wishes: dict[str, Any] = {
        "reduce": (8, 24000),
        "input_range": (4, 38000),
        "max_model_len": 40960,
    }
    made = plan(**wishes)
    assert made.buckets is not None
    prompts = sorted(query for _batch, query, _context in made.buckets.prompt)
    assert prompts[-1] >= 40960 and any(query >= 24000 for query in prompts)
    # decode batches 9 to 24, which the scripts leave out, have their buckets too
    assert max(batch for batch, _query, _blocks in made.buckets.decode) >= 32
    # in reference tuning the top bucket that the engine makes of it is 23936 or less
    theirs = plan(**wishes, tuning="reference")
    assert theirs.buckets is not None
    assert max(query for _batch, query, _context in theirs.buckets.prompt) < 24000


@pytest.mark.parametrize(
    ("kv_heads", "cards", "fits"), [(4, 8, True), (4, 2, True), (8, 3, False), (6, 4, False)]
)
def test_kv_heads_divide_or_are_divided(kv_heads: int, cards: int, fits: bool) -> None:
    model = replace(DENSE, heads=24, kv_heads=kv_heads)
    if fits:
        assert plan(model, cards=cards).placement.modules
    else:
        assert refused(model, cards=cards).exit_code == ExitCode.MODEL


def test_heads_that_cards_cannot_share() -> None:
    uneven = refused(replace(DENSE, heads=28), cards=8)
    assert uneven.id == "plan.heads" and "-n 1, -n 2, -n 4." in str(uneven)


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
    ("environment", "extra", "id"),
    [
        ({"VLLM_MERGED_PREFILL": "true"}, (), "plan.merged_prefill"),
        ({"VLLM_CONTIGUOUS_PA": "true"}, ("--enable-prefix-caching",), "plan.contiguous"),
        ({"VLLM_CONTIGUOUS_PA": "1"}, ("--speculative-config", "{}"), "plan.contiguous"),
        ({"VLLM_EXPONENTIAL_BUCKETING": "true"}, (), "plan.exponential"),
    ],
)
def test_conflicts_are_refused_before_a_start(
    environment: dict[str, str], extra: tuple[str, ...], id: str
) -> None:
    error = refused(environment=environment, extra=extra)
    assert (error.id, error.exit_code) == (id, ExitCode.USAGE)


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


def test_prefix_caching_keeps_one_prompt_a_step() -> None:
    wishes: dict[str, Any] = {"input_range": (30, 128), "output_range": (4, 32)}
    made = setting(plan(extra=("--enable-prefix-caching",), **wishes), "--max-num-prefill-seqs")
    assert made is not None and (made.value, made.reason.id) == ("1", "plan.prefill_planned")


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


def test_buckets_of_the_users_own_profile_stand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
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


def test_prefix_caching_turns_contiguous_attention_off() -> None:
    # the engine's parser takes either spelling
    for word in ("--enable-prefix-caching", "--enable_prefix_caching", "--speculative_config={}"):
        assert plan(extra=(word,)).command.env["VLLM_CONTIGUOUS_PA"] == "false"
    assert "VLLM_CONTIGUOUS_PA" not in plan().command.env


def test_booleans_in_the_spelling_that_every_version_reads() -> None:
    made = plan(skip_warmup=True, profile=True)
    assert made.command.env["VLLM_SKIP_WARMUP"] == "true"
    assert made.command.env["VLLM_PROFILER_ENABLED"] == "true"
    assert made.estimate is None


def test_what_nobody_reads_is_left_out() -> None:
    made = plan()
    for name in ("VLLM_EP_SIZE", "VLLM_MAX_SEQ_LEN_TO_CAPTURE", "RAY_IGNORE_UNHANDLED_ERRORS"):
        assert name not in made.command.env
    assert "--use-v2-block-manager" not in made.command.argv


def test_the_length_stays_within_the_model() -> None:
    made = plan(replace(DENSE, max_position_embeddings=4096))
    argv = made.command.argv
    assert argv[argv.index("--max-model-len") + 1] == "4096"
    assert (
        refused(replace(DENSE, max_position_embeddings=4096), max_model_len=8192).id
        == "plan.too_long"
    )


def test_a_stronger_source_wins_and_the_plan_says_what_it_beat() -> None:
    made = plan(environment={"VLLM_GRAPH_RESERVED_MEM": "0.4"})
    found = setting(made, "VLLM_GRAPH_RESERVED_MEM")
    assert found is not None
    assert (found.value, found.source) == ("0.4", "environment")
    assert [(lost.value, lost.source) for lost in found.beaten] == [("0.2", "computed")]


def test_every_setting_has_a_reason_and_every_rule_an_origin() -> None:
    for engine in ("vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1"):
        for tuning in ("auto", "reference"):
            for found in plan(MOE, engine, tuning=tuning, cards=8).settings:
                assert found.reason.render(), found.name
                assert (
                    found.origin or found.source != "computed" or found.reason.id != "plan.script"
                ), found.name


@pytest.mark.parametrize(
    ("engine", "wishes"),
    [
        ("vllm-fork@1.21", {"inc_fp8": True}),
        ("vllm-fork@1.21", {"padding_limit": "0.1"}),
        ("deepseek_r1", {"dtype": "fp8"}),
        ("deepseek_r1", {"profile": True}),
        ("vllm-fork@1.22", {"inc_fp8": True}),
    ],
)
def test_options_that_do_not_apply_are_refused(engine: str, wishes: dict[str, Any]) -> None:
    error = refused(MOE, engine, **wishes)
    assert (error.id, error.exit_code) == ("plan.no_such_option", ExitCode.USAGE)


def test_the_same_question_has_the_same_answer() -> None:
    assert plan(MOE, cards=4) == plan(MOE, cards=4)


def test_an_unknown_engine_is_answered_with_the_known_ones() -> None:
    with pytest.raises(LaunchError) as caught:
        find("vllm-fork@9")
    assert caught.value.exit_code == ExitCode.USAGE
    assert "vllm-fork@1.22" in str(caught.value)


def test_deepseek_listens_where_the_help_says() -> None:
    experts = replace(MOE, heads=128, kv_heads=128)
    made = plan(experts, "deepseek_r1")
    assert made.command.argv[made.command.argv.index("--host") + 1] == "127.0.0.1"
    named = plan(experts, "deepseek_r1", host="10.0.0.5")
    assert named.command.argv[named.command.argv.index("--host") + 1] == "10.0.0.5"


def test_endpoints_without_a_key_stay_off_unless_exported() -> None:
    name = "VLLM_SERVER_DEV_MODE"
    assert name not in plan(engine="vllm-fork@1.22").command.env
    assert plan(engine="vllm-fork@1.22", environment={name: "1"}).command.env[name] == "1"
    assert plan(engine="vllm-fork@1.22", tuning="reference").command.env[name] == "1"


def test_the_engines_own_check_of_the_length_stays_on() -> None:
    name = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
    known = replace(DENSE, max_position_embeddings=4000)
    assert name not in plan(known, "vllm-fork@1.22", max_model_len=3968).command.env
    # in whole blocks -l would be longer than the model
    assert name not in plan(known, "vllm-fork@1.22", max_model_len=4000).command.env
    assert plan(DENSE, "vllm-fork@1.22").command.env[name] == "1"


def test_a_dense_model_on_deepseek_runs_without_expert_parallelism() -> None:
    made = plan(replace(DENSE, heads=32, kv_heads=8), "deepseek_r1")
    at = made.command.argv.index("--enable-expert-parallel")
    assert made.command.argv[at + 1] == ""
    assert (
        "--enable-expert-parallel" not in plan(replace(MOE, kv_heads=8), "deepseek_r1").command.argv
    )


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
