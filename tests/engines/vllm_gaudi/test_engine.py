"""vllm-gaudi: what is planned, what is refused, and that upstream vLLM's own parser takes every
argv."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.registry import find
from gaudi_launch.engines.upstream_tasks import task_of
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host import simulated
from gaudi_launch.models.config import model_from_config
from gaudi_launch.models.fp8.quant_config import QuantFile
from gaudi_launch.models.model import Model
from gaudi_launch.planning.engine_args import NO_ARGS
from gaudi_launch.planning.plan import Plan
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from tests.support.cli import golden
from tests.support.every_case import examples
from tests.support.launches import HOSTS, requests
from tests.support.options_table import UPSTREAM, Refused, parse
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

MOE = replace(LLAMA, name="mixture", architecture="Qwen3MoeForCausalLM", moe=True, experts=128)
BERT = replace(
    LLAMA, name="bge-m3", architecture="XLMRobertaModel", model_type="xlm-roberta", heads=16
)
BERT = replace(BERT, max_position_embeddings=514, kv_heads=16)
VISION = replace(LLAMA, architecture="Qwen2_5_VLForConditionalGeneration", multimodal=("vision",))


# --- the options


def test_the_table_refuses_what_upstream_dropped() -> None:
    assert UPSTREAM
    for version in UPSTREAM:
        for words in (
            ["--device", "hpu"],
            ["--num-scheduler-steps", "8"],
            ["--max-num-prefill-seqs", "1"],
        ):
            with pytest.raises(Refused):
                parse(version, ["/m", *words])


MODELS = (
    LLAMA,
    MOE,
    BERT,
    VISION,
    HYBRID,
    Model("/m/unknown", "unknown"),
    replace(LLAMA, quantization="awq"),
)


@pytest.mark.parametrize("version", UPSTREAM)
@settings(max_examples=examples(60, 150), deadline=None)
@given(
    request_=requests,
    model=st.sampled_from(MODELS),
    host=st.sampled_from(sorted(HOSTS)),
    data=st.data(),
)
def test_any_request_makes_an_argv_that_upstream_takes(
    version: str, request_: Request, model: Model, host: str, data: st.DataObject
) -> None:
    asked = (
        "scheduler_steps",
        "no_zero_padding",
        "inc_fp8",
        "max_capture_len",
        "dtype",
        "quant_config",
        "reduce",
    )
    back = data.draw(st.sets(st.sampled_from(asked)))
    blank: dict[str, Any] = {
        name: False if name.startswith(("no_", "inc")) else None for name in back
    }
    folder = data.draw(st.sampled_from(["", "/cache"]))
    request_ = replace(request_, model=model.path, tuning="auto", files_dir=folder, **blank)
    try:
        made = make_plan(request_, HOSTS[host], model, find("vllm-gaudi"))
    except LaunchError as error:
        assert error.exit_code != 0 and str(error)
        return
    assert made.command.argv[1:4] == ("-m", "vllm.entrypoints.cli.main", "serve")
    parsed = parse(version, made.command.argv[4:])
    assert parsed.model_tag == model.path
    assert parsed.tensor_parallel_size == len(made.placement.modules)
    assert all(isinstance(each, str) for each in made.command.env.values())


def test_the_users_words_come_last_and_count() -> None:
    made = plan(extra=("--max-num-seqs", "7"))
    assert parse(UPSTREAM[0], made.command.argv[4:]).max_num_seqs == 7


# --- what is planned


def test_the_lengths_the_card_and_the_mode() -> None:
    made = plan(max_model_len=5000, max_num_seqs=64)
    assert value(made, "--max-model-len") == "5120"
    assert value(made, "--max-num-seqs") == "64"
    assert value(made, "--max-num-batched-tokens") == "2048"
    assert value(made, "HABANA_VISIBLE_MODULES") == "0"
    assert value(made, "PT_HPU_LAZY_MODE") == "0"
    assert value(made, "PT_HPU_ENABLE_EAGER_CACHE") == "true"
    assert value(made, "--distributed-executor-backend") is None
    assert value(made, "--async-scheduling") is None and "--async-scheduling" in made.command.argv
    assert made.engine.version == "0.26.0"
    # stated, because something rests on it, but not sent
    assert setting(made, "--block-size") is not None and "--block-size" not in made.command.argv


def test_lazy_mode_is_the_users_word() -> None:
    made = plan(environment={"PT_HPU_LAZY_MODE": "1"}, cards=2)
    found = setting(made, "PT_HPU_LAZY_MODE")
    assert found is not None and (found.value, found.source) == ("1", "environment")
    assert value(made, "PT_HPU_ENABLE_LAZY_COLLECTIVES") == "true"
    assert value(made, "PT_HPU_ENABLE_EAGER_CACHE") is None


@pytest.mark.parametrize(
    ("model", "cards", "there"), [(MOE, 4, True), (MOE, 1, False), (LLAMA, 4, False)]
)
def test_experts_are_spread_over_cards(model: Model, cards: int, there: bool) -> None:
    assert ("--enable-expert-parallel" in plan(model, cards=cards).command.argv) is there


def test_prefix_caching_or_contiguous_attention() -> None:
    cached = plan()
    assert value(cached, "VLLM_CONTIGUOUS_PA") == "false"
    assert "--no-enable-prefix-caching" not in cached.command.argv
    by_word = plan(extra=("--no-enable-prefix-caching",))
    assert value(by_word, "VLLM_CONTIGUOUS_PA") == "true"
    assert by_word.command.argv.count("--no-enable-prefix-caching") == 1
    by_variable = plan(environment={"VLLM_CONTIGUOUS_PA": "1"})
    assert by_variable.command.argv.count("--no-enable-prefix-caching") == 1
    error = refused(environment={"VLLM_CONTIGUOUS_PA": "true"}, extra=("--enable-prefix-caching",))
    assert (error.id, error.exit_code) == ("gaudi.contiguous", ExitCode.USAGE)


def test_speculation_schedules_as_before() -> None:
    words = ("--speculative-config", '{"method":"ngram","num_speculative_tokens":3}')
    made = plan(extra=words)
    assert "--async-scheduling" not in made.command.argv
    # each decode bucket stands for batch times four tokens as well
    assert (
        made.buckets is not None and made.buckets.graphs > (plan().buckets or made.buckets).graphs
    )


# --- warm-up


def test_what_is_not_warmed_up_is_said() -> None:
    eager = plan(extra=("--enforce-eager",))
    assert (
        eager.buckets is None and eager.estimate is None and "gaudi.eager_cold" in warnings(eager)
    )
    assert not eager.command.files
    pooling = plan(BERT)
    assert pooling.buckets is None and "gaudi.pooling_cold" in warnings(pooling)


# --- tasks


@pytest.mark.parametrize(
    ("config", "name", "task", "words"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "Llama-3.1-8B", "chat", []),
        ({"architectures": ["XLMRobertaModel"]}, "bge-m3", "embed", ["--runner", "pooling"]),
        (
            {"architectures": ["XLMRobertaForSequenceClassification"]},
            "bge-reranker-v2-m3",
            "rerank",
            ["--runner", "pooling"],
        ),
        (
            {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
            "Qwen3-Embedding-8B",
            "embed",
            ["--runner", "pooling", "--convert", "embed"],
        ),
        (
            {"architectures": ["MistralModel"]},
            "e5-mistral-7b-instruct",
            "embed",
            ["--runner", "pooling"],
        ),
        (
            {"architectures": ["Qwen2ForRewardModel"]},
            "Qwen2.5-Math-RM",
            "pool",
            ["--runner", "pooling"],
        ),
        ({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}, "Qwen3-8B", "chat", []),
    ],
)
def test_each_task_has_its_options(
    config: dict[str, Any], name: str, task: str, words: list[str]
) -> None:
    model = model_from_config(f"/m/{name}", config)
    assert task_of(model) == task
    argv = plan(replace(model, remote_code=False)).command.argv
    assert [
        word for word in argv if word in ("--runner", "pooling", "--convert", "embed", "classify")
    ] == words
    assert ("--async-scheduling" in argv) is (task == "chat")


def test_a_language_model_as_reranker_is_told_how() -> None:
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    made = plan(model_from_config("/m/Qwen3-Reranker-4B", config))
    overrides = json.loads(made.args.last("--hf-overrides") or "{}")
    assert overrides["architectures"] == ["Qwen3ForSequenceClassification"]
    assert overrides["classifier_from_token"] == ["no", "yes"]
    assert "gaudi.task_by_name" in warnings(made)
    chat = plan(model_from_config("/m/Qwen3-Reranker-4B", config), extra=("--runner", "generate"))
    assert "--hf-overrides" not in chat.command.argv and chat.buckets is not None


def test_a_text_is_pooled_in_one_step() -> None:
    made = plan(BERT)
    # 514 positions are 512 and two that no token gets
    assert (value(made, "--max-model-len"), value(made, "--max-num-batched-tokens")) == (
        "512",
        "2048",
    )
    assert refused(replace(BERT, max_position_embeddings=8194), max_num_batched_tokens=4096).id == (
        "gaudi.unchunked_tokens"
    )


def test_images_are_limited_so_that_they_are_warmed_up() -> None:
    made = plan(VISION)
    assert json.loads(made.args.last("--limit-mm-per-prompt") or "") == {"image": 8}
    own = plan(VISION, extra=("--limit-mm-per-prompt", '{"image":1}'))
    assert own.command.argv.count("--limit-mm-per-prompt") == 1
    gemma = replace(VISION, model_type="gemma4")
    cold = plan(gemma)
    # 0.26.0 does not read it, main does
    assert value(cold, "VLLM_MM_WARMUP_OUTSIDE_COMPILE_ONLY") is None
    assert "gaudi.vision_cold" in warnings(cold)
    warm = plan(gemma, environment={"VLLM_MULTIMODAL_RESOLUTIONS": "1024x768"})
    assert "gaudi.vision_cold" not in warnings(warm)


# --- types


def test_fp8_by_a_calibration() -> None:
    for made in (
        plan(dtype="fp8", quant_config="/q.json"),
        plan(LLAMA, {"QUANT_CONFIG": "/q.json"}, dtype="fp8"),
    ):
        assert value(made, "QUANT_CONFIG") == "/q.json"
        assert (
            value(made, "--quantization") == "inc" and value(made, "--kv-cache-dtype") == "fp8_inc"
        )
        assert value(made, "--dtype") == "bfloat16"
        # half of bfloat16's 14.96 GiB
        assert made.memory["weights"] == 7.48


def test_fp8_takes_the_file_that_was_found_and_its_cache_type() -> None:
    found = QuantFile("/here/maxabs_quant_g2.json", "calibrated", "auto")
    made = plan(dtype="fp8", quant_file=found)
    assert value(made, "QUANT_CONFIG") == found.path
    assert value(made, "--quantization") == "inc" and value(made, "--kv-cache-dtype") == "auto"
    # what is named wins over what was found
    assert (
        value(plan(dtype="fp8", quant_file=found, quant_config="/q.json"), "QUANT_CONFIG")
        == "/q.json"
    )
    # nothing is there yet: serve refuses, a plan still shows the memory of fp8
    without = plan(dtype="fp8")
    assert value(without, "QUANT_CONFIG") is None
    assert (without.memory["weights"], value(without, "--kv-cache-dtype")) == (7.48, "fp8_inc")


def test_what_torch_compile_does_only_partly_is_said_where_it_is_on() -> None:
    lazy = {"PT_HPU_LAZY_MODE": "1"}
    words = "fp8 by Intel Neural Compressor"
    assert words in str(plan(quant_config="/q.json").warnings)
    assert words not in str(plan(environment=lazy, quant_config="/q.json").warnings)
    assert "image input" in str(plan(VISION).warnings)
    assert "image input" not in str(plan(VISION, lazy).warnings)
    assert warnings(plan()) == []


@pytest.mark.parametrize("kind", ["awq", "gptq"])
def test_quantised_checkpoints_by_the_plugins_kernels(kind: str) -> None:
    made = plan(replace(LLAMA, quantization=kind))
    assert value(made, "--quantization") == f"{kind}_hpu"
    assert refused(dtype=kind).id == "plan.not_quantised"


def test_an_fp8_checkpoint_on_gaudi2_is_rescaled_by_the_plugin() -> None:
    model = replace(LLAMA, quantization="fp8", dtype="bfloat16")
    assert warnings(plan(model, dtype="fp8")) == warnings(plan(LLAMA))
    assert "VLLM_SCALE_ADJUSTMENT" not in plan(model).command.env


def test_a_converted_checkpoint_is_not_scaled_twice() -> None:
    model = replace(LLAMA, quantization="fp8", dtype="bfloat16", converted=True)
    assert plan(model).command.env["VLLM_SCALE_ADJUSTMENT"] == "false"
    gaudi3 = make_plan(
        Request(model=model.path), simulated.make("gaudi3-oam"), model, find("vllm-gaudi")
    )
    assert "VLLM_SCALE_ADJUSTMENT" not in gaudi3.command.env


@pytest.mark.parametrize(
    ("model", "environment", "wishes", "id"),
    [
        (LLAMA, {}, {"tuning": "reference"}, "gaudi.reference"),
        (LLAMA, {}, {"scheduler_steps": 8}, "gaudi.no_option"),
        (LLAMA, {}, {"no_zero_padding": True}, "gaudi.no_option"),
        (LLAMA, {}, {"inc_fp8": True}, "gaudi.no_option"),
        (LLAMA, {}, {"max_capture_len": 4096}, "gaudi.no_option"),
        (replace(LLAMA, quantization="gptq"), {}, {"dtype": "fp8"}, "gaudi.quantised_twice"),
        (LLAMA, {}, {"dtype": "int3"}, "plan.dtype"),
        (LLAMA, {}, {"max_num_batched_tokens": 64, "max_num_seqs": 128}, "gaudi.tokens_below_seqs"),
        (HYBRID, {}, {"max_num_batched_tokens": 9001}, "gaudi.tokens_of_chunks"),
        (LLAMA, {}, {"input_range": (4, 9000), "max_model_len": 8192}, "plan.input_over_length"),
        (LLAMA, {}, {"cards": 3}, "plan.heads"),
        (LLAMA, {}, {"max_model_len": 200_000}, "plan.too_long"),
        (
            replace(LLAMA, quantization="awq"),
            {},
            {"quant_config": "/q.json"},
            "gaudi.quantised_twice",
        ),
        (LLAMA, {"VLLM_DECODE_BS_BUCKET_STEP": "many"}, {}, "plan.buckets_fail"),
    ],
)
def test_what_cannot_be_is_refused(
    model: Model, environment: dict[str, str], wishes: dict[str, Any], id: str
) -> None:
    assert refused(model, environment, **wishes).id == id


KINDS = {"layer_types": ["sliding_attention", "full_attention"] * 16, "sliding_window": 128}


@pytest.mark.parametrize(
    ("config", "seqs", "length"),
    [({}, 256, 32768), (KINDS, 256, 32768), (KINDS, 128, 16384), (KINDS, 300, 8192)],
)
def test_no_planned_bucket_is_larger_than_the_cache(
    config: dict[str, Any], seqs: int, length: int
) -> None:
    model = replace(LLAMA, config=config, layers=32)
    made = plan(model, max_num_seqs=seqs, max_model_len=length)
    assert made.buckets is not None and made.num_blocks is not None
    assert made.bucket_strategy == "file"
    # shared prefixes are referenced by each of the requests
    assert max(context for _, _, context in made.buckets.decode) <= 3 * made.num_blocks


def test_every_setting_has_a_reason_and_every_rule_an_origin() -> None:
    for made in (
        plan(MOE, cards=4),
        plan(BERT),
        plan(VISION),
        plan(quant_config="/q.json"),
        plan(HYBRID),
    ):
        for found in made.settings:
            assert found.reason.render() and found.reason.id != found.reason.render(), found.name
            plain = (
                "plan.flag",
                "plan.placement",
                "gaudi.host",
                "gaudi.port",
                "gaudi.length",
                "gaudi.whole_blocks",
            )
            assert found.origin or found.reason.id in plain, found.name


def test_it_is_the_engine_where_it_is_installed() -> None:
    found = Installed(
        "/e/python", "vllm-gaudi", {"vllm-gaudi": "0.26.0"}, {"plugin": "0.26.0", "vllm": "0.26.0"}
    )
    engine = find("auto", found)
    assert (engine.identity.name, engine.identity.version, engine.identity.python) == (
        "vllm-gaudi",
        "0.26.0",
        "/e/python",
    )
    # by its exact number too, but no other one
    assert find("vllm-gaudi@0.26.0", found).identity.python == "/e/python"
    assert find("vllm-gaudi@0.24.0", found).identity.python is None


# --- the guides


_ALL = {"dtype": "bfloat16", "port": 30001}
_SHORT = {"max_model_len": 8192, "max_num_batched_tokens": 8192, **_ALL}
GUIDES: dict[str, dict[str, Any]] = {
    "2.2 Qwen2-72B-Instruct on four cards": {
        "model": "/models/Qwen2-72B-Instruct",
        "modules": (0, 1, 2, 3),
        "cards": 4,
        "max_num_seqs": 128,
        "input_range": (800, 1024),
        "output_range": (400, 512),
        **_SHORT,
        "cache_dir": "/data/warmup_cache",
    },
    "2.2 QwQ-32B with hot lengths": {
        "model": "/models/QwQ-32B",
        "cards": 8,
        "max_num_seqs": 24,
        "input_range": (4, 38912),
        "output_range": (4, 2048),
        "max_model_len": 40960,
        "max_num_batched_tokens": 40960,
        **_ALL,
        "reduce": (8, 24000),
        "cache_dir": "/data/warmup_cache",
    },
    # -q, its neural compressor switch, is a QUANT_CONFIG here; the converted checkpoint needs none.
    # Its own code is agreed to, which the start script does unasked
    "3.1 DeepSeek-R1-0528-G2 on eight cards": {
        "model": "/data/hf_models/DeepSeek-R1-0528-G2",
        "cards": 8,
        "host": "127.0.0.1",
        "port": 8688,
        "max_num_seqs": 128,
        "max_model_len": 16384,
        "trust_remote_code": True,
        "cache_dir": "/data/warmup_cache",
    },
    "3.2 DeepSeek-R1-Distill-Llama-70B on four cards": {
        "model": "/data/hf_models/DeepSeek-R1-Distill-Llama-70B",
        "cards": 4,
        "modules": (0, 1, 2, 3),
        "max_num_seqs": 128,
        "input_range": (800, 4096),
        "output_range": (800, 2048),
        **_SHORT,
        "cache_dir": "/data/70B_warmup_cache",
    },
    "3.2 DeepSeek-R1-Distill-Qwen-32B on two cards": {
        "model": "/data/hf_models/DeepSeek-R1-Distill-Qwen-32B",
        "cards": 2,
        "modules": (0, 1),
        "max_num_seqs": 32,
        "input_range": (800, 4096),
        "output_range": (800, 2048),
        **_SHORT,
        "cache_dir": "/data/32B_warmup_cache",
    },
    "3.2 DeepSeek-R1-Distill-Llama-8B on one card": {
        "model": "/data/hf_models/DeepSeek-R1-Distill-Llama-8B",
        "cards": 1,
        "modules": (0,),
        "max_num_seqs": 32,
        "input_range": (800, 4096),
        "output_range": (800, 2048),
        **_SHORT,
        "cache_dir": "/data/8B_warmup_cache",
    },
    # the configurations that the 1.16 guide names as validated
    **{
        f"1.16 {name} on {cards}": {
            "model": f"/models/{name}",
            "cards": cards,
            "max_model_len": length,
        }
        for name, cards, length in (
            ("Llama-2-7b-chat-hf", 1, 2048),
            ("Llama-2-70b-chat-hf", 8, 4096),
            ("Mistral-7B-Instruct-v0.3", 2, 8192),
            ("Mixtral-8x7B-Instruct-v0.1", 2, 8192),
        )
    },
}


@pytest.mark.parametrize(
    ("name", "sees"),
    [
        ("Qwen/Qwen2-VL-7B-Instruct", True),
        ("google/gemma-3-27b-it", True),
        ("google/gemma-3-1b-it", False),
        ("OpenGVLab/InternVL3-8B", True),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", True),
        ("meta-llama/Llama-3.1-8B-Instruct", False),
        ("nvidia/Provl-8B", False),
    ],
)
def test_images_are_told_by_the_name_where_there_is_nothing_else(name: str, sees: bool) -> None:
    made = plan(known_model(name, False), cards=2)
    assert (value(made, "--limit-mm-per-prompt") is not None) == sees
    assert ("engines.vision_by_name" in warnings(made)) == sees
    # a model that embeds stays one
    assert value(plan(known_model("x/gme-Qwen2-VL-2B-embedding", False)), "--runner") == "pooling"


def of_guide(wishes: dict[str, Any]) -> Plan:
    request = Request(engine="vllm-gaudi", files_dir="/cache/buckets", **wishes)
    return make_plan(
        request, HLS2, known_model(request.model, must_exist=False), find("vllm-gaudi")
    )


def shown(made: Plan) -> dict[str, Any]:
    """A plan as the golden file keeps it: buckets counted, and their file without the digest of
    its text."""
    document = json.loads(
        re.sub(r"buckets-[0-9a-f]{12}", "buckets-DIGEST", json.dumps(made.to_json()))
    )
    buckets = document["buckets"]
    return {
        "argv": document["argv"],
        "env": document["env"],
        "modules": document["modules"],
        "cpus": document["cpus"],
        "memory": document["memory"],
        "num_blocks": made.num_blocks,
        "buckets": None
        if buckets is None
        else {
            "strategy": buckets["strategy"],
            "prompt": len(buckets["prompt"]),
            "decode": len(buckets["decode"]),
            "largest": [buckets["prompt"][-1], buckets["decode"][-1]],
        },
        "warmup_seconds": (document["estimate"] or {}).get("warmup_seconds"),
        "settings": {s["name"]: f"{s['source']}: {s['reason']}" for s in document["settings"]},
        "warnings": [warning["id"] for warning in document["warnings"]],
    }


@pytest.mark.parametrize("name", GUIDES)
def test_each_guide_command_on_this_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "en")
    made = of_guide(GUIDES[name])
    file = re.sub(r"[^a-z0-9.]+", "-", name.lower())
    golden(f"vllm-gaudi/{file}.json", json.dumps(shown(made), indent=1, ensure_ascii=False) + "\n")
    for version in UPSTREAM:
        assert parse(version, made.command.argv[4:]).model_tag == GUIDES[name]["model"]


@pytest.mark.parametrize(
    ("architecture", "keeps_nothing", "writes"),
    [
        ("BertModel", True, False),
        ("XLMRobertaForSequenceClassification", True, False),
        ("MistralModel", False, False),
        ("LlamaForCausalLM", False, True),
        # the only layers that its class names are those of its vision tower
        ("Ovis", False, True),
    ],
)
def test_encoders_have_no_cache_and_poolers_no_speed(
    architecture: str, keeps_nothing: bool, writes: bool
) -> None:
    engine = find("vllm-gaudi@0.26.0")
    model = Model("m", "m", architecture=architecture)
    assert (engine.pools(model, NO_ARGS), engine.generates(model, NO_ARGS)) == (
        keeps_nothing,
        writes,
    )
