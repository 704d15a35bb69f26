"""Each version of the fork, compared as one: settings, sources, reasons, proofs, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.host import simulated
from gaudi_launch.core.models.fp8.quant_config import QuantFile
from gaudi_launch.core.models.model import Model
from tests.support.cli import golden
from tests.support.vllm_gaudi_plans import LLAMA
from tests.support.whole_plans import Case, by_engine, whole_plans

HLS2 = simulated.make("hls2")
V21, V22, DEEPSEEK = "vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1"
MIXTURE = replace(
    LLAMA, path="/m/Qwen3-30B-A3B", name="Qwen3-30B-A3B", architecture="Qwen3MoeForCausalLM",
    model_type="qwen3_moe", moe=True, experts=128, heads=32, kv_heads=4,
)  # fmt: skip
NAMED = Model("/m/Qwen3-8B", "Qwen3-8B")
R1 = replace(
    MIXTURE, path="/m/DeepSeek-R1", name="DeepSeek-R1", architecture="DeepseekV3ForCausalLM",
    model_type="deepseek_v3", parameters=671_026_419_200, quantization="fp8", layers=61,
    hidden_size=7168, heads=128, kv_heads=128, mla_rank=576, experts=256, remote_code=True,
)  # fmt: skip
SHORT = {"max_model_len": 2048, "max_num_seqs": 8}
LENGTHS = {"input_range": (128, 1024), "output_range": (64, 512), "max_num_batched_tokens": 4096}
SWITCHES = {"scheduler_steps": 4, "no_zero_padding": True, "no_fused_sdpa": True}
LIMITS = {"memory_utilization": "0.8", "max_capture_len": 1024, "max_prefill_seqs": 4}
ADDRESS = {"host": "0.0.0.0", "port": 9000, "served_name": "chat"}
LONG = {"max_model_len": 65536}
FULL_SIZE = replace(LLAMA, parameters=600 * 10**9)
EMBEDS = replace(LLAMA, name="Qwen3-Embedding-8B", model_type="qwen3")
FOUND = QuantFile("/here/quant.json", "calibrated", "auto")
FULL = {"VLLM_SKIP_LAZY_WARMUP": "true", "PT_HPU_LAZY_MODE": "0", "VLLM_PROMPT_BS_BUCKET_MAX": "2"}

CASES_1_21 = [
    Case("dense", V21, LLAMA, {"cards": 1, **SHORT}),
    Case("mixture on four cards", V21, MIXTURE, {"cards": 4, **SHORT, **ADDRESS}, FULL),
    Case("options", V21, LLAMA, {**SHORT, **LENGTHS, **SWITCHES, **LIMITS, "modules": (1, 2)}),
    Case("fp8", V21, LLAMA, {**SHORT, "dtype": "fp8", "quant_file": FOUND, "profile": True}),
    Case(
        "fp8 by option", V21, LLAMA, {**SHORT, "quant_config": "/q.json", "trust_remote_code": True}
    ),
    Case("stored fp8", V21, replace(LLAMA, quantization="fp8"), {**SHORT, "dtype": "fp8"}),
    Case("awq", V21, replace(LLAMA, quantization="awq"), {**SHORT, "dtype": "awq"}),
    Case("script", V21, NAMED, {"tuning": "reference", "cards": 2, "profile": True}),
    Case("script, fp8", V21, NAMED, {"tuning": "reference", "dtype": "fp8", "reduce": (8, 1024)}),
    Case("long prompt", V21, LLAMA, {"max_model_len": 1024, "input_range": (1, 1024)}),
    Case(
        "prompt longer than a batch",
        V21,
        LLAMA,
        {"input_range": (1, 4096), "max_num_batched_tokens": 2048},
    ),
    Case("an option of another version", V21, LLAMA, {"padding_limit": "0.3"}),
    Case(
        "an option that the script lacks", V21, LLAMA, {"tuning": "reference", "max_capture_len": 5}
    ),
    Case(
        "contiguous",
        V21,
        LLAMA,
        {"extra": ("--speculative-config", "{}")},
        {"VLLM_CONTIGUOUS_PA": "1"},
    ),
    Case("as long as the model", V21, LLAMA, {"max_model_len": 131072, "max_num_seqs": 1}),
    Case("script, longer than the model", V21, NAMED, {"tuning": "reference", **LONG}),
    Case("script, its options", V21, NAMED, {"tuning": "reference", **SWITCHES, **ADDRESS}),
    Case("script, modules", V21, NAMED, {"tuning": "reference", "modules": (6, 7)}),
    Case("no host memory", V21, FULL_SIZE, {"cards": 8, "dtype": "fp8", "quant_file": FOUND}),
    Case("embeds", V21, EMBEDS, SHORT),
    Case("merged", V21, LLAMA, {}, {"VLLM_MERGED_PREFILL": "true"}),
    Case("exponential", V21, LLAMA, {}, {"VLLM_EXPONENTIAL_BUCKETING": "on"}),
]
CASES_1_22 = [
    Case("dense", V22, LLAMA, {"cards": 1, **SHORT}),
    Case("mixture on four cards", V22, MIXTURE, {"cards": 4, **SHORT, **ADDRESS}, FULL),
    Case("options", V22, LLAMA, {**SHORT, **LENGTHS, **SWITCHES, **LIMITS, "padding_limit": "0.3"}),
    Case("ranges", V22, LLAMA, {**SHORT, **LENGTHS, **SWITCHES, **LIMITS}),
    Case(
        "prefixes",
        V22,
        LLAMA,
        {**SHORT, "extra": ("--enable-prefix-caching",), "skip_warmup": True},
    ),
    Case("fp8", V22, LLAMA, {**SHORT, "dtype": "fp8", "quant_file": FOUND}),
    Case("stored fp8", V22, replace(LLAMA, quantization="fp8"), SHORT),
    Case(
        "exported",
        V22,
        LLAMA,
        SHORT,
        {"QUANT_CONFIG": "/mine.json", "VLLM_EXPONENTIAL_BUCKETING": "false"},
    ),
    Case("script", V22, NAMED, {"tuning": "reference", "cards": 2, "profile": True}),
    Case("script, fp8", V22, NAMED, {"tuning": "reference", "quant_config": "/q.json"}),
    Case("an option of another version", V22, LLAMA, {"inc_fp8": True}),
    Case(
        "script, its options", V22, NAMED, {"tuning": "reference", "skip_warmup": True, **ADDRESS}
    ),
    Case("script, modules", V22, MIXTURE, {"tuning": "reference", "modules": (4, 5, 6, 7)}),
    Case("embeds", V22, EMBEDS, SHORT),
    Case("profile", V22, LLAMA, {**SHORT, "profile": True, "cache_dir": "/c"}),
    Case("gptq", V22, replace(LLAMA, quantization="gptq"), {**SHORT, "dtype": "gptq"}),
    Case("not awq", V22, replace(LLAMA, quantization="gptq"), {"dtype": "awq"}),
]
CASES_DEEPSEEK = [
    Case("usual", DEEPSEEK, R1, {**SHORT, "trust_remote_code": True}),
    Case(
        "options",
        DEEPSEEK,
        R1,
        {**SHORT, **LIMITS, **ADDRESS, "trust_remote_code": True, "cache_dir": "/mine"},
    ),
    Case("script", DEEPSEEK, R1, {"tuning": "reference", "inc_fp8": True, "skip_warmup": True}),
    Case("script, its cache", DEEPSEEK, R1, {"tuning": "reference", "cache_dir": "/mine"}),
    Case(
        "script, no cache",
        DEEPSEEK,
        R1,
        {"tuning": "reference", "cache_dir": "", "max_model_len": 18560},
    ),
    Case("too long", DEEPSEEK, R1, {"max_model_len": 40000, "trust_remote_code": True}),
    Case(
        "as long as possible",
        DEEPSEEK,
        R1,
        {"max_model_len": 32768, "max_num_seqs": 1, "trust_remote_code": True},
    ),
    Case("four cards", DEEPSEEK, R1, {"cards": 4}),
    Case("its code", DEEPSEEK, R1, SHORT),
]


STORED = replace(LLAMA, quantization="fp8")
ELSEWHERE = replace(STORED, source="name")
KEPT = {"QUANT_CONFIG": "/q.json", "INC_MEASUREMENT_DUMP_PATH_PREFIX": "/mine"}
OF_FLAG, OF_PROFILE = QuantFile("/q.json", "flag"), QuantFile("/q.json", "profile")
EXPORTED = QuantFile("/q.json", "environment", "fp8_inc")
FP8 = {**SHORT, "dtype": "fp8"}
BRIEF = {"input_range": (30, 128), "output_range": (4, 32)}
PREFIXES = ("--enable-prefix-caching",)
LATENT = {**SHORT, "trust_remote_code": True, "inc_fp8": True}
ENCODER = replace(
    LLAMA, name="bge-m3", architecture="XLMRobertaModel", model_type="xlm-roberta", layers=24,
    hidden_size=1024, heads=16, kv_heads=16, head_dim=64, max_position_embeddings=8194,
)  # fmt: skip
RERANKER = replace(ENCODER, architecture="XLMRobertaForSequenceClassification")
RANKS = replace(LLAMA, name="Qwen3-Reranker-8B", model_type="qwen3")
TEXTS = {"max_model_len": 2048, "max_num_seqs": 16}
# for both forks
BOTH: list[tuple[str, Model, dict[str, Any], dict[str, str]]] = [
    ("its code", replace(LLAMA, remote_code=True), SHORT, {}),
    ("its code, agreed", replace(LLAMA, remote_code=True), {"trust_remote_code": True}, {}),
    ("name only", Model("hub/x", "x"), SHORT, {}),
    ("uneven heads", replace(LLAMA, heads=28), {"cards": 8}, {}),
    *(
        (f"{heads} heads", replace(LLAMA, heads=24, kv_heads=heads), {**SHORT, "cards": cards}, {})
        for heads, cards in ((4, 8), (4, 2), (8, 3), (6, 4))
    ),
    ("contiguous prefixes", LLAMA, {"extra": PREFIXES}, {"VLLM_CONTIGUOUS_PA": "true"}),
    ("one prompt a step", LLAMA, {**BRIEF, "extra": PREFIXES}, {}),
    ("prefixes", LLAMA, {**SHORT, "extra": ("--enable_prefix_caching",)}, {}),
    ("speculation", LLAMA, {**SHORT, "extra": ("--speculative_config={}",)}, {}),
    ("no warm-up", LLAMA, {**SHORT, "skip_warmup": True}, {}),
    ("a short model", replace(LLAMA, max_position_embeddings=4000), {"max_num_seqs": 8}, {}),
    ("whole blocks", replace(LLAMA, max_position_embeddings=4000), {"max_model_len": 3968}, {}),
    ("too long", replace(LLAMA, max_position_embeddings=4000), {"max_model_len": 8192}, {}),
    ("more for graphs", LLAMA, SHORT, {"VLLM_GRAPH_RESERVED_MEM": "0.4"}),
    ("development", LLAMA, SHORT, {"VLLM_SERVER_DEV_MODE": "1"}),
    ("inc", LLAMA, {"inc_fp8": True}, {}),
    *((f"stored {kind}", replace(LLAMA, quantization=kind), SHORT, {}) for kind in ("awq", "gptq")),
    ("not stored", LLAMA, {"dtype": "gptq"}, {}),
    ("fp8 of a profile", LLAMA, {**FP8, "quant_file": OF_PROFILE}, {}),
    ("fp8 exported", LLAMA, {**FP8, "quant_file": EXPORTED}, {"QUANT_CONFIG": "/q.json"}),
    ("fp8 named", LLAMA, {**SHORT, "quant_config": "/q.json", "quant_file": OF_FLAG}, KEPT),
    ("fp8 nowhere", LLAMA, FP8, {}),
    ("fp8 of the scripts", LLAMA, {**FP8, "scripts_dir": "/fork/scripts"}, {}),
    ("fp8, own device", LLAMA, {**FP8, "extra": ("--weights-load-device", "hpu")}, {}),
    ("converted", replace(STORED, converted=True), SHORT, {}),
    ("elsewhere", ELSEWHERE, SHORT, {}),
    ("encoder", ENCODER, TEXTS, {}),
    ("encoder, fewer texts a step", ENCODER, {**TEXTS, "max_prefill_seqs": 4}, {}),
    ("reranker", RERANKER, TEXTS, {}),
    ("ranks", RANKS, TEXTS, {}),
    ("ranks, but writes", RANKS, {**TEXTS, "extra": ("--task", "generate")}, {}),
]
MORE = [
    *(
        Case(f"both: {name}", engine, model, wishes, environment)
        for engine in (V21, V22)
        for name, model, wishes, environment in BOTH
    ),
    Case("a dense model", DEEPSEEK, LLAMA, SHORT),
    Case("encoder", DEEPSEEK, ENCODER),
    Case("fp8", DEEPSEEK, R1, {"dtype": "fp8"}),
    Case("profile", DEEPSEEK, R1, {"profile": True}),
    Case("quantised by inc", DEEPSEEK, R1, {**LATENT, "quant_file": OF_PROFILE}),
    Case("by the user's file", DEEPSEEK, R1, {**LATENT, "quant_file": EXPORTED}, KEPT),
    Case("bfloat16", DEEPSEEK, replace(R1, quantization=None), LATENT),
    Case("converted elsewhere", DEEPSEEK, replace(R1, path="/m/R1-G2", source="name"), LATENT),
]
CASES = [*CASES_1_21, *CASES_1_22, *CASES_DEEPSEEK, *MORE]


@pytest.mark.parametrize(("file", "cases"), by_engine(CASES))
def test_each_request_has_its_recorded_plan(file: str, cases: list[Case]) -> None:
    golden(file, whole_plans(cases, HLS2))
