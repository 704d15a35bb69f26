"""What each release of the calibration scripts writes for a model: configurations and variables, by its name. Pure.

Sources: HabanaAI/vllm-hpu-extension@8afd253 (aice/v1.21.0) and @f5f9ecb (aice/v1.22.0), and
vllm-project/vllm-gaudi@091bbadd: calibration/calibrate_model.sh. Names are compared in lower case, as there.
HabanaAI/vllm-fork@016b6bd20 (deepseek_r1): scripts/run_inc_calib.sh and the two files of scripts/quant_configs that
scripts/quickstart/README.md pairs with an fp8 cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PLUGIN = "vllm-gaudi"
DEEPSEEK = "deepseek_r1"
RELEASES = ("1.21", "1.22", PLUGIN, DEEPSEEK)
_GATE = r"mlp\.gate\b"
_BF16_TYPES = ("VLLMKVCache", "Matmul", "Softmax")
_BF16_NAMES = {
    "1.21": (
        *("lm_head", _GATE, "k_cache", "v_cache", "matmul_av", "matmul_qk", "batch2block_matmul"),
        *("block2batch_matmul", "fused_scaled_dot_product_attention", "softmax"),
    ),
    "1.22": ("lm_head", _GATE, "fused_scaled_dot_product_attention"),
}
_QWEN2_7B = ("deepseek-r1-distill-qwen-7b", "qwen2-7b-instruct", "qwen2.5-7b-instruct")
# set_fp32_softmax of 1.21
_NO_FP32_SOFTMAX = (
    *("deepseek-r1-distill-qwen-14b", "deepseek-r1-distill-qwen-32b", "deepseek-r1-distill-llama-8b"),
    *("deepseek-r1-distill-llama-70b", "qwen3-8b", "qwen3-14b", "qwen3-32b", "qwq-32b", "qwen3-30b-a3b"),
    "qwen3-235b-a22b",
)


@dataclass(frozen=True)
class Rules:
    """How one model is measured and quantised. ``env`` are variables of every step; ``measure_words`` and
    ``quantise_words`` go to the steps with the model, ``measure_more`` and ``quant_more`` into the two files."""

    measure_names: tuple[str, ...]
    types: tuple[str, ...]
    names: tuple[str, ...]
    method: str = "maxabs_hw"
    scales: str = "scalar"
    env: Mapping[str, str] = field(default_factory=dict)
    measure_words: tuple[str, ...] = ()
    quantise_words: tuple[str, ...] = ()
    measure_more: Mapping[str, Any] = field(default_factory=dict)
    quant_more: Mapping[str, Any] = field(default_factory=lambda: {"fp8_config": "E4M3"})

    def measure_config(self, stem: str) -> dict[str, Any]:
        """The QUANT_CONFIG of measuring; ``stem`` is where each rank writes."""
        return {
            "method": "HOOKS",
            "mode": "MEASURE",
            "observer": "maxabs",
            "allowlist": {"types": [], "names": []},
            "blocklist": {"types": [], "names": list(self.measure_names)},
            "quantize_weight": False,
            "dump_stats_path": stem,
            **self.measure_more,
        }

    def quant_config(self, stem: str) -> dict[str, Any]:
        """The QUANT_CONFIG of serving."""
        return {
            "mode": "QUANTIZE",
            "observer": "maxabs",
            "scale_method": self.method,
            "scale_format": self.scales,
            "allowlist": {"types": [], "names": []},
            "blocklist": {"types": list(self.types), "names": list(self.names)},
            "dump_stats_path": stem,
            **self.quant_more,
        }


def family_of(release: str) -> str:
    """Whose measurements can be taken for whose: they go by the names of the engine's own modules, which 1.21 and
    1.22 share ("")."""
    return "" if release in ("1.21", "1.22") else release


def rules_for(name: str, release: str) -> Rules:
    """The rules of a model (the last part of its path) in a release of `RELEASES`."""
    lower = name.lower()
    if release == PLUGIN:
        return _rules_plugin(lower)
    if release == DEEPSEEK:
        return _RULES_DEEPSEEK
    if lower.startswith("mixtral"):
        measured: tuple[str, ...] = ("self_attn", "lm_head")
    else:
        measured = ("lm_head",) if "qwen3" in lower else ()
    return (_rules_1_21 if release == "1.21" else _rules_1_22)(lower, measured)


def _rules_1_21(lower: str, measured: tuple[str, ...]) -> Rules:
    env = {"PT_HPU_LAZY_MODE": "1", "VLLM_DISABLE_MARK_SCALES_AS_CONST": "true"}
    if any(part in lower for part in _NO_FP32_SOFTMAX):
        env["VLLM_FP32_SOFTMAX"] = "false"
    if any(part in lower for part in _QWEN2_7B):
        fused = ("fused_scaled_dot_product_attention",)
        return Rules(measured, _BF16_TYPES, fused, method="unit_scale", env=env)
    names: tuple[str, ...] = ()
    if lower.startswith("mixtral"):
        names = ("self_attn", "lm_head")
    elif "qwen3" in lower:
        fp8_attention = "qwen3-32b" in lower or "qwen3-30b-a3b" in lower
        names = ("lm_head", _GATE) if fp8_attention else _BF16_NAMES["1.21"]
    elif "deepseek-r1-distill-llama-8b" in lower:
        names = _BF16_NAMES["1.21"]
    elif "qwq-32b" in lower:
        names = ("lm_head", _GATE)
    return Rules(measured, ("Softmax",), names, env=env)


def _rules_1_22(lower: str, measured: tuple[str, ...]) -> Rules:
    types: tuple[str, ...] = ("Softmax",)
    names: tuple[str, ...] = ("lm_head", _GATE)
    method, scales, env = "maxabs_hw", "scalar", {}
    qwen2, mixtral = any(part in lower for part in _QWEN2_7B), lower.startswith("mixtral")
    qwen3 = "qwen3" in lower and "qwen3-32b" not in lower
    if qwen2 or mixtral or qwen3 or "deepseek-r1-distill-llama-8b" in lower:
        types, names = _BF16_TYPES, _BF16_NAMES["1.22"]
    if qwen2:
        method, env = "unit_scale", {"VLLM_FP32_SOFTMAX": "true"}
    elif mixtral or (qwen3 and ("qwen3-30b-a3b" in lower or "qwen3-235b-a22b" in lower)):
        scales = "const"
    if "glm-4.5" in lower:
        types, names, scales = _BF16_TYPES, ("lm_head", _GATE), "const"
    if scales == "const":
        env = {**env, "VLLM_DISABLE_MARK_SCALES_AS_CONST": "true"}
    return Rules(measured, types, names, method, scales, env)


def _rules_plugin(lower: str) -> Rules:
    """The plugin's script has rules for three families. Its ``--block-quant`` is left out: no step reads it."""
    names: tuple[str, ...] = ()
    scales, env = "scalar", {}
    measure_words: tuple[str, ...] = ()
    quantise_words: tuple[str, ...] = ()
    if lower.startswith("mixtral"):
        names, scales = ("self_attn", "lm_head"), "CONST"
    elif lower.startswith("deepseek"):
        names = ("lm_head", _GATE)
    elif lower.startswith("granite-4"):
        names = ("mamba", "self_attn")
    if "deepseek" in lower:
        env = {"VLLM_HPU_FORCE_CHANNEL_FP8": "0"}
    elif "granite-4" in lower:
        env = {"VLLM_CONTIGUOUS_PA": "false"}
        measure_words = ("--gpu-memory-utilization", "0.1")
        quantise_words = ("--max-model-len", "2048", *measure_words)
    # the scales are scalar where the script says nothing: docs/configuration/calibration/calibration.md
    return Rules(
        measure_names=names,
        types=(),
        names=names,
        scales=scales,
        env=env,
        measure_words=measure_words,
        quantise_words=quantise_words,
        measure_more={"calibration_sample_interval": 1},
        quant_more={},
    )


_RULES_DEEPSEEK = Rules(
    measure_names=("lm_head", _GATE),
    types=(),
    names=("lm_head", _GATE),
    method="ACT_MAXABS_HW_WEIGHTS_PCS_MAXABS_POW2",
    scales="const",
    env={
        "PT_HPU_LAZY_MODE": "1",
        "VLLM_MLA_PERFORM_MATRIX_ABSORPTION": "0",
        "VLLM_ENABLE_RUNTIME_DEQUANT": "1",
        "VLLM_PROMPT_BS_BUCKET_MIN": "1",
        "VLLM_PROMPT_BS_BUCKET_MAX": "1",
        "VLLM_PROMPT_SEQ_BUCKET_MIN": "1024",
        "VLLM_PROMPT_SEQ_BUCKET_STEP": "512",
        "VLLM_PROMPT_SEQ_BUCKET_MAX": "1024",
        "VLLM_DECODE_BS_BUCKET_MIN": "1",
        "VLLM_DECODE_BS_BUCKET_MAX": "1",
        "VLLM_REQUANT_FP8_INC": "1",
        "VLLM_MOE_N_SLICE": "1",
    },
    quant_more={},
)
