"""One answer to "does it run in fp8", and everything that asks gets that one."""

from __future__ import annotations

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.models.model import Model
from gaudi_launch.planning.precision import fp8_cache
from gaudi_launch.profiles import known_model

PLAIN = Model(path="m", name="m", dtype="bfloat16")


@pytest.mark.parametrize(
    ("model", "in_1_21", "in_1_22", "in_plugin"),
    [
        # calibration/calibrate_model.sh of each release: whose blocklist names a cache
        ("Qwen/Qwen3-30B-A3B", "fp8_inc", "auto", "fp8_inc"),
        ("Qwen/Qwen3-32B", "fp8_inc", "fp8_inc", "fp8_inc"),
        ("Qwen/Qwen3-8B", "auto", "auto", "fp8_inc"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "fp8_inc", "auto", "fp8_inc"),
        ("zai-org/GLM-4.5", "fp8_inc", "auto", "fp8_inc"),
        ("Qwen/Qwen2.5-7B-Instruct", "auto", "auto", "fp8_inc"),
        ("meta-llama/Llama-3.1-70B-Instruct", "fp8_inc", "fp8_inc", "fp8_inc"),
    ],
)
def test_the_cache_beside_fp8_weights_is_what_the_calibration_of_the_release_writes(
    model: str, in_1_21: str, in_1_22: str, in_plugin: str
) -> None:
    known = known_model(model, must_exist=False)
    names = ("vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi")
    found = [fp8_cache(known, find(name).calibration) for name in names]
    assert found == [in_1_21, in_1_22, in_plugin]


def test_without_calibration_the_profile_says_the_cache() -> None:
    known = known_model("deepseek-ai/DeepSeek-R1-0528", must_exist=False)
    assert fp8_cache(known, find("deepseek_r1").calibration) == "fp8_inc"
    assert fp8_cache(PLAIN, find("tgi").calibration) == "fp8_inc"
    assert fp8_cache(known_model("Qwen/Qwen3-8B", must_exist=False), None) == "auto"
