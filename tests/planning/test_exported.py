"""Exported values that an engine stumbles over, by what its profile says it takes."""

from __future__ import annotations

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.errors import LaunchError
from gaudi_launch.messages import Message, message
from gaudi_launch.planning.exported import (
    SECRETS,
    check_exported,
    engine_variables,
    inherited,
    local_variables,
    overridden,
    skips_warmup,
)
from gaudi_launch.planning.plan import Overridden, Setting, Source
from gaudi_launch.planning.variable_table import variable_table


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


@pytest.mark.parametrize("found", ["1", "Yes", "y", "on", "T"])
def test_each_spelling_of_yes_that_the_engine_reads_as_no_is_named(found: str) -> None:
    assert check_exported({"VLLM_SKIP_WARMUP": found}, "vllm-fork@1.21") == [
        message("plan.exported_no", name="VLLM_SKIP_WARMUP", found=found, engine="vllm-fork@1.21")
    ]


EXPORTED = {
    "PATH": "/bin",
    "LD_LIBRARY_PATH": "/lib",
    "FI_PROVIDER": "verbs",
    "FI_TOKEN": "hidden",
    "VLLM_USE_V1": "1",
    "HF_HOME": "/hub",
    "HF_TOKEN": "hidden",
    "QUANT_CONFIG": "/q.json",
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


@pytest.mark.parametrize(
    ("engine", "value", "skipped"),
    [
        # the fork at 1.21 compares with "true"
        ("vllm-fork@1.21", "true", True),
        ("vllm-fork@1.21", "1", False),
        ("vllm-fork@1.22", "1", True),
        ("vllm-fork@1.22", "0", False),
        ("vllm-gaudi", "", False),
    ],
)
def test_a_warm_up_is_skipped_by_what_the_engine_reads_as_true(
    engine: str, value: str, skipped: bool
) -> None:
    setting = Setting("VLLM_SKIP_WARMUP", value, "env", "environment", message("plan.exported"))
    assert skips_warmup([setting], engine) is skipped
    assert skips_warmup([], engine) is False
