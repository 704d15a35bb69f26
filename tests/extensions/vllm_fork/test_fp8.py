"""fp8 in plans: the QUANT_CONFIG that was found, the cache type that its file asks for, and what
is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.machine import load
from gaudi_launch.core.models.fp8.quant_config import QuantFile
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from tests.support.refusals import failing

SMALL = Model(
    path="/m/Small",
    name="Small",
    source="config.json",
    parameters=10**9,
    dtype="bfloat16",
    moe=False,
    layers=4,
    hidden_size=1024,
    heads=8,
    kv_heads=8,
    head_dim=128,
    vocab_size=1000,
    max_position_embeddings=4096,
)
FORKS = ("vllm-fork@1.21", "vllm-fork@1.22")


def plan(engine: str, model: Model = SMALL, **words: Any) -> Plan:
    request = Request(
        model=model.path, cards=8 if engine == "deepseek_r1" else 2, engine=engine, **words
    )
    return make_plan(request, load("simulated:hls2"), model, find(engine))


def said(made: Plan, *names: str) -> dict[str, tuple[str | None, str]]:
    return {s.name: (s.value, s.source) for s in made.settings if s.name in names}


def test_the_reference_is_left_alone() -> None:
    found = QuantFile("/q.json", "calibrated", "auto")
    for engine in FORKS:
        with_it, without = (
            plan(engine, dtype="fp8", tuning="reference", quant_file=one).command
            for one in (found, None)
        )
        assert with_it == without


HUGE = replace(SMALL, parameters=4 * 10**11, weight_bytes=8 * 10**11, dtype="bfloat16")
FOUND = QuantFile("/q.json", "calibrated", "fp8_inc")


@pytest.mark.parametrize("engine", [*FORKS, "vllm-gaudi"])
def test_host_memory_that_is_too_small_is_refused(engine: str) -> None:
    host = replace(
        load("simulated:hls2"), memory_total_mib=500 << 10, memory_available_mib=400 << 10
    )
    request = Request(model=HUGE.path, cards=8, engine=engine, dtype="fp8", quant_file=FOUND)
    with failing("plan.host_memory", ExitCode.MACHINE):
        make_plan(request, host, HUGE, find(engine))
    forced = make_plan(replace(request, force=True), host, HUGE, find(engine))
    assert "plan.host_memory" in [warning.id for warning in forced.warnings]
    busy = replace(host, memory_total_mib=1000 << 10)
    ids = [warning.id for warning in make_plan(request, busy, HUGE, find(engine)).warnings]
    assert "plan.host_memory_low" in ids


def test_1_22_rescales_fp8_weights_on_gaudi2_itself() -> None:
    name = "VLLM_HPU_CONVERT_TO_FP8UZ"
    stored = replace(SMALL, quantization="fp8")
    assert said(plan("vllm-fork@1.22", stored), name) == {name: ("true", "engine")}
    converted = plan("vllm-fork@1.22", replace(stored, converted=True))
    assert converted.command.env[name] == "false"
    request = Request(model=stored.path, engine="vllm-fork@1.22")
    gaudi3 = make_plan(request, load("simulated:gaudi3-oam"), stored, find("vllm-fork@1.22"))
    assert said(gaudi3, name) == {}


@pytest.mark.parametrize(
    ("exported", "checked"),
    [("", True), ("1", True), ("true", True), ("TRUE", True), ("0", False), ("false", False)],
)
def test_rescaled_weights_need_host_memory_unless_that_is_switched_off(
    exported: str, checked: bool
) -> None:
    stored = replace(SMALL, quantization="fp8")
    environment = {"VLLM_HPU_CONVERT_TO_FP8UZ": exported} if exported else {}
    request = Request(model=stored.path, environment=environment)
    small = replace(load("simulated:hls2"), memory_total_mib=1)
    if not checked:
        assert make_plan(request, small, stored, find("vllm-fork@1.22")).dtype == "fp8"
        return
    with failing("plan.host_memory", ExitCode.MACHINE):
        make_plan(request, small, stored, find("vllm-fork@1.22"))
