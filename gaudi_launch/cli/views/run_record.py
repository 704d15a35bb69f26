"""The run of simulated cards in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaudi_launch.core.base.messages import text


def run_line(run: Mapping[str, Any]) -> str:
    """Return a sentence on the speed of a run, with its numbers.

    ``run`` is the object of `core.services.run_record.RunRecord`.
    """
    behind, busy = run["behind_seconds"], run["busy_seconds"]
    host = text("simulated.host_unknown")
    if run["host_ms_per_step"] is not None:
        host = text("simulated.host", ms=f"{run['host_ms_per_step']:.1f}", batch=run["batch"])
    return text(
        "simulated.in_time" if run["real_time"] else "simulated.behind",
        steps=f"{run['steps']:,}",
        late=f"{run['late_steps']:,}",
        seconds=f"{behind:.1f}",
        percent=f"{100 * behind / busy if busy else 0:.1f}",
        scale=f"{run['time_scale']:g}",
        host=host,
    )
