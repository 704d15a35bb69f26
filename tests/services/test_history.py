"""The ring of samples of a service: bounded, cheap, and never the end of the service."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from gaudi_launch.host.simulated import write_tree
from gaudi_launch.services import history
from gaudi_launch.services.engine_counters import EngineCounters
from gaudi_launch.services.history import (
    CardPower,
    DayEnergy,
    HistoryPoint,
    HistoryRing,
    HistoryRow,
    points,
    read_energy,
    read_rows,
    written,
)
from tests.support.clock import utc
from tests.support.machines import use
from tests.support.waiting import GENEROUS

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


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = [row(0, 300.0, running=2, ttft_sum=0.5), row(10, None, running=3, kv_use=0.5)]
    filled(tmp_path, *rows)
    assert read_rows(tmp_path, 0) == rows
    assert read_rows(tmp_path, NOON + 5) == rows[1:]


def test_the_ring_keeps_the_newest_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_ROWS", 100)
    filled(tmp_path, *(row(10 * number, running=number) for number in range(350)))
    found = read_rows(tmp_path, 0)
    assert [found[0].counters.running, found[-1].counters.running, len(found)] == [250, 349, 100]


def test_points_are_what_happened_between_two_rows() -> None:
    rows = [
        row(0, running=1, generated=0, ttft_sum=0, ttft_count=0, preemptions=4),
        row(
            10,
            250.0,
            running=2,
            waiting=3,
            kv_use=0.5,
            generated=500,
            ttft_sum=2,
            ttft_count=4,
            preemptions=6,
        ),
        # the engine restarted
        row(20, 260.0, running=0, generated=10, ttft_sum=0, ttft_count=0, preemptions=0),
    ]
    first, second = points(rows)
    assert first == HistoryPoint(NOON + 10, 2, 3, 0.5, 50.0, 0.5, None, 2.0, 250.0)
    assert first.load == 5
    assert second == HistoryPoint(NOON + 20, 0, None, None, None, None, None, None, 260.0)
    assert points(rows[:1]) == [] and HistoryPoint(0.0).load is None


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
    (tmp_path / history.FILE_NAME).write_bytes(b"no database at all" * 100)
    assert (read_rows(tmp_path, 0), read_energy(tmp_path, NOON)) == ([], None)


def until(condition: object, path: Path, count: int) -> list[HistoryRow]:
    deadline = time.monotonic() + GENEROUS
    while len(found := read_rows(path, 0)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_it_is_written_while_the_engine_answers(tmp_path: Path) -> None:
    answers = iter([None, EngineCounters(running=1), None, EngineCounters(running=2)])
    with written(
        tmp_path, "http://x", (), every=0.01, read=lambda url, seconds: next(answers, None)
    ):
        found = until(None, tmp_path, 2)
    assert [each.counters.running for each in found] == [1, 2]
    assert [each.power_w for each in found] == [None, None]


def test_an_engine_that_never_answers_leaves_no_file(tmp_path: Path) -> None:
    asked: list[str] = []

    def read(url: str, seconds: float) -> None:
        asked.append(url)

    with written(tmp_path, "http://x", (), every=0.01, read=read):
        deadline = time.monotonic() + GENEROUS
        while len(asked) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_ends_the_history_only(tmp_path: Path) -> None:
    (tmp_path / history.FILE_NAME).write_bytes(b"no database at all" * 100)
    with pytest.raises(sqlite3.Error):
        HistoryRing(tmp_path)
    with written(
        tmp_path, "http://x", (), every=0.01, read=lambda url, seconds: EngineCounters(running=1)
    ):
        time.sleep(0.1)


def test_the_power_of_modules_is_read_by_their_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    programs = write_tree("hls2+busy=1", tmp_path / "root")
    use(monkeypatch, tmp_path / "root", programs)
    # hls2: module 1 has index 4 and is busy (420 W), module 2 is idle (87 W)
    assert CardPower((1, 2)).watts() == 507.0
    assert CardPower(()).watts() is None
    assert CardPower((1, 9)).watts() is None
