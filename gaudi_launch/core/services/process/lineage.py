"""Inspect a process of another container: its files, and the launcher above it.

A process in a container sees other files under the same paths (mount_namespaces(7)), and the parent
of one that was brought into a container is not visible there (pid_namespaces(7)).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from gaudi_launch.core.services.state import identity

# as many as the kernel follows on the way to one file (path_resolution(7))
_MOST_LINKS = 40
_PROGRAM = "gaudi-launch"
_PACKAGE = "gaudi_launch"


class Above(Enum):
    """The result of a search for a launcher among a process's ancestors."""

    LAUNCHER = "a launcher of this program is running"
    NO_LAUNCHER = "all of them are visible and none is a launcher"
    HIDDEN = "not all of them are visible"


def above(pid: int) -> Above:
    """Look for a living launcher of this program among the ancestors of a process.

    A launcher adopts what its engine leaves (PR_SET_CHILD_SUBREAPER), so it stays an ancestor of
    all of it.
    """
    last = pid
    for last in _ancestors(pid):
        if _is_launcher(last):
            return Above.LAUNCHER
    # only the first process of a PID namespace has no parent; the parent of any other is outside of
    # it
    return Above.NO_LAUNCHER if last == 1 else Above.HIDDEN


def shares_our_files(pid: int) -> bool:
    """Report whether the same paths name the same files for this process.

    Raises OSError where that is hidden.
    """
    return all(
        Path(f"/proc/{pid}/{link}").readlink() == Path(f"/proc/self/{link}").readlink()
        for link in ("ns/mnt", "root")
    )


def seen_by(pid: int, path: Path) -> Path:
    """Return the local path of what a process sees at the absolute ``path``.

    Raises OSError where that is hidden. Links are followed as the process would: through
    /proc/PID/root the kernel resolves an absolute one here.
    """
    if shares_our_files(pid):
        return path
    root = Path(f"/proc/{pid}/root")
    found = root
    links = 0
    waiting = list(reversed(path.parts[1:]))
    while waiting:
        part = waiting.pop()
        if part == "..":
            found = found if found == root else found.parent
            continue
        step = found / part
        if not step.is_symlink():
            found = step
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(40, os.strerror(40), str(path))
        target = step.readlink()
        if target.is_absolute():
            found = root
        waiting += reversed([each for each in target.parts if each != "/"])
    return found


def _ancestors(pid: int) -> Iterator[int]:
    """Yield the parent, its parent, and so on, as far as they are visible."""
    seen = {pid}
    while (parent := _parent(pid)) is not None and parent not in seen and parent > 0:
        seen.add(parent)
        yield parent
        pid = parent


def _parent(pid: int) -> int | None:
    """Return field 4 of /proc/PID/stat; None for a process that is gone or hidden."""
    fields = identity.stat_fields(pid)
    if len(fields) > 1:
        return int(fields[1])
    return None


def _is_launcher(pid: int) -> bool:
    """Report whether it is a living process of this program."""
    try:
        words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except OSError:
        return False
    # "gaudi-launch serve", "python /bin/gaudi-launch serve", "python -m
    # gaudi_launch.core.services.process.detach"
    by_script = any(Path(word).name == _PROGRAM for word in words[:2])
    by_module = any(
        flag == "-m" and module.split(".")[0] == _PACKAGE
        for flag, module in itertools.pairwise(words)
    )
    return (by_script or by_module) and identity.start_ticks(pid) is not None
