"""Exported values that an engine stumbles over, by what its profile says it takes."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.planning.exported import (
    SECRETS,
    check_exported,
    engine_variables,
    inherited,
    local_variables,
    overridden,
)
from gaudi_launch.core.planning.option_table import variable_table
from gaudi_launch.core.planning.plan import Overridden, Setting
from tests.support.cli import reading
from tests.support.refusals import failing


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
    with failing(id, ExitCode.USAGE) as caught:
        check_exported({name: found}, engine)
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


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi"])
def test_a_plan_is_refused(
    engine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_GRAPH_RESERVED_MEM", "9")
    words = ["-w", "Qwen/Qwen3-8B", "-n", "8", "--engine", engine, "--machine", "simulated:hls2"]
    assert run(["plan", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "VLLM_GRAPH_RESERVED_MEM=9" in err


def lost(name: str, exported: str, used: str | None, source: Any = "computed") -> list[Message]:
    beaten = (Overridden(exported, "environment"),)
    setting = Setting(name, used, "env", source, message("plan.dense"), beaten=beaten)
    return overridden([setting])


def test_an_exported_value_that_a_rule_replaced_is_named_unless_it_is_a_secret() -> None:
    why = message("plan.dense").render()
    values = {"name": "VLLM_X", "found": "1", "used": "2", "why": why}
    for source in ("computed", "profile"):
        assert lost("VLLM_X", "1", "2", source) == [message("plan.exported_lost", **values)]
    assert lost("VLLM_X", "TRUE", "true") == []
    assert lost("VLLM_X", "1", "2", "flag") == []
    assert lost("VLLM_X", "1", None)[0].values["used"] == ""
    for name in ("MY_TOKEN", "VLLM_API_KEY", "DB_PASSWORD"):
        assert lost(name, "1", "2") == [], name
    assert lost("VLLM_X", "http://me:hunter2@host", "2") == []


@pytest.mark.parametrize("found", ["1", "Yes", "y", "on", "T"])
def test_each_spelling_of_yes_that_the_engine_reads_as_no_is_named(found: str) -> None:
    assert check_exported({"VLLM_SKIP_WARMUP": found}, "vllm-fork@1.21") == [
        message("plan.exported_no", name="VLLM_SKIP_WARMUP", found=found, engine="vllm-fork@1.21")
    ]
    # what the plan replaces is not read
    flag = Setting("VLLM_SKIP_WARMUP", "True", "env", "flag", message("plan.flag", flag="-s"))
    assert check_exported({"VLLM_SKIP_WARMUP": found}, "vllm-fork@1.21", [flag]) == []


EXPORTED = {
    "PATH": "/bin",
    "LD_LIBRARY_PATH": "/lib",
    "FI_PROVIDER": "verbs",
    "FI_TOKEN": "hidden",
    "VLLM_USE_V1": "1",
    "HF_HOME": "/hub",
    "HF_TOKEN": "hidden",
    "QUANT_CONFIG": "/q.json",
    "VLLM_MOE_TOKEN_BOUNDARY": "64,64,1536",
    "VLLM_PLUGINS": "auth_token=hidden",
    "HF_ENDPOINT": "http://me:hidden@host",
    "MY_VLLM_X": "1",
    "EDITOR": "vi",
}


def test_an_engine_gets_the_machines_paths_and_its_variables_and_no_secret() -> None:
    assert local_variables(EXPORTED) == {
        "PATH": "/bin",
        "LD_LIBRARY_PATH": "/lib",
        "FI_PROVIDER": "verbs",
    }
    assert engine_variables(EXPORTED) == {
        "VLLM_USE_V1": "1",
        "HF_HOME": "/hub",
        "QUANT_CONFIG": "/q.json",
        "VLLM_MOE_TOKEN_BOUNDARY": "64,64,1536",
    }
    assert engine_variables(dict.fromkeys(SECRETS, "hidden")) == {}


def test_variables_that_only_the_engine_reads_are_listed_with_their_reader() -> None:
    table = "vllm-gaudi"
    read, other, *_ = (name for name in variable_table(table) if "KEY" not in name)
    decided = Setting(other, "1", "env", "computed", message("plan.dense"))
    option = Setting(read, "1", "option", "computed", message("plan.dense"))
    environment = {read: "7", other: "8", "EDITOR": "vi"}
    expected = Setting(
        read, "7", "env", "environment", message("plan.exported_read"), variable_table(table)[read]
    )
    assert inherited(environment, table, [decided, option]) == [expected]
    assert inherited({**environment, read: ""}, table, [decided]) == []
    assert inherited({read: "http://me:hunter2@host"}, table, []) == []
    assert inherited(environment, "", []) == []


ENGINES = ("vllm-fork-1.21", "vllm-fork-1.22", "vllm-fork-deepseek_r1", "vllm-gaudi")
THREE = {"VLLM_SKIP_WARMUP": "true", "VLLM_CONTIGUOUS_PA": "false", "VLLM_FP32_SOFTMAX": "true"}
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    words = ("plan", "-w", LLAMA, "-n", "1", "--machine", "simulated:hls2")
    return reading(capsys, *words, *arguments)


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


def test_the_plugin_reads_upstreams_variables_too() -> None:
    place = variable_table("vllm-gaudi")["VLLM_LOGGING_LEVEL"]
    assert place.startswith("vllm-project/vllm@0.32.0:vllm/envs.py:")


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
    # a yes that 1.21 does not read keeps the warm-up
    export(monkeypatch, {"VLLM_SKIP_WARMUP": "1"})
    kept = plan(capsys, "--engine", engine)["estimate"] is not None
    assert kept is (engine == "vllm-fork@1.21")


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


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("--engine vllm-fork@1.21", "VLLM_PROMPT_USE_FUSEDSDPA=0"),
        ("-w deepseek-ai/DeepSeek-R1 --engine deepseek_r1 -n 8", "VLLM_DELAYED_SAMPLING=false"),
    ],
)
def test_a_replaced_export_is_a_warning(
    words: str, lost: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(monkeypatch, dict([lost.split("=")]))
    made = plan(capsys, *words.split(), "--trust-remote-code", "--force")
    found = [each["message"] for each in made["warnings"] if each["id"] == "plan.exported_lost"]
    assert len(found) == 1
    assert lost in found[0]
