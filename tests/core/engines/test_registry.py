"""Which engine a plan is for where none is installed."""

from __future__ import annotations

import pytest

from gaudi_launch.core.engines import entries, registry
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.request import Request
from tests.support.cli import reading

V3 = Model("m", "DeepSeek-V3.1-G2", architecture="DeepseekV3ForCausalLM", mla_rank=576)


def test_a_model_that_only_a_fork_loads_gets_the_fork() -> None:
    old = Model("m", "old", architecture="Phi3SmallForCausalLM")
    assert registry.find(entries.DEFAULT).support(old).refused
    assert registry.assumed_for(old, lambda: "gaudi3") == "vllm-fork@1.22"
    nowhere = Model("m", "new", architecture="NoSuchForCausalLM")
    assert registry.assumed_for(nowhere, lambda: "gaudi3") == entries.DEFAULT


def test_over_several_hosts_only_an_engine_that_was_tried_there_is_assumed() -> None:
    plain = Model("m", "Qwen3-8B", architecture="Qwen3ForCausalLM")
    assert registry.name_over_hosts(Request("m"), None, plain, Host) == "vllm-fork@1.21"
    assert registry.name_over_hosts(Request("m"), None, V3, Host) == "deepseek_r1"
    assert (
        registry.name_over_hosts(Request("m", engine="vllm-gaudi"), None, plain, Host)
        == "vllm-gaudi"
    )


@pytest.mark.parametrize(
    ("engine", "date"),
    [
        ("vllm-fork@1.21", "2025-10-28"),
        ("vllm-fork@1.22", "2025-10-28"),
        ("vllm-gaudi", None),
        ("tgi", None),
    ],
)
def test_an_engine_that_ended_says_so_in_its_plan(
    engine: str, date: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"plan -w Qwen/Qwen3-8B --machine simulated:hls2 --engine {engine} --lang en"
    warnings = reading(capsys, *words.split())["warnings"]
    found = [warning["message"] for warning in warnings if warning["id"] == "plan.engine_ended"]
    assert [date in each for each in found] == [True] * (date is not None)


@pytest.mark.parametrize(
    "command", [("plan", "--machine", "simulated:hls2", "-n", "8", "-w"), ("inspect",)]
)
def test_plan_and_inspect_take_the_same(
    no_programs: None, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    engine = reading(capsys, *command, "deepseek-ai/DeepSeek-R1-0528")["engine"]
    found = engine if isinstance(engine, str) else engine["version"]
    assert found == "deepseek_r1"


@pytest.mark.parametrize(("engine", "told"), [("vllm-fork@1.21", True), ("vllm-fork@1.22", False)])
def test_a_release_older_than_the_model_is_told(
    engine: str, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "-w",
        "zai-org/GLM-4.5",
        "-n",
        "8",
        "--machine",
        "simulated:hls2",
        "--engine",
        engine,
        "--json",
    ]
    # 1.21 lacks the class, which refuses the plan
    plan = reading(capsys, "plan", *words, *(["--force"] if told else []))
    warnings = {warning["id"] for warning in plan["warnings"]}
    assert ("engines.too_old" in warnings) is told
