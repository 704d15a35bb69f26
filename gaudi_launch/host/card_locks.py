"""The lock files with which launches of ours hold cards: where they are, and reading them without taking any.

Open-file-description locks are used, not flock: they can be asked for without being taken, they go away with
the process that holds them however it dies, and forked children that close the file do not drop them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import struct
from pathlib import Path

from gaudi_launch.host.records import Holder

_NAME = re.compile(r"^module-(\d{1,4})\.lock$")
# struct flock of 64-bit Linux: type, whence, start, length, pid
_FLOCK = "hhqqi4x"


def lock_folders(root: Path) -> tuple[Path, ...]:
    """Where cards are locked, under the machine's root.

    A launch locks in every one that it can write, so that users with different rights meet in at least one.
    """
    return (root / "run/lock/gaudi-launch", root / "tmp/gaudi-launch-locks")


def lock_name(module: int) -> str:
    return f"module-{module}.lock"


def try_lock(handle: int) -> bool:
    """Take the lock of an open file for writing; False when another holds it. OSError where locks do not work."""
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def is_locked(handle: int) -> bool:
    """Whether somebody holds the lock of this open file. Takes nothing."""
    asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    kind = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_OFD_GETLK, asked))[0]
    return bool(kind != fcntl.F_UNLCK)


def read_reserved(root: Path) -> dict[int, Holder | None]:
    """Modules that a launch of ours holds, with the launch where its lock file names one."""
    found: dict[int, Holder | None] = {}
    for folder in lock_folders(root):
        try:
            names = sorted(entry.name for entry in folder.iterdir())
        except OSError:
            continue
        for name in names:
            match = _NAME.match(name)
            if match is None:
                continue
            with contextlib.suppress(OSError):
                handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    if is_locked(handle):
                        holder = read_holder(os.read(handle, 4096).decode("utf-8", errors="replace"))
                        found[int(match[1])] = found.get(int(match[1])) or holder
                finally:
                    os.close(handle)
    return found


def read_holder(text: str) -> Holder | None:
    """The launch that a lock file names; None if it names none."""
    try:
        document = json.loads(text)
        pid, command, user = document["pid"], document.get("command", ""), document.get("user", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(pid, int) or isinstance(pid, bool):
        return None
    return Holder(pid, _plain(command)[:200], _plain(user)[:64])


def _plain(value: object) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", value) if isinstance(value, str) else ""
