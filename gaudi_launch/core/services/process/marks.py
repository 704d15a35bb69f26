"""Find the service of a process: by the mark in its environment, or by its log.

The mark is read as in proc_pid_environ(5). vLLM's core and workers, which use the cards, set a
title, which overwrites their environment as /proc shows it (py-setproctitle; seen with vLLM's CPU
build).
"""

from __future__ import annotations

import os
from pathlib import Path

from gaudi_launch.core.services.process.lineage import seen_by
from gaudi_launch.core.services.state.store import is_name

# the folder of a service, in the environment of all processes of its engine
MARK = "GAUDI_LAUNCH_SERVICE"
_MOST_ENVIRON = 1 << 20


def is_of(pid: int, service: str, folder: Path) -> bool:
    """Return True if the folder that a process names is this folder.

    Equal paths alone prove nothing.
    """
    try:
        return seen_by(pid, Path(service)).samefile(folder)
    except OSError:
        return False


def service_of(pid: int) -> str | None:
    """Return the folder of a process's service, as the process sees it, or None."""
    return _by_environment(f"/proc/{pid}") or _by_log(pid)


def _by_environment(process: str) -> str | None:
    mark = f"{MARK}=".encode()
    try:
        with Path(process, "environ").open("rb") as file:
            content = file.read(_MOST_ENVIRON)
    except OSError:
        return None
    words = content.split(b"\0") if mark in content else []
    return next((os.fsdecode(word[len(mark) :]) for word in words if word.startswith(mark)), None)


def _by_log(pid: int) -> str | None:
    """Return the service to whose log its output or its errors go."""
    for number in (1, 2):
        try:
            target = Path(f"/proc/{pid}/fd/{number}").readlink()
        except OSError:
            continue
        # a log that was renamed for a later run is .1
        if target.name.removesuffix(".1") != "engine.log" or not is_name(target.parent.name):
            continue
        folder = target.parent
        if folder.parent.name == "services" and _has_state(pid, folder):
            return str(folder)
    return None


def _has_state(pid: int, folder: Path) -> bool:
    try:
        return (seen_by(pid, folder) / "state.json").is_file()
    except OSError:
        return False
