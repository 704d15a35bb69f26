"""Exported variables in a plan: those that the engine reads, and those that a rule replaces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.messages import message
from gaudi_launch.planning.exported import inherited, overridden, skips_warmup
from gaudi_launch.planning.plan import Overridden, Setting
from gaudi_launch.planning.variable_table import variable_table

ENGINES = ("vllm-fork-1.21", "vllm-fork-1.22", "vllm-fork-deepseek_r1", "vllm-gaudi")
THREE = {"VLLM_SKIP_WARMUP": "true", "VLLM_CONTIGUOUS_PA": "false", "VLLM_FP32_SOFTMAX": "true"}
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    words = ["plan", "-w", LLAMA, "-n", "1", "--machine", "simulated:hls2", "--json", *arguments]
    assert run(words) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def export(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", ENGINES)
def test_each_table_has_the_warm_up_switch_with_its_place(name: str) -> None:
    place = variable_table(name)["VLLM_SKIP_WARMUP"]
    repository, _, rest = place.partition("@")
    assert repository.split("/")[0] in ("HabanaAI", "vllm-project")
    assert rest.endswith(tuple("0123456789"))
    assert ".py:" in rest


def test_an_engine_without_a_table_reads_nothing_that_is_known() -> None:
    assert variable_table("") == {}


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi"])
def test_an_exported_variable_that_the_engine_reads_is_a_setting(
    engine: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(monkeypatch, THREE)
    made = plan(capsys, "--engine", engine)
    rows = {
        row["name"]: (row["value"], row["source"])
        for row in made["settings"]
        if row["name"] in THREE
    }
    assert rows == {name: (value, "environment") for name, value in THREE.items()}
    assert {name: made["env"].get(name) for name in THREE} == THREE


def test_the_plugin_reads_upstreams_variables_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(monkeypatch, {"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_SERVER_DEV_MODE": "1"})
    made = plan(capsys, "--engine", "vllm-gaudi")
    rows = [
        row
        for row in made["settings"]
        if row["name"] in ("VLLM_LOGGING_LEVEL", "VLLM_SERVER_DEV_MODE")
    ]
    assert [(row["value"], row["source"]) for row in rows] == [
        ("DEBUG", "environment"),
        ("1", "environment"),
    ]
    place = variable_table("vllm-gaudi")["VLLM_LOGGING_LEVEL"]
    assert place.startswith("vllm-project/vllm@0.32.0:vllm/envs.py:")


def test_the_origin_is_the_place_that_reads_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(monkeypatch, {"VLLM_FP32_SOFTMAX": "true"})
    made = plan(capsys, "--engine", "vllm-fork@1.21")
    origins = [row["origin"] for row in made["settings"] if row["name"] == "VLLM_FP32_SOFTMAX"]
    assert origins == ["HabanaAI/vllm-hpu-extension@8afd253:vllm_hpu_extension/flags.py:165"]


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi"])
def test_an_exported_skip_does_what_the_option_does(
    engine: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_option = plan(capsys, "--engine", engine, "-s")
    export(monkeypatch, {"VLLM_SKIP_WARMUP": "true"})
    by_export = plan(capsys, "--engine", engine)
    assert by_export["estimate"] is None
    assert by_export["warnings"] == by_option["warnings"]
    assert by_export["buckets"] == by_option["buckets"]


def test_a_yes_that_1_21_does_not_read_keeps_the_warm_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(monkeypatch, {"VLLM_SKIP_WARMUP": "1"})
    assert plan(capsys, "--engine", "vllm-fork@1.21")["estimate"] is not None
    assert plan(capsys, "--engine", "vllm-gaudi")["estimate"] is None


def test_secrets_and_unread_variables_are_not_listed() -> None:
    environment = {
        "VLLM_API_KEY": "sk-one",
        "HF_TOKEN": "hf_two",
        "VLLM_USAGE_STATS_SERVER": "https://me:three@host/",
        "VLLM_NOT_A_VARIABLE": "four",
        "VLLM_LOGGING_LEVEL": "",
        "VLLM_PORT": "5000",
    }
    rows = inherited(environment, "vllm-fork-1.21", ())
    assert [(row.name, row.value) for row in rows] == [("VLLM_PORT", "5000")]


def test_a_decided_variable_has_one_row() -> None:
    decided = Setting("VLLM_PORT", "1", "env", "computed", message("plan.exported"))
    assert inherited({"VLLM_PORT": "5000"}, "vllm-fork-1.21", (decided,)) == []


@pytest.mark.parametrize(
    ("value", "engine", "skips"),
    [
        ("True", "vllm-fork@1.21", True),
        ("1", "deepseek_r1", False),
        ("1", "vllm-gaudi", True),
        ("false", "vllm-gaudi", False),
    ],
)
def test_each_engine_reads_the_switch_its_own_way(value: str, engine: str, skips: bool) -> None:
    row = Setting("VLLM_SKIP_WARMUP", value, "env", "environment", message("plan.exported"))
    assert skips_warmup([row], engine) is skips


def test_a_replaced_export_is_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(monkeypatch, {"VLLM_PROMPT_USE_FUSEDSDPA": "0"})
    made = plan(capsys, "--engine", "vllm-fork@1.21")
    found = [each["message"] for each in made["warnings"] if each["id"] == "plan.exported_lost"]
    assert len(found) == 1
    assert "VLLM_PROMPT_USE_FUSEDSDPA=0" in found[0]


def test_deepseek_names_the_delayed_sampling_that_it_replaces(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(monkeypatch, {"VLLM_DELAYED_SAMPLING": "false"})
    words = [
        "plan",
        "-w",
        "deepseek-ai/DeepSeek-R1",
        "--engine",
        "deepseek_r1",
        "--machine",
        "simulated:hls2",
    ]
    assert run([*words, "--trust-remote-code", "--force", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    found = [each["message"] for each in made["warnings"] if each["id"] == "plan.exported_lost"]
    assert len(found) == 1
    assert "VLLM_DELAYED_SAMPLING=false" in found[0]


@pytest.mark.parametrize(
    ("source", "value", "lost", "count"),
    [
        ("computed", "true", "0", 1),
        ("profile", "true", "0", 1),
        ("computed", "True", "true", 0),
        ("flag", "true", "0", 0),
        ("computed", "true", "https://me:pass@host/", 0),
    ],
)
def test_only_another_value_from_a_rule_is_warned_of(
    source: Any, value: str, lost: str, count: int
) -> None:
    row = Setting(
        "VLLM_X",
        value,
        "env",
        source,
        message("plan.exported"),
        "",
        (Overridden(lost, "environment"),),
    )
    assert len(overridden([row])) == count
