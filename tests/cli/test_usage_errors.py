"""Usage errors: a sentence of ours in both languages, with the nearest names and where the help
is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gaudi_launch.cli.foreign_commands import foreign_commands
from gaudi_launch.cli.main import run
from gaudi_launch.cli.nearest import nearest, suggestion
from gaudi_launch.cli.table import COMMANDS
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import set_language

CHINESE = re.compile(r"[\u4e00-\u9fff]")

pytestmark = pytest.mark.usefixtures("plain_english")

ERRORS = {
    "serv": "There is no command 'serv'. Did you mean serve? (gaudi-launch --help)",
    "start": (
        "'start' is a command of another tool. Use 'gaudi-launch serve' here. (gaudi-launch --help)"
    ),
    "frobnicate": (
        "There is no command 'frobnicate'. 'gaudi-launch help' lists questions with their "
        "commands. (gaudi-launch --help)"
    ),
    "render dockr": (
        "There is no command 'dockr'. Did you mean docker? (gaudi-launch render --help)"
    ),
    "profiles zz": (
        "There is no command 'zz'. Choose one of show, check, add-evidence. "
        "(gaudi-launch profiles --help)"
    ),
    "ps --jso": "There is no option --jso. Did you mean --json? (gaudi-launch ps --help)",
    "ps --frobnicate": "There is no option --frobnicate. (gaudi-launch ps --help)",
    "plan --enforce-eager": (
        "There is no option --enforce-eager. Options for the engine must follow --. "
        "(gaudi-launch plan --help)"
    ),
    "plan --zzz": (
        "There is no option --zzz. Options for the engine must follow --. "
        "(gaudi-launch plan --help)"
    ),
    "plan --mdoel x": (
        "There is no option --mdoel. Did you mean -w? Options for the engine must follow --. "
        "(gaudi-launch plan --help)"
    ),
    "serve --dry-run": (
        "There is no option --dry-run here. Use gaudi-launch plan. (gaudi-launch serve --help)"
    ),
    "plan x --devices 4": "There is no option --devices here. Use -m. (gaudi-launch plan --help)",
    "serve -w": "The option -w needs a value. (gaudi-launch serve --help)",
    "serve -w -n 4": "The option -w needs a value. (gaudi-launch serve --help)",
    "plan x --engine -- --seed 1": "The option --engine needs a value. (gaudi-launch plan --help)",
    "logs x -n -f": "The option -n needs a value. (gaudi-launch logs --help)",
    "serve demo -d --name x": (
        "The option -d needs a data type. To run in the background, use --detach. (gaudi-launch "
        "serve --help)"
    ),
    "plan x -d": "The option -d needs a value. (gaudi-launch plan --help)",
    "serve x --rm": (
        "There is no option --rm. Options for the engine must follow --. (gaudi-launch "
        "serve --help)"
    ),
    "ps --json=3": "The option --json takes no value.",
    "pull": "Missing argument OWNER/NAME. (gaudi-launch pull --help)",
    "ps one two": "The arguments 'one two' are not expected here. (gaudi-launch ps --help)",
    "doctor --port abc": "--port: 'abc' is not a number. (gaudi-launch doctor --help)",
    "doctor --port 70000": (
        "--port: 70000 is not in the range 1<=x<=65535. (gaudi-launch doctor --help)"
    ),
}


CORRECTED = {
    "serv": ["gaudi-launch serve"],
    "start": ["gaudi-launch serve"],
    "render dockr": ["gaudi-launch render docker"],
    "ps --jso": ["gaudi-launch ps --json"],
    "plan --mdoel x": ["gaudi-launch plan -w x"],
    "serve --dry-run": ["gaudi-launch plan"],
    "plan x --devices 4": ["gaudi-launch plan x -m 4"],
}


@pytest.mark.parametrize("line", ERRORS)
def test_each_usage_error_is_a_sentence(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    sentence, *commands = capsys.readouterr().err.splitlines()
    assert sentence == f"gaudi-launch: {ERRORS[line]}"
    assert [each.strip() for each in commands] == CORRECTED.get(line, [])


@pytest.mark.parametrize("line", ERRORS)
def test_each_usage_error_is_in_chinese_too(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--lang", "zh", *line.split()]) == 2
    sentence = capsys.readouterr().err.removeprefix("gaudi-launch: ").split("(gaudi-launch")[0]
    assert CHINESE.search(sentence)
    for english in ("There is", "option", "command", "Missing", "needs", "Did you"):
        assert english not in re.sub(r"--\S+", "", sentence)


def test_a_usage_error_keeps_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ps", "--jso", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["id"], error["exit_code"]) == ("common.usage", 2)


def test_every_command_of_another_tool_is_one_that_we_have() -> None:
    for theirs, ours in foreign_commands().items():
        assert theirs not in COMMANDS
        assert ours.split()[0] in COMMANDS or ours.startswith("--")


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("plan -w x --engine vlm-gaudi --machine simulated:hls2", "vllm-gaudi"),
        ("plan -w x --machine simulated:hsl2", "hls2"),
        ("profiles show qwen3-30b-a3", "qwen3-30b-a3b"),
        ("inspect Qwen3-8B --accelerator gaudi22", "gaudi2"),
        ("doctor --only netwrk", "network"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(
    line: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    assert re.search(
        rf"Did you mean ([\w., @-]+, )?{re.escape(near)}(,[^?]*)?\?\n  gaudi-launch .*{near}",
        capsys.readouterr().err,
    )


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("inspect models/Qwen3-8", "models/Qwen3-8B"),
        ("inspect Qwen2-72B-Instrct", "Qwen/Qwen2-72B-Instruct, Qwen/Qwen2-7B-Instruct"),
        ("fp8 convert models/Qwen3-8 out", "models/Qwen3-8B"),
    ],
)
def test_a_missing_model_is_answered_with_the_nearest(
    line: str,
    near: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "models" / "Qwen3-8B").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run(line.split()) == 5
    assert f"Did you mean {near}?\n  gaudi-launch " in capsys.readouterr().err


def test_a_model_that_the_hub_does_not_have_is_answered_with_the_nearest() -> None:
    hub = {"source": "https://huggingface.co", "token": "HF_TOKEN"}
    error = LaunchError("models.not_on_hub", ExitCode.MODEL, model="Qwen/Qwn3-8B", **hub)
    assert suggestion(error) == ("Qwen/Qwn3-8B", ("Qwen/Qwen3-8B", "Qwen/Qwen3-32B"))
    model = "Qwen/Qwen3-8B"
    offline = LaunchError("models.offline", ExitCode.MODEL, model=model, source="h", why="w")
    assert not suggestion(offline)[1]


def test_a_value_may_begin_with_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "--exit-status", "-9", "/no/such.log"]) == 2
    assert "needs a value" not in capsys.readouterr().err


def test_only_names_as_near_as_the_nearest_are_suggested() -> None:
    assert nearest("--hlep", ["--help", "--name", "--helper"]) == ["--help"]
    assert nearest("HLS2", ["hls2", "gaudi2e-8"]) == ["hls2"]


def test_an_error_without_known_names_suggests_nothing() -> None:
    for id, code, known in (
        ("plan.no_model", ExitCode.USAGE, "-"),
        ("engines.unknown", ExitCode.USAGE, "-"),
        ("engines.unknown", ExitCode.MACHINE, "cpu"),
    ):
        assert not suggestion(LaunchError(id, code, found="cp", known=known))[1]


def test_errors_are_coloured_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    run(["serv"])
    assert capsys.readouterr().err.startswith("\x1b[1;31mgaudi-launch:\x1b[0m There")
    monkeypatch.setenv("NO_COLOR", "1")
    run(["serv"])
    assert capsys.readouterr().err.startswith("gaudi-launch: There")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    run(["serv"])
    assert capsys.readouterr().err.startswith("gaudi-launch: There")
    set_language(None)


def test_a_long_error_is_broken_between_words_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    run(["plan", "--zzz"])
    assert len(capsys.readouterr().err.splitlines()) == 1
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    run(["plan", "--zzz"])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 2 and all(len(line) <= 40 for line in lines)
    assert " ".join(lines) == f"gaudi-launch: {ERRORS['plan --zzz']}"
