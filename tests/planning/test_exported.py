"""Exported values that an engine stumbles over, by what its profile says it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.errors import ExitCode
from gaudi_launch.planning.exported import (
    check_exported,
)
from gaudi_launch.planning.option_table import variable_table
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


@pytest.mark.parametrize("found", ["1", "Yes", "on"])
def test_a_yes_that_is_a_no(found: str) -> None:
    warnings = check_exported({"VLLM_SKIP_WARMUP": found}, "vllm-fork@1.21")
    assert [(each.id, each.values["found"]) for each in warnings] == [("plan.exported_no", found)]


ENGINES = ("vllm-fork-1.21", "vllm-fork-1.22", "vllm-fork-deepseek_r1", "vllm-gaudi")
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    words = ["plan", "-w", LLAMA, "-n", "1", "--machine", "simulated:hls2", "--json", *arguments]
    assert run(words) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("name", ENGINES)
def test_each_table_has_the_warm_up_switch_with_its_place(name: str) -> None:
    place = variable_table(name)["VLLM_SKIP_WARMUP"]
    repository, _, rest = place.partition("@")
    assert repository.split("/")[0] in ("HabanaAI", "vllm-project")
    assert rest.endswith(tuple("0123456789"))
    assert ".py:" in rest


def test_an_engine_without_a_table_reads_nothing_that_is_known() -> None:
    assert variable_table("") == {}
