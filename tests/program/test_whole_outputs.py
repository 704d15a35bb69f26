"""The complete output of reading commands: in both languages, at any width, and as JSON."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from gaudi_launch.cli import progress
from gaudi_launch.cli.main import run
from gaudi_launch.core.base.messages import LANGUAGES
from tests.support.cli import golden, stripped
from tests.support.machines import link_tree
from tests.support.scripts import script

pytestmark = pytest.mark.usefixtures("plain_english")

_MACHINE = "--machine simulated:hls2"
# by the name of the golden file: the command, and whether it has --json
COMMANDS: dict[str, tuple[str, bool]] = {
    "engines-diff": ("engines diff vllm-fork@1.21 vllm-fork@1.22", True),
    "engines-diff-model": (
        f"engines diff vllm-fork@1.22 deepseek_r1 -w Qwen/Qwen3-30B-A3B -n 2 {_MACHINE}",
        True,
    ),
    "cluster-plan": (
        "cluster plan Qwen/Qwen3-8B --engine vllm-fork@1.21 -n 8"
        " --hosts a=simulated:hls2,b=simulated:hls2+bad-tuning",
        True,
    ),
    "estimate": ("estimate Qwen/Qwen3-8B --accelerator gaudi2 --rate 2/s", True),
    "plan-all": (f"plan Qwen/Qwen3-8B --engine vllm-fork@1.21 -n 2 {_MACHINE} --verbose", False),
    "warmup": (
        f"warmup -w Qwen/Qwen3-8B --engine vllm-fork@1.21 {_MACHINE} -n 1 -i 128,256 -o 64 -b 4",
        True,
    ),
    "recommend": (
        f"recommend -w Qwen/Qwen3-8B --engine vllm-fork@1.21 {_MACHINE} -i 64 -o 16 -n 1 -b 4",
        True,
    ),
    "devices": ("devices --machine simulated:hls2+busy=3+failed=5+hot=1", False),
    "plan": (f"plan Qwen/Qwen3-32B --engine vllm-fork@1.21 -n 1 {_MACHINE}", False),
    "inspect": ("inspect Qwen/Qwen3-30B-A3B --engine deepseek_r1 --accelerator gaudi2", True),
    "stack-plan": (f"stack plan stack.yaml {_MACHINE}", True),
    "doctor-list": ("doctor --list --only cards", True),
    "help": ("help", True),
    "migrate": (
        f"migrate {_MACHINE} -- bash start_gaudi_vllm_server.sh -w Qwen/Qwen3-8B -n 2",
        True,
    ),
}


STACK = """\
schema: 1
name: site
gateway: {port: 8100}
models:
  - name: chat
    model: Qwen/Qwen3-8B
    replicas: 2
    options: {engine: vllm-fork@1.21, cards: 1}
  - name: long
    model: Qwen/Qwen3-32B
    options: {engine: vllm-fork@1.21, cards: 4}
"""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make a folder with a stack the current one, and let no line of progress be due."""
    monkeypatch.setattr(progress, "_PLAIN_EVERY_SECONDS", 3600.0)
    (tmp_path / "stack.yaml").write_text(STACK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def _output(words: list[str], capsys: pytest.CaptureFixture[str], home: Path) -> str:
    """Return the exit code and both streams; the user's folder is /home."""
    code = run(words)
    out, err = (each.replace(str(home), "/home") for each in capsys.readouterr())
    return f"exit code {code}\n{stripped(out)}" + (f"(stderr)\n{stripped(err)}" if err else "")


# those of the first screen are files in both languages
_FIRST = ("plan", "stack", "doctor")
_FILES = [
    (name, language)
    for name, (line, _) in COMMANDS.items()
    for language in LANGUAGES
    if language == "en" or line.startswith(_FIRST)
]


@pytest.mark.parametrize(("name", "language"), _FILES)
def test_the_output_for_people(
    name: str, language: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line, _ = COMMANDS[name]
    words = shlex.split(line)
    golden(f"whole-{name}-{language}.txt", _output(["--lang", language, *words], capsys, tmp_path))


def _thinned(value: Any) -> Any:
    """Return a document with the first two elements of each list, and six digits of numbers."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _thinned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_thinned(inner) for inner in value[:2]]
    return value


@pytest.mark.parametrize("name", [name for name, (_, programs) in COMMANDS.items() if programs])
def test_the_output_for_programs(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line, _ = COMMANDS[name]
    ours, dashes, rest = line.partition(" -- ")
    run(shlex.split(f"{ours} --json{dashes}{rest}"))
    out = capsys.readouterr().out.replace(str(tmp_path), "/home")
    document = _thinned(json.loads(out))
    assert document["schema"] == 1
    golden(f"whole-{name}.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")


_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# a command to be copied and the value of a setting are never folded
_COPIED = re.compile(r"\$ |   [A-Z-]|.*gaudi-launch ")
_RULE = re.compile(r" ?─+[─ ]*$")

Shown = Callable[[str, int, str], list[str]]


class Terminal(io.TextIOWrapper):
    """A stream of a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Show a command in so many columns, in a language."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("LINES", "24")

    def lines(line: str, width: int, language: str) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        written = io.BytesIO()
        with contextlib.redirect_stdout(Terminal(written, encoding="utf-8")) as out:
            run(["--lang", language, *shlex.split(line)])
            out.flush()
        return _ANSI.sub("", written.getvalue().decode()).splitlines()

    return lines


def untidy(lines: list[str]) -> list[str]:
    """Return the lines that end in a blank, and the rows below a rule that end right of it."""
    found = [line for line in lines if line.endswith(" ")]
    width = 0
    for line in lines:
        if _RULE.match(line):
            width = cell_len(line)
        elif not line.strip() or line.strip() == line:
            width = 0
        elif width and cell_len(line) > width:
            found.append(line)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_terminal_gets_no_wider_line_and_aligned_rows(shown: Shown, name: str) -> None:
    # by hand all of them: WIDTHS=6
    cases = [*itertools.product((60, 80, 160), LANGUAGES)]
    count = int(os.environ.get("WIDTHS", "2"))
    for width, language in random.Random(name).sample(cases, count):
        lines = shown(COMMANDS[name][0], width, language)
        wide = [each for each in lines if cell_len(each) > width and not _COPIED.match(each)]
        assert (wide, untidy(lines)) == ([], []), (width, language)


# these get shorter; no command is added
LONGER_THAN_A_SCREEN = {"plan-all"}


def test_an_answer_fits_a_screen_of_24_rows(shown: Shown) -> None:
    longer = {
        name
        for name, (line, _) in COMMANDS.items()
        if max(len(shown(line, 80, language)) for language in LANGUAGES) > 22
    }
    assert longer == LONGER_THAN_A_SCREEN


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_question_of_a_first_day_is_answered_at_once(
    shown: Shown, language: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    questions = script("acceptance/questions")
    monkeypatch.setenv("PATH", f"{link_tree('hls2', tmp_path / 'box')}:{os.environ['PATH']}")
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "box"))
    (tmp_path / "failed.log").write_text(questions.LOG, encoding="utf-8")
    asked = [each for each in questions.QUESTIONS if not each.long]
    late = [
        each.command
        for each in asked
        if not questions.answered(each, shown(each.command, 80, language))[1]
    ]
    assert (late, len(asked)) == ([], 13)


@pytest.mark.parametrize("name", COMMANDS)
def test_both_languages_have_the_same_rows(shown: Shown, name: str) -> None:
    assert len({len(shown(COMMANDS[name][0], 1000, language)) for language in LANGUAGES}) == 1
