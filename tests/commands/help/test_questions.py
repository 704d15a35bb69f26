"""Questions of public threads, asked to the real command."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from tests.support.cli import output
from tests.support.places import DATA

QUESTIONS = yaml.safe_load((DATA / "questions.yaml").read_text(encoding="utf-8"))
MACHINE = ("--machine", "simulated:hls2")

pytestmark = pytest.mark.usefixtures("plain_english")


@pytest.mark.parametrize("row", QUESTIONS, ids=lambda row: row["thread"])
def test_a_question_of_a_thread_is_answered(
    row: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    command, *words = shlex.split(row["command"])
    machine = MACHINE if command == "plan" else ()
    code, out, err = output(capsys, command, *machine, *words)
    answer = " ".join((out + err).split())
    missing = [each for each in row["has"] if each not in answer]
    wrong = [each for each in row.get("lacks", ()) if each in answer]
    assert (code, missing, wrong) == (row["exit"], [], []), answer
