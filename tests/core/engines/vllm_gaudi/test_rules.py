"""The plugin's settings, compared as one: sources, reasons, proofs, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.engines.vllm_gaudi.rules import cache_arguments
from gaudi_launch.core.models.fp8.quant_config import QuantFile
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.known_model import known_model
from tests.support.cli import golden
from tests.support.options_table import UPSTREAM, parse
from tests.support.vllm_gaudi_plans import HLS2, HYBRID, LLAMA, plan
from tests.support.whole_plans import Case, by_engine, whole_plans

PLUGIN = "vllm-gaudi"
SHORT = {"max_model_len": 2048, "max_num_seqs": 8, "max_num_batched_tokens": 2048}
MIXTURE = replace(LLAMA, moe=True, experts=128, model_type="qwen3_moe", remote_code=True)
SEES = replace(LLAMA, multimodal=("vision",), model_type="gemma4")
EMBEDS = replace(LLAMA, name="Qwen3-Embedding-8B", model_type="qwen3")
RANKS = replace(LLAMA, name="Qwen3-Reranker-8B", model_type="qwen3")
FOUND = QuantFile("/here/quant.json", "calibrated", "auto")
SHIPPED = QuantFile("/here/quant.json", "profile")
SWITCHES = {"skip_warmup": True, "profile": True, "no_fused_sdpa": True}
LAZY = {"PT_HPU_LAZY_MODE": "1", "VLLM_RPC_TIMEOUT": "5"}
BUCKET_FILE = "(1, 128, 0)\n(8, 1, 128)\n"
OWN_FILE = {"VLLM_BUCKETING_FROM_FILE": "/b/buckets.txt"}
ADDRESS = {"host": "0.0.0.0", "port": 9000, "served_name": "chat", "trust_remote_code": True}

ENCODER = replace(
    LLAMA,
    name="bge-m3",
    architecture="XLMRobertaModel",
    model_type="xlm-roberta",
    max_position_embeddings=514,
    heads=16,
    kv_heads=16,
)
WIDE = {"max_num_batched_tokens": 4096}
POOLING = [
    replace(ENCODER, name="bge-reranker", architecture="XLMRobertaForSequenceClassification"),
    replace(LLAMA, name="e5-mistral-7b-instruct", architecture="MistralModel"),
    replace(LLAMA, name="Qwen2.5-Math-RM", architecture="Qwen2ForRewardModel"),
    RANKS,
]
REFUSED = {
    "tuning": "reference",
    "scheduler_steps": 8,
    "no_zero_padding": True,
    "inc_fp8": True,
    "dtype": "int3",
    "cards": 3,
    "max_model_len": 200_000,
}

_ALL = {"dtype": "bfloat16", "port": 30001}
_SHORT = {"max_model_len": 8192, "max_num_batched_tokens": 8192, **_ALL}
GUIDES: dict[str, tuple[str, dict[str, Any]]] = {
    "2.2 Qwen2-72B-Instruct on four cards": (
        "/models/Qwen2-72B-Instruct",
        {
            "modules": (0, 1, 2, 3),
            "cards": 4,
            "max_num_seqs": 128,
            "input_range": (800, 1024),
            "output_range": (400, 512),
            **_SHORT,
            "cache_dir": "/data/warmup_cache",
        },
    ),
    "2.2 QwQ-32B with hot lengths": (
        "/models/QwQ-32B",
        {
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
    ),
    # -q, its neural compressor switch, is a QUANT_CONFIG here; the converted checkpoint needs none.
    # Its own code is agreed to, which the start script does unasked
    "3.1 DeepSeek-R1-0528-G2 on eight cards": (
        "/data/hf_models/DeepSeek-R1-0528-G2",
        {
            "cards": 8,
            "host": "127.0.0.1",
            "port": 8688,
            "max_num_seqs": 128,
            "max_model_len": 16384,
            "trust_remote_code": True,
            "cache_dir": "/data/warmup_cache",
        },
    ),
    **{
        f"3.2 DeepSeek-R1-Distill-{name} on {words}": (
            f"/data/hf_models/DeepSeek-R1-Distill-{name}",
            {
                "cards": cards,
                "modules": tuple(range(cards)),
                "max_num_seqs": seqs,
                "input_range": (800, 4096),
                "output_range": (800, 2048),
                **_SHORT,
                "cache_dir": f"/data/{name.rpartition('-')[2]}_warmup_cache",
            },
        )
        for name, words, cards, seqs in (
            ("Llama-70B", "four cards", 4, 128),
            ("Qwen-32B", "two cards", 2, 32),
            ("Llama-8B", "one card", 1, 32),
        )
    },
    # the configurations that the 1.16 guide names as validated
    **{
        f"1.16 {name} on {cards}": (f"/models/{name}", {"cards": cards, "max_model_len": length})
        for name, cards, length in (
            ("Llama-2-7b-chat-hf", 1, 2048),
            ("Llama-2-70b-chat-hf", 8, 4096),
            ("Mistral-7B-Instruct-v0.3", 2, 8192),
            ("Mixtral-8x7B-Instruct-v0.1", 2, 8192),
        )
    },
}

CASES = [
    Case("dense", PLUGIN, LLAMA, SHORT),
    Case("full length", PLUGIN, LLAMA, {"cards": 1, "max_num_seqs": 4}),
    Case("odd length", PLUGIN, LLAMA, {"max_model_len": 2000, "memory_utilization": "0.8"}),
    Case("ranges", PLUGIN, LLAMA, {"input_range": (128, 1024), "output_range": (64, 512)}),
    Case("mixture", PLUGIN, MIXTURE, {**SHORT, **ADDRESS, "cards": 2}),
    Case("lazy", PLUGIN, LLAMA, {**SHORT, "modules": (2, 3)}, {"PT_HPU_LAZY_MODE": "1"}),
    Case("contiguous", PLUGIN, LLAMA, {**SHORT, **SWITCHES}, {"VLLM_CONTIGUOUS_PA": "yes"}),
    Case("no prefixes", PLUGIN, LLAMA, {**SHORT, "extra": ("--no-enable-prefix-caching",)}),
    Case(
        "contiguous prefixes",
        PLUGIN,
        LLAMA,
        {"extra": ("--enable-prefix-caching",)},
        {"VLLM_CONTIGUOUS_PA": "1"},
    ),
    Case("fp8", PLUGIN, LLAMA, {**SHORT, "dtype": "fp8", "quant_file": FOUND}),
    Case("fp8 of a profile", PLUGIN, LLAMA, {**SHORT, "dtype": "fp8", "quant_file": SHIPPED}),
    Case(
        "fp8 by option",
        PLUGIN,
        LLAMA,
        {**SHORT, "quant_config": "/q.json"},
        {"PT_HPU_LAZY_MODE": "1"},
    ),
    Case("fp8 exported", PLUGIN, LLAMA, SHORT, {"QUANT_CONFIG": "/mine.json"}),
    Case("stored fp8", PLUGIN, replace(LLAMA, quantization="fp8"), {**SHORT, "dtype": "fp8"}),
    Case("converted", PLUGIN, replace(LLAMA, quantization="fp8", converted=True), SHORT),
    Case("quantised twice", PLUGIN, replace(LLAMA, quantization="awq"), {"quant_config": "/q"}),
    Case("awq", PLUGIN, replace(LLAMA, quantization="awq"), {**SHORT, "dtype": "awq"}),
    Case("not gptq", PLUGIN, replace(LLAMA, quantization="awq"), {"dtype": "gptq"}),
    Case("no type", PLUGIN, LLAMA, {"dtype": "float32"}),
    Case("float16", PLUGIN, LLAMA, {**SHORT, "dtype": "float16", "trust_remote_code": True}),
    Case("bfloat16", PLUGIN, LLAMA, {**SHORT, "dtype": "bfloat16"}),
    Case("images", PLUGIN, SEES, SHORT, {"PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "1"}),
    Case(
        "images limited",
        PLUGIN,
        replace(SEES, model_type="qwen3_5"),
        {**SHORT, "extra": ("--limit-mm-per-prompt", "{}")},
        {"PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "1"},
    ),
    Case("embeds", PLUGIN, EMBEDS, SHORT),
    Case("ranks", PLUGIN, RANKS, {**SHORT, "extra": ("--convert", "classify")}),
    Case("hybrid", PLUGIN, HYBRID, SHORT),
    Case("speculation", PLUGIN, LLAMA, {**SHORT, "extra": ("--speculative-config", "{}")}),
    Case("name only", PLUGIN, Model("/m/x", "x"), {**SHORT, "cards": 2}),
    Case("wide images", PLUGIN, replace(SEES, model_type="qwen2_5_vl"), SHORT),
    Case("on two nodes", PLUGIN, LLAMA, {**SHORT, "modules": (3, 4)}),
    Case("one card of many", PLUGIN, LLAMA, {**SHORT, "modules": (5,), "host": "::1"}),
    Case("lazy images", PLUGIN, SEES, {**SHORT, "cards": 2}, {"PT_HPU_LAZY_MODE": "1"}),
    Case("lazy fp8", PLUGIN, LLAMA, {"dtype": "fp8", "quant_file": FOUND}, LAZY),
    Case("too large for one card", PLUGIN, replace(LLAMA, parameters=10**12), {"cards": 8}),
    Case("prompts of a step", PLUGIN, LLAMA, {**SHORT, "max_prefill_seqs": 3}),
    Case("an option of another version", PLUGIN, LLAMA, {"max_capture_len": 5}),
    Case("linear", PLUGIN, LLAMA, SHORT, {"VLLM_EXPONENTIAL_BUCKETING": "false"}),
    Case("own buckets", PLUGIN, LLAMA, SHORT, {"VLLM_DECODE_BS_BUCKET_MAX": "4"}),
    Case("a file of buckets", PLUGIN, LLAMA, {**SHORT, "bucket_file": BUCKET_FILE}, OWN_FILE),
    Case("its code", PLUGIN, replace(LLAMA, remote_code=True, model_type="made_up"), SHORT),
    Case("ray", PLUGIN, LLAMA, {**SHORT, "extra": ("--distributed-executor-backend", "ray")}),
    Case("the user's own requests", PLUGIN, LLAMA, {**SHORT, "extra": ("--max-num-seqs", "7")}),
    Case("four cards", PLUGIN, LLAMA, {**SHORT, "cards": 4}),
    Case("mixture on one card", PLUGIN, MIXTURE, {**SHORT, "trust_remote_code": True}),
    Case("eager", PLUGIN, LLAMA, {**SHORT, "extra": ("--enforce-eager",)}),
    Case("encoder", PLUGIN, ENCODER),
    Case("a long encoder", PLUGIN, replace(ENCODER, max_position_embeddings=8194), WIDE),
    *(Case(f"to {each.name}", PLUGIN, each) for each in POOLING),
    Case("a reranker that writes", PLUGIN, RANKS, {**SHORT, "extra": ("--runner", "generate")}),
    Case("images of one size", PLUGIN, SEES, SHORT, {"VLLM_MULTIMODAL_RESOLUTIONS": "1024x768"}),
    Case("fp8 without a file", PLUGIN, LLAMA, {**SHORT, "dtype": "fp8"}),
    Case("fp8 named", PLUGIN, LLAMA, {**SHORT, "quant_file": FOUND, "quant_config": "/q.json"}),
    Case("gptq", PLUGIN, replace(LLAMA, quantization="gptq"), SHORT),
    Case("gptq, then fp8", PLUGIN, replace(LLAMA, quantization="gptq"), {"dtype": "fp8"}),
    Case("not awq", PLUGIN, LLAMA, {"dtype": "awq"}),
    Case("a bad step", PLUGIN, LLAMA, SHORT, {"VLLM_DECODE_BS_BUCKET_STEP": "many"}),
    Case("chunks of a hybrid", PLUGIN, HYBRID, {"max_num_batched_tokens": 9001}),
    Case("tokens below", PLUGIN, LLAMA, {"max_num_batched_tokens": 64, "max_num_seqs": 128}),
    Case("input over length", PLUGIN, LLAMA, {"input_range": (4, 9000), "max_model_len": 8192}),
    *(Case(f"{name} {value}", PLUGIN, LLAMA, {name: value}) for name, value in REFUSED.items()),
    *(
        Case(name, PLUGIN, known_model(model, must_exist=False), wishes)
        for name, (model, wishes) in GUIDES.items()
    ),
]


@pytest.mark.parametrize(("file", "cases"), by_engine(CASES))
def test_each_request_has_its_recorded_plan(file: str, cases: list[Case]) -> None:
    golden(file, whole_plans(cases, HLS2))


@pytest.mark.parametrize(("model", "wishes"), GUIDES.values(), ids=GUIDES)
def test_upstream_takes_each_guide_command(model: str, wishes: dict[str, Any]) -> None:
    made = plan(known_model(model, must_exist=False), **wishes)
    for version in UPSTREAM:
        assert parse(version, made.command.argv[4:]).model_tag == model


def test_a_cache_with_scales_is_kept_in_fp8() -> None:
    fp8 = ("--kv-cache-dtype", "fp8_inc")
    expected = {"kv_cache_scheme": fp8, "kv_cache_quant_algo": fp8, "other": ()}
    stored = {
        "kv_cache_scheme": {"num_bits": 8},
        "kv_cache_quant_algo": "FP8",
        "other": {"kv_cache_quant_algo": "FP4"},
    }
    found = {
        name: cache_arguments(replace(LLAMA, config={"quantization_config": {name: value}}))
        for name, value in stored.items()
    }
    assert found == expected
    assert cache_arguments(replace(LLAMA, config={"quantization_config": "fp8"})) == ()
    odd = {"quantization_config": {"kv_cache_quant_algo": "FP4"}}
    assert cache_arguments(replace(LLAMA, config=odd)) == ()
