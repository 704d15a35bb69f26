"""A bounded ring of samples per service: what its engine did in the last day.

The launcher writes a row every ten seconds while the engine answers: one request for its metrics
and one insert. Rows keep the engine's counters as they are, so that every rate is computed from
what was counted. A damaged or locked file costs the history, not the service.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.background import Loop
from gaudi_launch.core.base.optional import total
from gaudi_launch.core.host import hl_smi_text, shared_hl_smi, sysfs
from gaudi_launch.core.host.files import FolderFiles
from gaudi_launch.core.services.energy import FILE_NAME, LOCK_SECONDS, day_of, query
from gaudi_launch.core.services.engine_counters import (
    COUNTER_FIELDS,
    EngineCounters,
    counters_of,
    grown,
    rates,
)

_log = logging.getLogger(__name__)

EVERY_SECONDS = 10.0
# a day
MOST_ROWS = 8640
_ASK_SECONDS = 5.0
# a longer gap (a suspended machine, an engine that restarted) is not filled with energy
_LONGEST_GAP_SECONDS = 3 * EVERY_SECONDS
_JOINED = ", ".join(COUNTER_FIELDS)
_TABLES = (
    "CREATE TABLE IF NOT EXISTS samples (at REAL PRIMARY KEY, power_w REAL, "
    + ", ".join(f"{name} REAL" for name in COUNTER_FIELDS)
    + ")",
    "CREATE TABLE IF NOT EXISTS energy (day TEXT PRIMARY KEY, joules REAL, tokens REAL)",
)


@dataclass(frozen=True)
class HistoryRow:
    """One reading: Unix seconds, the cards' power in W, and the counters."""

    at: float
    power_w: float | None
    counters: EngineCounters


@dataclass(frozen=True)
class HistoryPoint:
    """The changes between two readings, at the time of the second.

    TTFT and TPOT are means in seconds; ``preemptions`` are those in between.
    """

    at: float
    running: float | None = None
    waiting: float | None = None
    kv_use: float | None = None
    tokens_per_second: float | None = None
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    preemptions: float | None = None
    power_w: float | None = None

    @property
    def load(self) -> float | None:
        """Return the requests that the engine had, running or waiting."""
        if self.running is None and self.waiting is None:
            return None
        return (self.running or 0.0) + (self.waiting or 0.0)


class HistoryRing:
    """The history of one service, open for writing. Raises sqlite3.Error."""

    def __init__(self, folder: Path) -> None:
        self._data = sqlite3.connect(
            folder / FILE_NAME, timeout=LOCK_SECONDS, check_same_thread=False
        )
        # makes each insert cheap; a crash of the machine may lose the last rows
        self._data.execute("PRAGMA synchronous = OFF")
        self._data.execute("PRAGMA auto_vacuum = INCREMENTAL")
        for table in _TABLES:
            self._data.execute(table)
        self._data.commit()
        self._last: HistoryRow | None = None

    def add(self, row: HistoryRow) -> None:
        """Add a row, remove what is too old, and count the energy since the row before."""
        marks = ", ".join("?" for _ in range(len(COUNTER_FIELDS) + 2))
        values = row.counters.values()
        with self._data:
            self._data.execute(
                f"INSERT OR REPLACE INTO samples (at, power_w, {_JOINED}) VALUES ({marks})",
                (row.at, row.power_w, *(values[name] for name in COUNTER_FIELDS)),
            )
            self._data.execute(
                (
                    "DELETE FROM samples WHERE at <= (SELECT at FROM samples ORDER BY at DESC "
                    "LIMIT 1 OFFSET ?)"
                ),
                (MOST_ROWS,),
            )
            self._count(row)
        self._last = row

    def _count(self, row: HistoryRow) -> None:
        before = self._last
        if before is None or before.power_w is None or row.power_w is None:
            return
        seconds = row.at - before.at
        if not 0 < seconds <= _LONGEST_GAP_SECONDS:
            return
        joules = seconds * (before.power_w + row.power_w) / 2
        per_second = rates(before.counters, row.counters, seconds).tokens_per_second
        day = day_of(row.at)
        self._data.execute(
            "INSERT INTO energy (day, joules, tokens) VALUES (?, ?, ?) "
            "ON CONFLICT (day) DO UPDATE SET joules = joules + excluded.joules, "
            "tokens = tokens + excluded.tokens",
            (day, joules, (per_second or 0.0) * seconds),
        )
        self._data.execute("DELETE FROM energy WHERE day != ?", (day,))

    def close(self) -> None:
        self._data.close()


def read_rows(folder: Path, since: float) -> list[HistoryRow]:
    """Return the rows from a time on, oldest first; empty without a readable history."""
    found = query(
        folder, f"SELECT at, power_w, {_JOINED} FROM samples WHERE at >= ? ORDER BY at", (since,)
    )
    return [
        HistoryRow(at, power, EngineCounters(**dict(zip(COUNTER_FIELDS, values, strict=True))))
        for at, power, *values in found
    ]


def points(rows: Sequence[HistoryRow]) -> list[HistoryPoint]:
    """Return what happened between each two rows."""
    found = []
    for before, after in pairwise(rows):
        between = rates(before.counters, after.counters, after.at - before.at)
        now = after.counters
        found.append(
            HistoryPoint(
                at=after.at,
                running=now.running,
                waiting=now.waiting,
                kv_use=now.kv_use,
                tokens_per_second=between.tokens_per_second,
                ttft_seconds=between.ttft_seconds,
                tpot_seconds=between.tpot_seconds,
                preemptions=grown(before.counters.preemptions, now.preemptions),
                power_w=after.power_w,
            )
        )
    return found


# --- writing ------------------------------------------------------------------------------------


class CardPower:
    """The measured power of some modules, from hl-smi as all programs share it."""

    def __init__(self, modules: Sequence[int]) -> None:
        cards = sysfs.read_cards(FolderFiles(paths.machine_root())) if modules else ()
        by_module = {facts.get("module"): facts.get("index") for facts in cards}
        self._indices = [by_module.get(module) for module in modules]
        self._shared = shared_hl_smi.find() if self._indices and None not in self._indices else None

    def watts(self) -> float | None:
        """Return the sum of all modules; None when one of them is not reported."""
        if self._shared is None:
            return None
        answer = self._shared.latest((), EVERY_SECONDS / 2)
        if answer is None or time.monotonic() - answer.at > EVERY_SECONDS:
            return None
        power = {row.index: row.power_w for row in hl_smi_text.parse_table(answer.output.text).rows}
        return total(power.get(index) for index in self._indices if index is not None)


@contextlib.contextmanager
def written(
    folder: Path,
    url: str,
    modules: Sequence[int],
    *,
    every: float = EVERY_SECONDS,
    read: Callable[[str, float], EngineCounters | None] = counters_of,
) -> Iterator[None]:
    """Write the history of an engine in the background while the block runs."""
    writer = _Writer(folder, url, modules, read)
    loop = Loop(writer.write, every, lambda error: writer.close(), writer.close)
    loop.start()
    try:
        yield
    finally:
        loop.stop()


@dataclass
class _Writer:
    """Writes a row of an engine's counters per call; opens the files at the first."""

    folder: Path
    url: str
    modules: Sequence[int]
    read: Callable[[str, float], EngineCounters | None]
    ring: HistoryRing | None = None
    power: CardPower | None = None

    def write(self) -> None:
        counters = self.read(self.url, _ASK_SECONDS)
        if counters is None:
            return
        self.ring = self.ring or HistoryRing(self.folder)
        self.power = self.power or CardPower(self.modules)
        self.ring.add(HistoryRow(time.time(), self.power.watts(), counters))

    def close(self) -> None:
        """Close the files; the next row opens them again."""
        if self.ring is not None:
            self.ring.close()
        self.ring = None
