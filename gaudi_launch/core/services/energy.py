"""The measured energy of services, read from their histories."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.services.state.registry import services

_log = logging.getLogger(__name__)

# a service's history, which `core.services.history` writes
FILE_NAME = "history.sqlite"
LOCK_SECONDS = 2.0


@dataclass(frozen=True)
class DayEnergy:
    """The measured energy of a service on a day of local time, and its tokens."""

    joules: float
    tokens: float

    @property
    def kwh(self) -> float:
        return self.joules / 3.6e6

    @property
    def joules_per_token(self) -> float | None:
        if not self.tokens:
            return None
        return self.joules / self.tokens


def read_energy(folder: Path, at: float) -> DayEnergy | None:
    """Return the energy of the day of this time; None if it was not the last one."""
    rows = query(folder, "SELECT joules, tokens FROM energy WHERE day = ?", (day_of(at),))
    if not rows:
        return None
    return DayEnergy(*rows[0])


def energy_of_modules() -> dict[int, DayEnergy]:
    """Return the energy of running services since midnight, by module ID."""
    now = time.time()
    found = {}
    for service in services():
        energy = read_energy(service.folder, now)
        if service.alive and energy is not None:
            found.update(dict.fromkeys(service.modules, energy))
    return found


def day_of(at: float) -> str:
    """Return the day of local time at these Unix seconds."""
    return time.strftime("%Y-%m-%d", time.localtime(at))


def query(folder: Path, query: str, values: Sequence[float | str]) -> list[tuple]:  # type: ignore[type-arg]
    """Return the rows of a query; empty without a readable history."""
    path = folder / FILE_NAME
    if not path.is_file():
        return []
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=LOCK_SECONDS)
        ) as data:
            return list(data.execute(query, values))
    except sqlite3.Error as error:
        _log.debug("the history is not read: %s", error)
        return []
