"""Sets of cards that replicas take and give back.

Runs inside Ray's interpreter; only the standard library.

Ray counts cards (the HPU resource) but assigns their IDs in arbitrary order, and its scheduler is
unaware of link groups. So the launcher plans the sets, and a replica takes a free one by locking
its file. The kernel releases the lock when the replica ends, however it ends; remaining processes
of the former owner's engine are ended first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# the variable that names the folder of a node's locks and logs
FOLDER = "GAUDI_LAUNCH_RAY_DIR"
_PAUSE_SECONDS = 0.2


@dataclass
class Slot:
    """One set of cards with the CPUs of their NUMA node.

    ``handle`` keeps the lock as long as it is open.
    """

    number: int
    modules: tuple[int, ...]
    cpus: tuple[int, ...]
    memory_node: int | None
    folder: Path
    handle: int
    group: str = ""

    @property
    def log(self) -> Path:
        return log_of(self.folder, self.number, self.group)

    def output(self) -> Any:
        """Return this set's log file for the engine's output, to be opened by ``with``.

        None is the node's output, where Ray's goes too, as it does in a pod.
        """
        to_node = os.environ.get("RAY_LOG_TO_STDERR") == "1"
        if to_node:
            return contextlib.nullcontext()
        return self.log.open("ab")

    def say(self, text: str) -> None:
        """Write one of the replica's lines among the engine's."""
        with self.output() as log:
            os.write(1 if log is None else log.fileno(), f"gaudi-launch ray: {text}\n".encode())

    def sign(self, session: int) -> None:
        """Record the engine's session for the next owner of this set."""
        content = json.dumps({"session": session, "started": start_time(session)}).encode()
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, content, 0)

    def fail(self, why: str) -> None:
        """Record that an engine could not be started here.

        The head then ends a first deployment.
        """
        (self.folder / f"{name_of(self.number, self.group)}.failed").write_text(
            why, encoding="utf-8"
        )


def folder() -> Path:
    """Return the folder of this node's locks and logs of sets.

    It is the head's folder, else one of the user's.
    """
    own = os.environ.get(FOLDER)
    if own:
        return Path(own)
    return Path(tempfile.gettempdir()) / f"gaudi-launch-ray-{os.getuid()}"


def name_of(number: int, group: str = "") -> str:
    """Return the name of a set's files.

    ``group`` is the deployment, "" where there is only one.
    """
    if group:
        return f"slot-{group}-{number}"
    return f"slot-{number}"


def log_of(folder: Path, number: int, group: str = "") -> Path:
    return folder / f"{name_of(number, group)}.log"


def claim(
    folder: Path, sets: Sequence[dict[str, Any]], timeout: float = 60.0, group: str = ""
) -> Slot:
    """Return a free set of a deployment (``group``; "" where there is only one).

    Waits for one: a replica that ends gives its HPUs back a moment before its process is gone.

    Raises RuntimeError when there is none within ``timeout`` seconds, or when the folder is
    another user's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        # its name below /tmp can be guessed
        raise RuntimeError(f"{folder} is not ours")
    deadline = time.monotonic() + timeout
    while True:
        for number, each in enumerate(sets):
            lock = folder / f"{name_of(number, group)}.lock"
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                continue
            end_leftovers(handle)
            modules = tuple(each.get("modules", ()))
            cpus = cpus_of(each.get("cpus", "")) or (() if modules else share(number, len(sets)))
            return Slot(number, modules, cpus, each.get("memory_node"), folder, handle, group)
        if time.monotonic() > deadline:
            raise RuntimeError(f"none of the {len(sets)} planned sets of cards is free")
        time.sleep(_PAUSE_SECONDS)


def cpus_of(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list as the kernel writes it: 0-3,8."""
    ranges = [word.partition("-") for word in text.split(",") if word]
    return tuple(
        cpu
        for first, dash, last in ranges
        for cpu in range(int(first), int(last if dash else first) + 1)
    )


def share(number: int, count: int) -> tuple[int, ...]:
    """Return this set's part of the CPUs of a node without cards.

    Engines then do not bind to the same CPUs.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < count:
        return ()
    return tuple(cpus[number * len(cpus) // count : (number + 1) * len(cpus) // count])


def plain_json(text: str | bytes) -> Any:
    """Return a JSON text's document. Raises ValueError.

    A copy of gaudi_launch/core/base/plain_json.py of the launcher: Ray has these files alone.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a repeated key")
        return dict(pairs)

    if len(text) > 1 << 26:
        raise ValueError("too large")
    try:
        document = json.loads(text, object_pairs_hook=once)
        # NaN, infinities and lone surrogates
        json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("too deep") from None
    level = [document]
    for _ in range(65):
        if any(isinstance(each, int) and abs(each) >= 2**64 for each in level):
            raise ValueError("a number of more than 64 bits")
        lists = [each for each in level if isinstance(each, list)]
        lists += [list(each.values()) for each in level if isinstance(each, dict)]
        level = [each for values in lists for each in values]
        if not level:
            return document
    raise ValueError("too deep")


def end_leftovers(handle: int) -> None:
    """End remaining processes of the former owner's engine: they would use the cards."""
    try:
        found = plain_json(os.pread(handle, 4096, 0) or b"{}")
        session, started = int(found["session"]), found["started"]
    except (ValueError, KeyError, TypeError):
        return
    # a number that another process got since then does not belong to this session
    if start_time(session) not in (None, started):
        return
    end_session(session, 0.0)


def end_session(session: int, timeout: float) -> None:
    """Send a session SIGTERM, wait ``timeout`` seconds, then kill what is left."""
    for number in (signal.SIGTERM, signal.SIGKILL) if timeout else (signal.SIGKILL,):
        for pid in members(session):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        deadline = time.monotonic() + (timeout or 10.0)
        while members(session) and time.monotonic() < deadline:
            time.sleep(0.05)


def members(session: int) -> list[int]:
    """Return the living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            # state, parent, group, session; a zombie without other threads is gone and only waits
            # to be reaped
            if (
                len(fields) > 17
                and fields[3] == str(session)
                and not (fields[0] == "Z" and int(fields[17]) <= 1)
            ):
                found.append(int(entry.name))
    return found


def start_time(pid: int) -> str | None:
    """Return the start time of a process in the kernel's ticks; None without one."""
    fields = _stat(pid)
    if len(fields) > 19:
        return fields[19]
    return None


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name.

    The name may contain blanks and brackets.
    """
    try:
        return (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return []
