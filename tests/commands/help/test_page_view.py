"""``gaudi-launch help TOPIC``: pages of the documentation in the terminal and in a pipe."""

from __future__ import annotations

import re

import pytest

from gaudi_launch.cli.completion import topics
from gaudi_launch.cli.main import run
from tests.support.cli import reading
from tests.support.places import TOP

pytestmark = pytest.mark.usefixtures("plain_english")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_and_a_pipe_with_columns_get_text(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    monkeypatch.setenv("COLUMNS", "70")
    assert run(["help", "traces"]) == 0
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert "Traces of past requests" in shown and "# Traces" not in shown and "**" not in shown
    assert [line for line in shown.splitlines() if len(line) > 70 or line.endswith(" ")] == []


def test_a_comment_is_for_the_file_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert "<!--" in (TOP / "docs/exit-codes.md").read_text(encoding="utf-8")
    assert run(["help", "exit-codes"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# ") and "<!--" not in out and "-->" not in out


def test_the_list_has_every_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "--list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    files = {path.stem for path in (TOP / "docs").glob("*.md") if not path.stem.endswith("_zh")}
    assert sorted(names) == sorted(files)
    assert names == [each.value for each in topics()]


def test_a_program_gets_the_list_and_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(TOP / "docs" / "traces.md")
    facts = {"name": "traces", "title": "Traces of past requests", "language": "en", "path": path}
    listing = reading(capsys, "help", "--list")
    assert facts in listing["pages"]
    text = (TOP / "docs" / "traces.md").read_text(encoding="utf-8")
    shown = reading(capsys, "help", "traces")
    assert shown == {"schema": 1, "page": {**facts, "text": text}}
