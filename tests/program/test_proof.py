"""Tests that prove nothing by themselves are found from the record of executed lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.places import TOP

FROZEN = "tests/cli/test_main.py::test_a_closed_output_is_no_bug"
TWICE = "tests/extensions/fp8/test_case.py::test_code_of_a_model_needs_consent"
ALONE = "tests/program/test_outcomes.py::test_stop_goes_on_after_a_service_that_cannot_be_stopped"


def test_a_function_without_a_line_of_its_own_is_a_candidate(tmp_path: Path) -> None:
    executed = {FROZEN: "a:1 a:2", TWICE: "a:2", ALONE: "a:2 b:3", "tests/gone.py::test_it": "b:3"}
    for test, lines in executed.items():
        record = tmp_path / test.replace("/", "+") / "17"
        record.parent.mkdir()
        # a killed process leaves half a line
        record.write_text("".join(f"{line}\n" for line in lines.split()) + "gaudi_la")
    words = [sys.executable, str(TOP / "scripts" / "proof.py"), "judge", str(tmp_path)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in shown.splitlines()[1:]]
    assert [(row[0], *row[3:]) for row in rows] == [
        ("yes", "1", "0", TWICE),
        ("no", "2", "1", ALONE),
    ]
