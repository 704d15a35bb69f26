"""Questions to hl-smi: what is run, what is asked next, and what an answer without cards means."""

from __future__ import annotations

from pathlib import Path

from gaudi_launch.core.host import hl_smi
from gaudi_launch.core.host.hl_smi import CARD_FIELDS, HlSmiOutput

WIDE, SHORT, LEAST = (f"-Q {','.join(fields)} -f csv" for fields in CARD_FIELDS)


def test_a_program_that_cannot_be_run_is_a_problem(tmp_path: Path) -> None:
    assert hl_smi.run(str(tmp_path / "none"), ["-L"]) == HlSmiOutput(
        problem="'hl-smi -L' cannot be run: No such file or directory"
    )
