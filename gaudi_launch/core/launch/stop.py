"""The use cases of ``gaudi-launch stop`` and ``restart``.

They end services or their remaining processes, and start a service again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.launch.report import Reporter
from gaudi_launch.core.planning.exported import SECRETS
from gaudi_launch.core.services.process import detach
from gaudi_launch.core.services.run_record import read_run_record
from gaudi_launch.core.services.state import orphans
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.core.services.state.job import read_job
from gaudi_launch.core.services.state.orphans import Orphan
from gaudi_launch.core.services.state.registry import ServiceRecord
from gaudi_launch.core.services.stop import Stopped, still_busy, stop, tidy

_LONGEST_DRAIN_SECONDS = 86400
# by what `core.services.stop.stop` waits for
_WAITED_FOR = {
    "drain": "services.stop_drain",
    "connections": "services.stop_connections",
    "end": "services.stop_end",
}


def check_drain(seconds: float) -> None:
    """Raise LaunchError (USAGE) for a drain of more than a day."""
    if not 0 <= seconds <= _LONGEST_DRAIN_SECONDS:
        raise LaunchError("services.drain", ExitCode.USAGE, found=seconds)


def end(
    service: ServiceRecord, drain: float, reporter: Reporter, *, forget: bool = False
) -> Stopped:
    """End a service, reporting each thing that is waited for once.

    ``forget`` removes its folder.

    Raises LaunchError when a process of it cannot be ended.
    """
    shown = ""

    def say(what: str, value: float) -> None:
        nonlocal shown
        if what == shown:
            return
        shown = what
        reporter.say(text(_WAITED_FOR[what], name=service.name, count=f"{value:.0f}"))

    stopped = stop(service, drain, say)
    if stopped.deaf:
        raise left_error(stopped.deaf)
    busy = tuple(still_busy(service.modules))
    run = read_run_record(service.folder, service.state.get("engine_began"))
    if forget:
        shutil.rmtree(service.folder, ignore_errors=True)
    return replace(stopped, busy=busy, run=run)


def end_orphans(found: Sequence[Orphan]) -> list[Orphan]:
    """End processes of ended launchers, and remove their files.

    Return those that did not end.
    """
    left = orphans.end(found)
    # files of a process in another container have other paths here
    for folder in {orphan.service for orphan in found if not orphan.elsewhere}:
        tidy(Path(folder))
    return left


def left_error(left: Sequence[Orphan]) -> LaunchError:
    """Return the error of processes that did not end."""
    pids = ", ".join(str(orphan.process.pid) for orphan in left)
    return LaunchError("services.orphans_left", ExitCode.FAILED, pids=pids)


def restart(name: str, drain: float, reporter: Reporter) -> None:
    """End a service if it runs, and start it detached with the same settings.

    Return before it answers. Raises LaunchError; without the secrets that it needs (USAGE) before
    the running one is ended.
    """
    service = find(name)
    job = read_job(service.folder)
    missing = [name for name in SECRETS if name in job.secrets and not os.environ.get(name)]
    if missing:
        raise LaunchError("services.secrets", ExitCode.USAGE, name=name, names=", ".join(missing))
    check_drain(drain)
    # an engine whose card is still in use fails: the driver takes a moment to release it
    ended = end(service, drain, reporter)
    if ended.busy:
        cards = ",".join(map(str, ended.busy))
        raise LaunchError("services.cards_taken", ExitCode.MACHINE, name=name, cards=cards)
    detach.start_detached(job, os.environ)
