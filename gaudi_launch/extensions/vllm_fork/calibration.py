"""Calibration of the forks for fp8: files and variables of each release. Pure.

Sources: HabanaAI/vllm-hpu-extension@8afd253 (aice/v1.21.0) and @f5f9ecb (aice/v1.22.0):
calibration/calibrate_model.sh. Names are compared in lower case, as there.
HabanaAI/vllm-fork@016b6bd20 (deepseek_r1): scripts/run_inc_calib.sh and the two files of
scripts/quant_configs that scripts/quickstart/README.md pairs with an fp8 cache.
"""

from __future__ import annotations

from gaudi_launch.core.engines.base import STEPS
from gaudi_launch.core.planning.calibration_rules import Calibration, Rules
from gaudi_launch.extensions.vllm_fork.scripts_shared import NO_FP32_SOFTMAX, QWEN2_7B

_GATE = r"mlp\.gate\b"
_BF16_TYPES = ("VLLMKVCache", "Matmul", "Softmax")
_BF16_NAMES_1_21 = (
    *("lm_head", _GATE, "k_cache", "v_cache", "matmul_av", "matmul_qk", "batch2block_matmul"),
    *("block2batch_matmul", "fused_scaled_dot_product_attention", "softmax"),
)
_BF16_NAMES_1_22 = ("lm_head", _GATE, "fused_scaled_dot_product_attention")
# the modules that 1.21 leaves in bfloat16, by the first part of a model's name that fits; Qwen3-32B
# and Qwen3-30B-A3B have fp8 attention
_LEFT_OUT_1_21: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("qwen3-32b", ("lm_head", _GATE)),
    ("qwen3-30b-a3b", ("lm_head", _GATE)),
    ("qwen3", _BF16_NAMES_1_21),
    ("deepseek-r1-distill-llama-8b", _BF16_NAMES_1_21),
    ("qwq-32b", ("lm_head", _GATE)),
)


def _measured(lower: str) -> tuple[str, ...]:
    """Return the modules that are left out when a model is measured."""
    if lower.startswith("mixtral"):
        return ("self_attn", "lm_head")
    if "qwen3" in lower:
        return ("lm_head",)
    return ()


def _rules_1_21(lower: str) -> Rules:
    measured = _measured(lower)
    env = {"PT_HPU_LAZY_MODE": "1", "VLLM_DISABLE_MARK_SCALES_AS_CONST": "true"}
    if any(part in lower for part in NO_FP32_SOFTMAX):
        env["VLLM_FP32_SOFTMAX"] = "false"
    if any(part in lower for part in QWEN2_7B):
        fused = ("fused_scaled_dot_product_attention",)
        return Rules(measured, _BF16_TYPES, fused, method="unit_scale", env=env)
    names: tuple[str, ...] = ("self_attn", "lm_head")
    if not lower.startswith("mixtral"):
        names = next((found for part, found in _LEFT_OUT_1_21 if part in lower), ())
    return Rules(measured, ("Softmax",), names, env=env)


def _rules_1_22(lower: str) -> Rules:
    measured = _measured(lower)
    types: tuple[str, ...] = ("Softmax",)
    names: tuple[str, ...] = ("lm_head", _GATE)
    method, scales, env = "maxabs_hw", "scalar", {}
    qwen2, mixtral = any(part in lower for part in QWEN2_7B), lower.startswith("mixtral")
    qwen3 = "qwen3" in lower and "qwen3-32b" not in lower
    if qwen2 or mixtral or qwen3 or "deepseek-r1-distill-llama-8b" in lower:
        types, names = _BF16_TYPES, _BF16_NAMES_1_22
    if qwen2:
        method, env = "unit_scale", {"VLLM_FP32_SOFTMAX": "true"}
    elif mixtral or (qwen3 and ("qwen3-30b-a3b" in lower or "qwen3-235b-a22b" in lower)):
        scales = "const"
    if "glm-4.5" in lower:
        types, names, scales = _BF16_TYPES, ("lm_head", _GATE), "const"
    if scales == "const":
        env = {**env, "VLLM_DISABLE_MARK_SCALES_AS_CONST": "true"}
    return Rules(measured, types, names, method, scales, env)


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


def _extension(release: str) -> Calibration:
    """Return the calibration of a release whose scripts are vllm-hpu-extension's."""
    return Calibration(
        release=release,
        # 1.21 and 1.22 share the names of their modules
        family="",
        rules=_rules_1_21 if release == "1.21" else _rules_1_22,
        home="https://github.com/HabanaAI/vllm-hpu-extension",
        branch=f"aice/v{release}.0",
        folder="calibration",
        steps=STEPS,
        installed=("plugin_source", "extension_source"),
    )


CALIBRATIONS = {
    "1.21": _extension("1.21"),
    "1.22": _extension("1.22"),
    "deepseek_r1": Calibration(
        release="deepseek_r1",
        family="deepseek_r1",
        rules=lambda name: _RULES_DEEPSEEK,
        home="https://github.com/HabanaAI/vllm-fork",
        branch="deepseek_r1",
        folder="scripts",
        steps={2: ("run_example_tp.py",)},
        installed=("source",),
        inside="scripts",
        one_step=True,
        serve_with="-q",
    ),
}
