"""The record of simulated cards: one file for each copy of the model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.cli.views.run_record import run_line
from gaudi_launch.services.run_record import read_run_record, run_so_far
from gaudi_launch.services.state import registry, store

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


def test_the_copies_of_a_model_are_one_run(tmp_path: Path) -> None:
    write(tmp_path, 0)
    write(tmp_path, 1, late_steps=30, behind_seconds=4.0, real_time=False)
    found = read_run_record(tmp_path, None)
    assert found is not None
    assert found.to_json() == {
        "steps": 200,
        "late_steps": 32,
        "busy_seconds": 20.0,
        "behind_seconds": 4.1,
        "host_ms_per_step": 1.5,
        "batch": 64,
        "time_scale": 1.0,
        "real_time": False,
    }


def test_files_of_an_earlier_run_and_broken_ones_do_not_count(tmp_path: Path) -> None:
    old = write(tmp_path, 1, real_time=False)
    os.utime(old, (1000, 1000))
    write(tmp_path, 0)
    (tmp_path / "simulated-2.json").write_text('{"steps": 3')
    found = read_run_record(tmp_path, 2000.0)
    assert found is not None
    assert (found.steps, found.real_time) == (100, True)


def test_a_service_without_a_step_has_no_record(tmp_path: Path) -> None:
    assert read_run_record(tmp_path, None) is None
    write(tmp_path, 0, steps=0, batches={})
    assert read_run_record(tmp_path, None) is None
    write(tmp_path, 0, batches={})
    found = read_run_record(tmp_path, None)
    assert found is not None
    assert (found.batch, found.host_ms, found.steps) == (0, None, 100)


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


def test_the_line_names_a_delay(tmp_path: Path) -> None:
    write(tmp_path, 0, behind_seconds=4.0, real_time=False)
    found = read_run_record(tmp_path, None)
    assert found is not None
    line = run_line(found.to_json())
    assert line.startswith(
        "The simulated cards were NOT in time: 2 of 100 steps late, 4.0 s (40.0 %) behind"
    )
    write(tmp_path, 0)
    found = read_run_record(tmp_path, None)
    assert found is not None
    assert "0.1 s" not in run_line(found.to_json())
    assert run_line(found.to_json()).endswith(
        "1.5 ms of the processor per step at up to 64 requests."
    )


@pytest.mark.usefixtures("own_folders")
def test_status_shows_the_delay_of_simulated_cards(capsys: pytest.CaptureFixture[str]) -> None:
    with registry.hold("a"):
        folder = store.service_dir("a")
        store.write(
            folder,
            "state.json",
            {"name": "a", "phase": "stopped", "engine_began": 1.0, "simulated": True},
        )
    write(folder, 0, behind_seconds=4.0, real_time=False)
    assert run(["status", "a"]) == 0
    assert "The simulated cards were NOT in time" in capsys.readouterr().out
    assert run(["status", "a", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["simulated_run"]
    assert (shown["behind_seconds"], shown["real_time"]) == (4.0, False)
