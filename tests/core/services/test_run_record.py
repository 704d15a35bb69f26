"""The record of simulated cards: one file for each copy of the model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gaudi_launch.core.services.run_record import read_run_record, run_so_far

BATCHES = {
    "1": {"steps": 10, "host_ms": 0.3, "longest_ms": 0.5},
    "64": {"steps": 5, "host_ms": 1.5, "longest_ms": 2},
}


def write(folder: Path, rank: int, **changes: Any) -> Path:
    document = {
        "schema": 1, "steps": 100, "late_steps": 2, "busy_seconds": 10.0, "behind_seconds": 0.1,
        "real_time": True, "time_scale": 1.0, "batches": BATCHES,
    }  # fmt: skip
    path = folder / f"simulated-{rank}.json"
    path.write_text(json.dumps({**document, **changes}))
    return path


def test_files_of_an_earlier_run_and_broken_ones_do_not_count(tmp_path: Path) -> None:
    old = write(tmp_path, 1, real_time=False)
    os.utime(old, (1000, 1000))
    write(tmp_path, 0)
    (tmp_path / "simulated-2.json").write_text('{"steps": 3')
    found = read_run_record(tmp_path, 2000.0)
    assert found is not None
    assert (found.steps, found.real_time) == (100, True)


def test_a_part_of_a_run_has_its_own_delay(tmp_path: Path) -> None:
    write(tmp_path, 0, steps=0, busy_seconds=0.0, behind_seconds=0.0, late_steps=0, time_scale=8.0)
    begun = run_so_far(tmp_path, None)
    write(tmp_path, 0, time_scale=8.0)
    first = run_so_far(tmp_path, None)
    write(tmp_path, 0, steps=300, late_steps=9, busy_seconds=12.0, behind_seconds=0.6)
    second = run_so_far(tmp_path, None)
    assert begun is not None and first is not None and second is not None
    assert (begun.steps, begun.time_scale) == (0, 8.0)
    part = second.after(first)
    assert (part.steps, part.late, part.busy_seconds, part.real_time) == (200, 7, 2.0, False)
    assert first.after(begun).real_time
