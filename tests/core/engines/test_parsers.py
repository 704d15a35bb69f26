"""The parsers that a model's profile names, in the plans of each engine version."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from gaudi_launch.core.planning.option_table import option_table
from gaudi_launch.core.planning.plan import Plan
from tests.support.options_table import FILES
from tests.support.places import DATA
from tests.support.plans import planned

SWITCH = "--enable-auto-tool-choice"
PARSERS = ("--enable-reasoning", "--reasoning-parser", SWITCH, "--tool-call-parser")


def chosen(plan: Plan) -> list[tuple[str, str | None, str]]:
    """The settings about parsers, in the order of the plan."""
    found = [setting for setting in plan.settings if setting.name in PARSERS]
    return [(setting.name, setting.value, setting.source) for setting in found]


def parsers_of(engine: str, model: str, **options: Any) -> list[tuple[str, str | None, str]]:
    plan, _ = planned(engine, model=f"/models/{model}", **options)
    return chosen(plan)


def reasons(parser: str) -> tuple[str, str, str]:
    return ("--reasoning-parser", parser, "profile")


def calls(parser: str) -> list[tuple[str, str | None, str]]:
    return [(SWITCH, None, "profile"), ("--tool-call-parser", parser, "profile")]


ENGINES = ("vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_that_thinks_and_calls_tools_gets_both_parsers(engine: str) -> None:
    assert parsers_of(engine, "Qwen3-8B", cards=1) == [reasons("qwen3"), *calls("hermes")]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_that_only_calls_tools_gets_no_reasoning_parser(engine: str) -> None:
    assert parsers_of(engine, "Llama-3.1-8B-Instruct", cards=1) == calls("llama3_json")


def test_deepseek_r1_needs_the_switch_of_its_branch() -> None:
    expected = [("--enable-reasoning", None, "profile"), reasons("deepseek_r1")]
    assert parsers_of("deepseek_r1", "DeepSeek-R1-0528-G2", cards=8) == expected


def test_a_parser_that_the_version_has_not_registered_is_left_out() -> None:
    """1.21 has llama4_json, and llama4_pythonic is younger; glm45 came with 1.22."""
    assert parsers_of("vllm-fork@1.21", "Llama-4-Scout-17B-16E-Instruct", cards=8) == []
    assert parsers_of("vllm-fork@1.22", "Llama-4-Scout-17B-16E-Instruct", cards=8) == calls(
        "llama4_pythonic"
    )


@pytest.mark.parametrize(
    ("engine", "model", "cards"),
    [
        # they answer without thinking, and the parser would take the answer for reasoning
        ("deepseek_r1", "DeepSeek-V3.1-G2", 8),
        ("deepseek_r1", "DeepSeek-V3-0324", 8),
        # no tokens for tool calls in their tokenizers
        ("vllm-fork@1.21", "Qwen2-7B-Instruct", 1),
        ("vllm-fork@1.21", "Mistral-7B-Instruct-v0.2", 1),
    ],
)
def test_a_relative_without_the_tokens_gets_no_parser(engine: str, model: str, cards: int) -> None:
    assert parsers_of(engine, model, cards=cards) == []


def test_an_instruct_model_of_a_thinking_family_only_calls_tools() -> None:
    assert parsers_of("vllm-fork@1.22", "Qwen3-30B-A3B-Instruct-2507", cards=1) == calls("hermes")


def test_tool_calls_of_the_user_leave_reasoning_out_where_both_exclude_each_other() -> None:
    words = (SWITCH, "--tool-call-parser", "deepseek_v3")
    found = parsers_of("deepseek_r1", "DeepSeek-R1-0528-G2", cards=8, extra=words)
    assert [name for name, _, _ in found] == [SWITCH, "--tool-call-parser"]


def test_an_embedding_model_of_the_family_has_no_chat_to_parse() -> None:
    assert parsers_of("vllm-fork@1.22", "Qwen3-8B", cards=1, extra=("--task", "embed")) == []


@pytest.mark.parametrize("version", ["1.21", "1.22"])
def test_the_registered_reasoning_parsers_are_those_of_the_recorded_options(version: str) -> None:
    rows = json.loads(
        gzip.decompress((DATA / "parity/cli-options" / f"{FILES[version]}.json.gz").read_bytes())
    )
    (recorded,) = (row["choices"] for row in rows if "--reasoning-parser" in row["flags"])
    table = option_table(f"vllm-fork-{version}")
    assert list(table.spellings["--reasoning-parser"].registered) == recorded
