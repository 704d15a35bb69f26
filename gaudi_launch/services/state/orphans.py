"""Engine processes whose launcher is gone.

They are known by the mark in their environment (proc_pid_environ(5)), or by the service's log that they write to:
vLLM's core and workers, which hold the cards, give themselves a title, which overwrites their environment as /proc
shows it (py-setproctitle; seen with vLLM's CPU build).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.services import identity
from gaudi_launch.services.identity import Identity
from gaudi_launch.services.registry import is_held
from gaudi_launch.services.state import is_name

# the folder of a service, in the environment of everything that its engine starts
MARK = "GAUDI_LAUNCH_SERVICE"
_MOST_ENVIRON = 1 << 20
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Orphan:
    """One process. ``service`` is the folder of the service that it belonged to."""

    process: Identity
    command: str
    service: str

    def to_json(self) -> dict[str, object]:
        return {
            "pid": self.process.pid,
            "command": self.command,
            "service": Path(self.service).name,
            "folder": self.service,
        }


def orphans(folder: Path | None = None) -> list[Orphan]:
    """Living processes that a service's engine started and whose launcher does not live; of one service or of all.

    Only processes whose environment this user may read are seen: one's own, or everybody's as root.
    """
    alive: dict[str, bool] = {}
    found = []
    wanted = None if folder is None else folder.resolve()
    for pid, service in _marked():
        if wanted is not None and Path(service).resolve() != wanted:
            continue
        if service not in alive:
            alive[service] = is_held(Path(service))
        who = None if alive[service] else identity.of(pid)
        if who is not None:
            found.append(Orphan(who, _command(pid), service))
    return sorted(found, key=lambda orphan: orphan.process.pid)


def _marked() -> Iterator[tuple[int, str]]:
    """Processes of services, with the service's folder."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        service = _by_environment(entry.path) or _by_log(entry.path)
        if service is not None:
            yield int(entry.name), service


def _by_environment(process: str) -> str | None:
    mark = f"{MARK}=".encode()
    try:
        with Path(process, "environ").open("rb") as file:
            content = file.read(_MOST_ENVIRON)
    except OSError:
        return None
    words = content.split(b"\0") if mark in content else []
    return next((os.fsdecode(word[len(mark) :]) for word in words if word.startswith(mark)), None)


def _by_log(process: str) -> str | None:
    """The service whose log its output or its errors go to."""
    for number in (1, 2):
        try:
            target = Path(f"{process}/fd/{number}").readlink()
        except OSError:
            continue
        # a log that was put aside for a later life is .1
        if target.name.removesuffix(".1") == "engine.log" and is_name(target.parent.name):
            folder = target.parent
            if folder.parent.name == "services" and (folder / "state.json").is_file():
                return str(folder)
    return None


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return "?"
    return re.sub(r"[^\x20-\x7e]", "?", b" ".join(words).decode("utf-8", errors="replace"))[:200] or "?"


def end(found: Iterable[Orphan]) -> list[Orphan]:
    """End exactly these: ask, wait, kill. Those that could not be ended."""
    waiting = [orphan for orphan in found if _send(orphan, signal.SIGTERM)]
    waiting = _wait(waiting, _PATIENCE_SECONDS)
    waiting = [orphan for orphan in waiting if _send(orphan, signal.SIGKILL)]
    return _wait(waiting, _PATIENCE_SECONDS)


def _send(orphan: Orphan, number: signal.Signals) -> bool:
    with contextlib.suppress(PermissionError):
        return orphan.process.send(number)
    return True


def _wait(waiting: list[Orphan], seconds: float) -> list[Orphan]:
    deadline = time.monotonic() + seconds
    while waiting and time.monotonic() < deadline:
        waiting = [orphan for orphan in waiting if orphan.process.alive]
        if waiting:
            time.sleep(0.05)
    return waiting
