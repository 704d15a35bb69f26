"""One answer to "does it run in fp8", and everything that asks gets that one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.buckets.warmup_time import FILE_NAME
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.machine import load
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.precision import fp8_cache
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.services.log.follow import LaunchPhase, LaunchProgress
from gaudi_launch.core.services.state.job import job_of
from gaudi_launch.core.services.state.recorder import remember

PLAIN = Model(path="m", name="m", dtype="bfloat16")


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22"])
def test_the_plan_its_estimate_and_the_record_of_its_warm_up_agree(
    engine: str, own_folders: Path
) -> None:
    host, model = load("simulated:hls2"), known_model("Qwen/Qwen2-72B-Instruct", must_exist=False)
    plain = Request(model="Qwen/Qwen2-72B-Instruct", cards=4, engine=engine)
    found = {}
    for dtype in ("bfloat16", "fp8"):
        plan = make_plan(replace(plain, dtype=dtype), host, model, find(engine))
        assert plan.dtype == plan.to_json()["dtype"] == dtype
        assert plan.estimate is not None and plan.buckets is not None
        found[dtype] = (plan.estimate.high_seconds / plan.buckets.graphs, plan.memory["weights"])
        job = job_of(plan, plain, "one")
        remember(
            job,
            LaunchProgress(
                phases=(LaunchPhase("warmup_prompt", 0.0, items=9),), facts={"warmup_seconds": 5.0}
            ),
        )
    # published: fp8 takes 7.6 times as long a graph; half of the bytes
    assert found["fp8"][0] == pytest.approx(7.6 * found["bfloat16"][0])
    assert found["fp8"][1] < 0.6 * found["bfloat16"][1]
    kept = json.loads((own_folders / "state/gaudi-launch" / FILE_NAME).read_text())["warmups"]
    assert [entry["dtype"] for entry in kept] == ["bfloat16", "fp8"]


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
    assert fp8_cache(PLAIN, None) == "fp8_inc"
    assert fp8_cache(known_model("Qwen/Qwen3-8B", must_exist=False), None) == "auto"
