"""Run a command as a user, read its output, and compare it with a golden file."""

from __future__ import annotations

import difflib
import json
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from unittest.mock import patch

import pytest

from gaudi_launch.cli.main import run
from tests.support.places import DATA


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def called(environment: Mapping[str, str], *words: str, given: str = "") -> tuple[int, str, str]:
    """Run a command in this process, with the variables of a user.

    What it starts are processes all the same. Return its exit code, its output and its errors.
    """
    with (
        TemporaryFile("w+", encoding="utf-8") as stdin,
        TemporaryFile("w+", encoding="utf-8") as out,
        TemporaryFile("w+", encoding="utf-8") as err,
        patch.dict(os.environ, environment, clear=True),
        patch.object(sys, "stdin", stdin),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        stdin.write(given)
        stdin.seek(0)
        code = run(list(words))
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run a reading command with ``--json``, which is added when it is missing.

    Return its exit code and the one object that it prints.
    """
    asks = () if "--json" in arguments else ("--json",)
    ours = arguments.index("--") if "--" in arguments else len(arguments)
    code, out, _ = output(capsys, *arguments[:ours], *asks, *arguments[ours:])
    shown: dict[str, Any] = json.loads(out)
    assert shown["schema"] == 1
    return code, shown


def reading(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Return the object of a command that must succeed."""
    code, shown = document(capsys, *arguments)
    assert code == 0, shown
    return shown


def golden(name: str, text: str, folder: Path = DATA / "golden") -> None:
    """Compare a text with a file.

    UPDATE_GOLDEN=1 writes it again, and warns of the difference.
    """
    path = folder / name
    if os.environ.get("UPDATE_GOLDEN"):
        known = path.read_text(encoding="utf-8") if path.is_file() else ""
        lines = difflib.unified_diff(known.splitlines(), text.splitlines(), lineterm="", n=1)
        if known != text:
            path.write_text(text, encoding="utf-8")
            warnings.warn("\n".join((name, *lines)), stacklevel=2)
    assert text == path.read_text(encoding="utf-8")


def stripped(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())
