"""Each release has the calibration of its own scripts."""

from __future__ import annotations

from dataclasses import fields

import pytest

from gaudi_launch.core.engines.base import STEPS
from gaudi_launch.extensions.vllm_fork.deepseek_r1 import DeepSeekFork
from gaudi_launch.extensions.vllm_fork.release_1_21 import Fork121
from gaudi_launch.extensions.vllm_fork.release_1_22 import Fork122

CALIBRATIONS = {each.version: each.calibration for each in (Fork121, Fork122, DeepSeekFork)}

EXTENSION = {
    "family": "",
    "home": "https://github.com/HabanaAI/vllm-hpu-extension",
    "folder": "calibration",
    "steps": STEPS,
    "installed": ("plugin_source", "extension_source"),
}
DEEPSEEK = {
    "family": "deepseek_r1",
    "home": "https://github.com/HabanaAI/vllm-fork",
    "folder": "scripts",
    "steps": {2: ("run_example_tp.py",)},
    "installed": ("source",),
    "inside": "scripts",
    "one_step": True,
    "serve_with": "-q",
}


@pytest.mark.parametrize(
    ("release", "branch", "more"),
    [
        ("1.21", "aice/v1.21.0", EXTENSION),
        ("1.22", "aice/v1.22.0", EXTENSION),
        ("deepseek_r1", "deepseek_r1", DEEPSEEK),
    ],
)
def test_the_scripts_of_a_release_are_on_its_branch(
    release: str, branch: str, more: dict[str, object]
) -> None:
    made = CALIBRATIONS[release]
    found = {each.name: getattr(made, each.name) for each in fields(made) if each.name != "rules"}
    defaults = {each.name: each.default for each in fields(made) if each.name in found}
    assert found == {**defaults, "release": release, "branch": branch, **more}


def test_a_model_is_calibrated_as_by_the_scripts_of_its_release() -> None:
    qwen = {release: made.rules("qwen3-8b") for release, made in CALIBRATIONS.items()}
    assert (qwen["1.21"].scales, qwen["1.21"].types) == ("scalar", ("Softmax",))
    assert qwen["1.22"].types == ("VLLMKVCache", "Matmul", "Softmax")
    assert qwen["1.21"].env == {
        "PT_HPU_LAZY_MODE": "1",
        "VLLM_DISABLE_MARK_SCALES_AS_CONST": "true",
        "VLLM_FP32_SOFTMAX": "false",
    }
    assert qwen["1.22"].env == {}
    assert qwen["deepseek_r1"].method == "ACT_MAXABS_HW_WEIGHTS_PCS_MAXABS_POW2"
