"""Engine processes whose launcher has ended.

They are recognised by their marks (`core.services.process.marks`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.services.process.lineage import Above, above, seen_by, shares_our_files
from gaudi_launch.core.services.process.marks import is_of, service_of
from gaudi_launch.core.services.state import identity
from gaudi_launch.core.services.state.identity import Identity
from gaudi_launch.core.services.state.registry import LockAnswer, ask_lock, hold, services

_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Orphan:
    """One process.

    ``service`` is the folder of the service that it belongs to, as the process sees it. ``doubt``
    is the reason why it is unknown whether its launcher runs; None: it has ended. ``elsewhere``:
    the process sees other files than this one, as in a container.
    """

    process: Identity
    command: str
    service: str
    doubt: Message | None = None
    elsewhere: bool = False

    def to_json(self) -> dict[str, object]:
        document: dict[str, object] = {
            "pid": self.process.pid,
            "command": self.command,
            "service": Path(self.service).name,
            "folder": self.service,
        }
        if self.doubt is not None:
            document["reason"] = self.doubt.render()
        return document


def orphans(folder: Path | None = None) -> list[Orphan]:
    """Return the running processes of services whose launcher has ended.

    Of one service or of all.
    """
    return [orphan for orphan in look(folder) if orphan.doubt is None]


def prune() -> list[str]:
    """Remove the folders of failed services; return their names.

    A service whose processes still run keeps its folder, by which they are found.
    """
    removed = []
    for service in services():
        if not service.failed or look(service.folder):
            continue
        with contextlib.suppress(LaunchError), hold(service.name):
            shutil.rmtree(service.folder, ignore_errors=True)
            removed.append(service.name)
    return removed


def look(folder: Path | None = None) -> list[Orphan]:
    """Find the running processes of a service's engine without a visible launcher.

    Only processes whose environment this user may read are seen: this user's, or all as root.
    ``folder`` limits it to one service of this user.
    """
    found = []
    for pid, service in _marked():
        if folder is not None and not is_of(pid, service, folder):
            continue
        orphan = _judge(pid, service)
        if orphan is not None:
            found.append(orphan)
    return sorted(found, key=lambda orphan: orphan.process.pid)


def _judge(pid: int, service: str) -> Orphan | None:
    """Return the process with the known facts of its launcher.

    Return None when the launcher is running, or the process is gone. A launcher has ended only when
    its lock is free and no launcher is above the process.
    """
    answer = _ask_lock(pid, service)
    if answer.held:
        return None
    ancestors = above(pid)
    if answer.held is None and ancestors is Above.LAUNCHER:
        return None
    who = identity.of(pid)
    if who is None:
        return None
    elsewhere = _is_elsewhere(pid)
    why = doubt(service, answer, ancestors, elsewhere=elsewhere)
    return Orphan(who, _command(pid), service, why, elsewhere)


def _ask_lock(pid: int, service: str) -> LockAnswer:
    """Read the lock of a service's folder where the process sees it."""
    try:
        return ask_lock(seen_by(pid, Path(service)))
    except OSError as error:
        return LockAnswer(None, error.strerror or str(error))


def doubt(service: str, answer: LockAnswer, ancestors: Above, *, elsewhere: bool) -> Message | None:
    """Return the reason why it is unknown whether a process's launcher runs.

    Return None where it has ended. ``answer`` is not "held": that is a running launcher.
    """
    if answer.held is None:
        return message("services.doubt_lock", path=service, why=answer.why)
    if ancestors is Above.LAUNCHER:
        return message("services.doubt_launcher")
    # a free lock among our own files is that of the launcher
    if ancestors is Above.HIDDEN and elsewhere:
        return message("services.doubt_hidden")
    return None


def _is_elsewhere(pid: int) -> bool:
    try:
        return not shares_our_files(pid)
    except OSError:
        return True


def _marked() -> Iterator[tuple[int, str]]:
    """Yield the processes of services, with the service's folder."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        service = service_of(int(entry.name))
        if service is not None:
            yield int(entry.name), service


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return "?"
    return (
        re.sub(r"[^\x20-\x7e]", "?", b" ".join(words).decode("utf-8", errors="replace"))[:200]
        or "?"
    )


def end(found: Iterable[Orphan]) -> list[Orphan]:
    """End exactly these: SIGTERM, wait, SIGKILL; return those that remain."""
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
