"""Run a command as a user does, and compare what it prints with a golden file."""

from __future__ import annotations

import os

import pytest

from gaudi_launch.cli.main import run
from tests.support.places import DATA


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def golden(name: str, text: str) -> None:
    path = DATA / "golden" / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def stripped(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())
