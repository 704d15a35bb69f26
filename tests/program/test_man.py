"""Manual pages: one for each command, in roff that groff accepts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gaudi_launch.cli.table import COMMANDS
from tests.support.help_texts import all_commands
from tests.support.scripts import script

pytestmark = pytest.mark.usefixtures("plain_english")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    made: dict[str, str] = script("man").pages()
    return made


def test_every_command_has_a_page(pages: dict[str, str]) -> None:
    shown = [each.path for each in all_commands() if not each.command.hidden]
    expected = {"-".join(("gaudi-launch", *path.split())) + ".1" for path in shown}
    assert set(pages) == expected


def test_a_page_has_its_parts(pages: dict[str, str]) -> None:
    page = pages["gaudi-launch-help.1"]
    parts = [line[4:] for line in page.splitlines() if line.startswith(".SH ")]
    assert parts == [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        '"ARGUMENTS"',
        '"OPTIONS"',
        "EXAMPLES",
        "EXIT STATUS",
        "SEE ALSO",
    ]
    assert "\\fBgaudi\\-launch help alerts\\fR" in page
    assert ".BR gaudi-launch (1)" in page


def test_the_program_refers_to_every_command(pages: dict[str, str]) -> None:
    page = pages["gaudi-launch.1"]
    assert [name for name in COMMANDS if f".BR gaudi-launch-{name} (1)" not in page] == []


def test_a_text_is_never_a_control_line() -> None:
    escaped = script("man")._escaped
    assert escaped(".so x") == "\\&.so x"
    assert escaped("'a -b\\n") == "\\&'a \\-b\\en"


def test_groff_accepts_the_pages(pages: dict[str, str], tmp_path: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    wrong = {}
    for name, text in pages.items():
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [groff, "-man", "-Tutf8", "-ww", str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0 or done.stderr:
            wrong[name] = done.stderr
    assert wrong == {}
