"""Calibration of the forks for fp8 by the scripts of vllm-hpu-extension. Pure.

Sources: HabanaAI/vllm-hpu-extension@8afd253 (aice/v1.21.0) and @f5f9ecb (aice/v1.22.0):
calibration/calibrate_model.sh. Names are compared in lower case, as there.
"""

from __future__ import annotations

from collections.abc import Callable

from gaudi_launch.core.engines.base import STEPS
from gaudi_launch.core.planning.calibration_rules import Calibration, Rules

GATE = r"mlp\.gate\b"
BF16_TYPES = ("VLLMKVCache", "Matmul", "Softmax")


def measured(lower: str) -> tuple[str, ...]:
    """Return the modules that are left out when a model is measured."""
    if lower.startswith("mixtral"):
        return ("self_attn", "lm_head")
    if "qwen3" in lower:
        return ("lm_head",)
    return ()


def of_extension(release: str, rules: Callable[[str], Rules]) -> Calibration:
    """Return the calibration of a release whose scripts are vllm-hpu-extension's."""
    return Calibration(
        release=release,
        # 1.21 and 1.22 share the names of their modules
        family="",
        rules=rules,
        home="https://github.com/HabanaAI/vllm-hpu-extension",
        branch=f"aice/v{release}.0",
        folder="calibration",
        steps=STEPS,
        installed=("plugin_source", "extension_source"),
    )
