"""Calibration of the plugin for fp8. Pure.

Source: vllm-project/vllm-gaudi@091bbadd: calibration/calibrate_model.sh, which compares names in
lower case.
"""

from __future__ import annotations

from gaudi_launch.core.engines.base import STEPS
from gaudi_launch.core.planning.calibration_rules import Calibration, Rules

_GATE = r"mlp\.gate\b"


def _rules(lower: str) -> Rules:
    """Return the rules of the plugin's script, which has three families.

    Its ``--block-quant`` is left out: no step reads it.
    """
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
    # the scales are scalar where the script states nothing:
    # docs/configuration/calibration/calibration.md
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


CALIBRATION = Calibration(
    release="vllm-gaudi",
    family="vllm-gaudi",
    rules=_rules,
    home="https://github.com/vllm-project/vllm-gaudi",
    branch="main",
    folder="calibration",
    steps={
        **STEPS,
        5: ("step-5-unify_measurements.py",),
        6: ("step-6-expand-measurements.py",),
    },
    installed=("plugin_source", "extension_source"),
    expands=True,
    published=False,
)
