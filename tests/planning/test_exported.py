"""Exported values that an engine stumbles over, by what its profile says it takes."""

from __future__ import annotations

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.errors import LaunchError
from gaudi_launch.messages import Message, message
from gaudi_launch.planning.exported import check_exported, overridden
from gaudi_launch.planning.plan import Overridden, Setting, Source


@pytest.mark.parametrize(
    ("engine", "name", "found", "id"),
    [
        ("vllm-fork@1.21", "VLLM_GRAPH_RESERVED_MEM", "9", "plan.exported_part"),
        ("vllm-fork@1.21", "VLLM_GRAPH_RESERVED_MEM", "1", "plan.exported_part"),
        ("vllm-fork@1.22", "VLLM_GRAPH_RESERVED_MEM", "-0.1", "plan.exported_part"),
        ("vllm-gaudi", "VLLM_GRAPH_RESERVED_MEM", "nan", "plan.exported_part"),
        ("deepseek_r1", "VLLM_GRAPH_PROMPT_RATIO", "a third", "plan.exported_share"),
        ("vllm-fork@1.21", "VLLM_GRAPH_PROMPT_STRATEGY", "biggest", "plan.exported_word"),
        ("tgi", "HPU_MEMORY_FRACTION", "80", "plan.exported_share"),
        ("vllm-fork@1.22", "VLLM_USE_V1", "true", "plan.exported_whole"),
    ],
)
def test_what_breaks_the_engine_is_refused(engine: str, name: str, found: str, id: str) -> None:
    with pytest.raises(LaunchError) as caught:
        check_exported({name: found}, engine)
    assert (caught.value.id, caught.value.exit_code) == (id, 2)
    assert f"{name}={found}" in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "environment"),
    [
        (
            "vllm-fork@1.21",
            {"VLLM_GRAPH_RESERVED_MEM": "0", "VLLM_GRAPH_PROMPT_RATIO": "1", "VLLM_USE_V1": " 0 "},
        ),
        ("vllm-fork@1.21", {"VLLM_GRAPH_DECODE_STRATEGY": "max_bs", "VLLM_SKIP_WARMUP": "True"}),
        ("vllm-fork@1.21", {"VLLM_GRAPH_RESERVED_MEM": "", "VLLM_SKIP_WARMUP": "0"}),
        # it does not read these
        ("vllm-fork@1.22", {"VLLM_GRAPH_PROMPT_RATIO": "5", "VLLM_SKIP_WARMUP": "1"}),
        ("vllm-gaudi", {"VLLM_USE_V1": "true"}),
        ("cpu", {"VLLM_GRAPH_RESERVED_MEM": "9"}),
    ],
)
def test_the_rest_passes(engine: str, environment: dict[str, str]) -> None:
    assert check_exported(environment, engine) == []


@pytest.mark.parametrize("found", ["1", "Yes", "on"])
def test_a_yes_that_is_a_no(found: str) -> None:
    warnings = check_exported({"VLLM_SKIP_WARMUP": found}, "vllm-fork@1.21")
    assert [(each.id, each.values["found"]) for each in warnings] == [("plan.exported_no", found)]


def test_what_the_plan_replaces_is_not_read() -> None:
    flag = Setting("VLLM_SKIP_WARMUP", "True", "env", "flag", message("plan.flag", flag="-s"))
    assert check_exported({"VLLM_SKIP_WARMUP": "1"}, "vllm-fork@1.21", [flag]) == []


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi"])
def test_a_plan_is_refused(
    engine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_GRAPH_RESERVED_MEM", "9")
    words = ["-w", "Qwen/Qwen3-8B", "-n", "8", "--engine", engine, "--machine", "simulated:hls2"]
    assert run(["plan", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "VLLM_GRAPH_RESERVED_MEM=9" in err


def lost(name: str, exported: str, used: str | None, source: Source = "computed") -> list[Message]:
    beaten = (Overridden(exported, "environment"),)
    setting = Setting(name, used, "env", source, message("plan.dense"), beaten=beaten)
    return overridden([setting])


def test_an_exported_value_that_a_rule_replaced_is_named_unless_it_is_a_secret() -> None:
    why = message("plan.dense").render()
    values = {"name": "VLLM_X", "found": "1", "used": "2", "why": why}
    assert lost("VLLM_X", "1", "2") == [message("plan.exported_lost", **values)]
    assert lost("VLLM_X", "TRUE", "true") == []
    assert lost("VLLM_X", "1", "2", "flag") == []
    assert lost("VLLM_X", "1", None)[0].values["used"] == ""
    for name in ("MY_TOKEN", "VLLM_API_KEY", "DB_PASSWORD"):
        assert lost(name, "1", "2") == [], name
    assert lost("VLLM_X", "http://me:hunter2@host", "2") == []
