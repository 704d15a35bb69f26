"""One answer to "does it run in fp8", and everything that asks gets that one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.host.machine import load
from gaudi_launch.models.records import Model
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.precision import asked_fp8, runs_fp8, weight_type
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from gaudi_launch.services.follow import Phase, Progress
from gaudi_launch.services.job import job_of
from gaudi_launch.services.recorder import remember
from gaudi_launch.warmup.estimate import FILE_NAME

PLAIN = Model(path="m", name="m", dtype="bfloat16")
STORED = replace(PLAIN, quantization="fp8")


@pytest.mark.parametrize(
    ("words", "model", "asked", "runs", "dtype"),
    [
        ({}, PLAIN, False, False, "bfloat16"),
        ({}, Model(path="m", name="m"), False, False, "bfloat16"),
        ({"dtype": "float16"}, PLAIN, False, False, "float16"),
        ({"dtype": "fp8"}, PLAIN, True, True, "fp8"),
        ({"inc_fp8": True}, PLAIN, True, True, "fp8"),
        ({"quant_config": "/q.json"}, PLAIN, True, True, "fp8"),
        ({"environment": {"QUANT_CONFIG": "/q.json"}}, PLAIN, True, True, "fp8"),
        ({"environment": {"QUANT_CONFIG": ""}}, PLAIN, False, False, "bfloat16"),
        ({"extra": ("--quantization", "inc")}, PLAIN, False, True, "fp8"),
        ({"extra": ("--quantization=fp8",)}, PLAIN, False, True, "fp8"),
        ({"extra": ("--quantization", "awq_hpu")}, PLAIN, False, False, "bfloat16"),
        ({"extra": ("--quantization",)}, PLAIN, False, False, "bfloat16"),
        ({}, STORED, False, True, "fp8"),
        ({"dtype": "bfloat16"}, STORED, False, True, "fp8"),
    ],
)
def test_the_answer(words: dict[str, Any], model: Model, asked: bool, runs: bool, dtype: str) -> None:
    request = Request(model="m", **words)
    assert (asked_fp8(request), runs_fp8(request, model), weight_type(request, model)) == (asked, runs, dtype)


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22"])
def test_the_plan_its_estimate_and_the_record_of_its_warm_up_agree(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    host, model = load("simulated:hls2"), known_model("Qwen/Qwen2-72B-Instruct", must_exist=False)
    plain = Request(model="Qwen/Qwen2-72B-Instruct", cards=4, engine=engine)
    found = {}
    for dtype in ("bfloat16", "fp8"):
        plan = make_plan(replace(plain, dtype=dtype), host, model, find(engine))
        assert plan.dtype == plan.to_json()["dtype"] == dtype
        assert plan.estimate is not None and plan.buckets is not None
        found[dtype] = (plan.estimate.high_seconds / plan.buckets.graphs, plan.memory["weights"])
        job = job_of(plan, plain, "one", limits={}, bind=False)
        remember(job, Progress(phases=(Phase("warmup_prompt", 0.0, items=9),), facts={"warmup_seconds": 5.0}))
    # published: fp8 takes 7.6 times as long a graph; half of the bytes
    assert found["fp8"][0] == pytest.approx(7.6 * found["bfloat16"][0])
    assert found["fp8"][1] < 0.6 * found["bfloat16"][1]
    kept = json.loads((tmp_path / "gaudi-launch" / FILE_NAME).read_text())["warmups"]
    assert [entry["dtype"] for entry in kept] == ["bfloat16", "fp8"]
