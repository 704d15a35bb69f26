"""Questions to hl-smi: what is run, what is asked next, and what an answer without cards means."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.host import hl_smi
from gaudi_launch.core.host.hl_smi import CARD_FIELDS, HlSmiOutput

WIDE, SHORT, LEAST = (f"-Q {','.join(fields)} -f csv" for fields in CARD_FIELDS)


def test_a_program_that_cannot_be_run_is_a_problem(tmp_path: Path) -> None:
    assert hl_smi.run(str(tmp_path / "none"), ["-L"]) == HlSmiOutput(
        problem="'hl-smi -L' cannot be run: No such file or directory"
    )


@pytest.mark.parametrize(
    ("script", "text", "problem"),
    [
        ("seq 3", "1\n2\n3\n", ""),
        ("seq 3; exit 3", "1\n2\n3\n", "ended with exit code 3: 3"),
        ("exit 3", "", "ended with exit code 3"),
    ],
)
def test_an_exit_status_is_a_problem(tmp_path: Path, script: str, text: str, problem: str) -> None:
    program = tmp_path / "hl-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    expected = f"'hl-smi -L' {problem}" if problem else ""
    assert hl_smi.run(str(program), ["-L"]) == HlSmiOutput(text, expected or None)
