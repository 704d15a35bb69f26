"""Options that users of other tools type are answered with ours."""

from __future__ import annotations

import json

import pytest

from gaudi_launch.cli.foreign_options import foreign_option
from gaudi_launch.cli.main import run

pytestmark = pytest.mark.usefixtures("plain_english")


@pytest.mark.parametrize(
    ("arguments", "found", "ours"),
    [
        (("serve", "--model", "x"), "--model", "-w"),
        (("plan", "--model=x"), "--model", "-w"),
        (("plan", "-w", "x", "--tensor-parallel-size", "4"), "--tensor-parallel-size", "-n"),
        (("plan", "-w", "x", "-tp", "4"), "-tp", "-n"),
        (
            ("serve", "x", "--gpu-memory-utilization", "0.9"),
            "--gpu-memory-utilization",
            "--memory-utilization",
        ),
        (("logs", "x", "--tail", "5"), "--tail", "-n"),
        (("plan", "x", "--accelerator", "gaudi2"), "--accelerator", "--machine"),
        (("recommend", "x", "--goal", "latency"), "--goal", "--for"),
        (("bench", "x", "--request-rate", "4"), "--request-rate", "--rate"),
        (("bench", "x", "--num-prompts", "4"), "--num-prompts", "--requests"),
        (("kube", "status", "-n", "ns"), "-n", "-N"),
    ],
)
def test_another_tools_option_is_named_as_ours(
    arguments: tuple[str, ...], found: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments]) == 2
    assert f"There is no option {found} here. Use {ours}." in capsys.readouterr().err


def test_an_option_of_the_engine_belongs_after_two_dashes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["plan", "-w", "x", "--enforce-eager"]) == 2
    assert "-- --enforce-eager" in capsys.readouterr().err


def test_a_command_without_an_engine_says_nothing_of_two_dashes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["ps", "--enforce-eager"]) == 2
    assert "-- --enforce-eager" not in capsys.readouterr().err


def test_the_error_keeps_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--model", "x", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["id"] == "common.usage"


def test_after_two_dashes_the_word_is_the_engines(capsys: pytest.CaptureFixture[str]) -> None:
    words = "plan -w Qwen/Qwen3-8B --machine simulated:hls2 --json -- -tp 1"
    run(words.split())
    assert "common.foreign_option" not in capsys.readouterr().out


def test_a_command_that_has_no_such_option_gives_no_hint() -> None:
    assert foreign_option("--tail", {"-w", "-f"}) is None
    assert foreign_option("--something", {"-w"}) is None
