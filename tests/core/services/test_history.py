"""The ring of samples of a service: bounded, cheap, and never the end of the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.services import energy
from gaudi_launch.core.services.energy import DayEnergy, read_energy
from gaudi_launch.core.services.engine_counters import EngineCounters
from gaudi_launch.core.services.history import HistoryRing, HistoryRow, read_rows
from tests.support.clock import utc

# 12:00 UTC
NOON = 1_800_014_400.0


__all__ = ["utc"]
pytestmark = pytest.mark.usefixtures("utc")


def row(second: float, power: float | None = None, **counters: float) -> HistoryRow:
    return HistoryRow(NOON + second, power, EngineCounters(**counters))


def filled(folder: Path, *rows: HistoryRow) -> None:
    ring = HistoryRing(folder)
    for each in rows:
        ring.add(each)
    ring.close()


def test_energy_is_counted_by_day_from_measured_power_only(tmp_path: Path) -> None:
    half = 43_195
    filled(
        tmp_path,
        row(0, 100.0, generated=0),
        row(10, 300.0, generated=500),
        row(20, None, generated=600),
        row(30, 300.0, generated=700),
        # a gap of a minute is not filled
        row(90, 300.0, generated=800),
        row(half - 10, 400.0, generated=800),
        row(half, 400.0, generated=800),
        # five seconds of the next day begin at midnight
        row(half + 10, 400.0, generated=900),
    )
    midnight = NOON + half + 5
    assert read_energy(tmp_path, midnight) == DayEnergy(4000.0, 100.0)
    assert (DayEnergy(1.8e6, 90.0).kwh, DayEnergy(1.8e6, 90.0).joules_per_token) == (0.5, 20_000.0)
    assert DayEnergy(4000.0, 0.0).joules_per_token is None
    # the day before is not kept
    assert read_energy(tmp_path, NOON) is None


def test_without_a_history_or_with_a_damaged_one_there_are_no_rows(tmp_path: Path) -> None:
    assert (read_rows(tmp_path, 0), read_energy(tmp_path, NOON)) == ([], None)
    (tmp_path / energy.FILE_NAME).write_bytes(b"no database at all" * 100)
    assert (read_rows(tmp_path, 0), read_energy(tmp_path, NOON)) == ([], None)
