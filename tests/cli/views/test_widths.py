"""What a terminal shows: no wider line, aligned rows, the same rows in both languages."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import random
import re
import shlex
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from gaudi_launch.cli.main import run
from gaudi_launch.messages import LANGUAGES
from tests.cli.views.test_whole_outputs import COMMANDS, here

__all__ = ["here"]
pytestmark = pytest.mark.usefixtures("plain_english")

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

    def lines(name: str, width: int, language: str) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        written = io.BytesIO()
        with contextlib.redirect_stdout(Terminal(written, encoding="utf-8")) as out:
            run(["--lang", language, *shlex.split(COMMANDS[name][0])])
            out.flush()
        return _ANSI.sub("", written.getvalue().decode()).splitlines()

    return lines


def misaligned(lines: list[str]) -> list[str]:
    """Return the rows below a rule that end elsewhere than it."""
    found, width = [], 0
    for line in lines:
        if _RULE.match(line):
            width = cell_len(line)
        elif not line.strip() or line.strip() == line:
            width = 0
        elif width and cell_len(line) != width:
            found.append(line)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_terminal_gets_no_wider_line_and_aligned_rows(shown: Shown, name: str) -> None:
    # by hand all of them: WIDTHS=6
    cases = [*itertools.product((60, 80, 160), LANGUAGES)]
    count = int(os.environ.get("WIDTHS", "2"))
    for width, language in random.Random(name).sample(cases, count):
        lines = shown(name, width, language)
        wide = [each for each in lines if cell_len(each) > width and not _COPIED.match(each)]
        assert (wide, misaligned(lines)) == ([], []), (width, language)


@pytest.mark.parametrize("name", COMMANDS)
def test_both_languages_have_the_same_rows(shown: Shown, name: str) -> None:
    assert len({len(shown(name, 1000, language)) for language in LANGUAGES}) == 1
