"""The record of a run of simulated cards: whether it was as fast as the cards.

The executor in the engine's process writes one file for each copy of the model
(engines/simulated/runtime) into the service's folder.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.reader import read_json

_log = logging.getLogger(__name__)

_FILES = "simulated-*.json"
# as engines/simulated/runtime/gaudi_simulated_card.py
_BEHIND_SHARE = 0.02


@dataclass(frozen=True)
class RunRecord:
    """The steps of a run on all copies, and the host's delay.

    ``late`` steps were sent or fetched after their time; the host was ``behind_seconds`` late in
    ``busy_seconds`` of steps. ``host_ms`` are milliseconds of the processor per step at the largest
    batch. ``real_time`` False: the simulated cards waited for the host.
    """

    steps: int
    late: int
    busy_seconds: float
    behind_seconds: float
    host_ms: float | None
    batch: int
    time_scale: float
    real_time: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "late_steps": self.late,
            "busy_seconds": round(self.busy_seconds, 3),
            "behind_seconds": round(self.behind_seconds, 3),
            "host_ms_per_step": self.host_ms,
            "batch": self.batch,
            "time_scale": self.time_scale,
            "real_time": self.real_time,
        }

    def after(self, earlier: RunRecord) -> RunRecord:
        """Return the record of the steps after an earlier record of this run."""
        busy = self.busy_seconds - earlier.busy_seconds
        behind = self.behind_seconds - earlier.behind_seconds
        return replace(
            self,
            steps=self.steps - earlier.steps,
            late=self.late - earlier.late,
            busy_seconds=busy,
            behind_seconds=behind,
            real_time=behind <= _BEHIND_SHARE * busy,
        )


def read_run_record(folder: Path, since: object) -> RunRecord | None:
    """Return the record of a service's run; None without a step."""
    found = run_so_far(folder, since)
    if found is None or not found.steps:
        return None
    return found


def run_so_far(folder: Path, since: object) -> RunRecord | None:
    """Return the record of a service's run, also before its first step.

    None without a file. ``since`` is the time of the engine's start, as its state has it: an
    earlier run may have had more copies.
    """
    began = since if isinstance(since, (int, float)) else 0.0
    read = (_read(path, began) for path in sorted(folder.glob(_FILES)))
    found = [each for each in read if each is not None]
    if not found:
        return None
    largest = max(found, key=lambda each: each.batch)
    return RunRecord(
        steps=sum(each.steps for each in found),
        late=sum(each.late for each in found),
        busy_seconds=sum(each.busy_seconds for each in found),
        behind_seconds=sum(each.behind_seconds for each in found),
        host_ms=largest.host_ms,
        batch=largest.batch,
        time_scale=largest.time_scale,
        real_time=all(each.real_time for each in found),
    )


def _read(path: Path, began: float) -> RunRecord | None:
    """Return the record of one copy; None for a file that is older or none."""
    try:
        if path.stat().st_mtime < began:
            return None
        document = read_json(path)
        batches = {int(batch): times for batch, times in document["batches"].items()}
        batch = max(batches, default=0)
        return RunRecord(
            steps=int(document["steps"]),
            late=int(document["late_steps"]),
            busy_seconds=float(document["busy_seconds"]),
            behind_seconds=float(document["behind_seconds"]),
            host_ms=float(batches[batch]["host_ms"]) if batches else None,
            batch=batch,
            time_scale=float(document["time_scale"]),
            real_time=document["real_time"] is True,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.debug("the record of simulated cards is not read: %s", error)
        return None
