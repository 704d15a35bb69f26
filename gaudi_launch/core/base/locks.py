"""File locks: take, try or wait, shared or exclusive; the kernel releases them.

It does so when their owner ends. Two kinds do not see each other (flock(2), fcntl_locking(2)).
`wait` and `try_take` are flock: on any open file. `try_ofd` and `is_ofd_locked` are
open-file-description locks, whose state can be read without taking them; a card's and an address's
lock are of this kind. Both survive a fork in whoever keeps the file open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

_POLL_SECONDS = 0.2
_TAKEN = (errno.EAGAIN, errno.EACCES)
# struct flock of 64-bit Linux: type, whence, start, length, pid
_OFD = "hhqqi4x"


@dataclass(frozen=True)
class Holder:
    """A process that has a lock, or a card open."""

    pid: int
    command: str = ""
    user: str = ""


def user_name(number: int | None = None) -> str:
    """Return this user's name, or that of a number; the number where it has no name."""
    if number is None:
        number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def wait(handle: int) -> None:
    """Take the exclusive lock of an open file, however long another process has it.

    Raises OSError without locks.
    """
    fcntl.flock(handle, fcntl.LOCK_EX)


def try_take(handle: int, *, shared: bool = False, wait_seconds: float = 0.0) -> bool:
    """Take the lock of an open file.

    Return False when another process has it for longer than ``wait_seconds``. Raises OSError where
    the file system has no locks.
    """
    deadline = time.monotonic() + wait_seconds
    mode = fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    while not _took(lambda: fcntl.flock(handle, mode)):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _took(take: Callable[[], object]) -> bool:
    """Return False where another process has the lock. Raises OSError without locks."""
    try:
        take()
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def try_ofd(handle: int) -> bool:
    """Take the open-file-description lock of a file that is open for writing.

    Return False when another process has it. Raises OSError where the file system has no locks.
    """
    lock = struct.pack(_OFD, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    return _took(lambda: fcntl.fcntl(handle, fcntl.F_OFD_SETLK, lock))


def is_ofd_locked(handle: int) -> bool:
    """Return whether another process has the open-file-description lock of a file.

    The lock is not taken. Raises OSError.
    """
    query = struct.pack(_OFD, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    kind = struct.unpack(_OFD, fcntl.fcntl(handle, fcntl.F_OFD_GETLK, query))[0]
    return bool(kind != fcntl.F_UNLCK)


def write_holder(handle: int, content: str) -> None:
    """Replace the owner's entry in a lock file. Raises OSError (a full disk)."""
    os.ftruncate(handle, 0)
    os.pwrite(handle, content.encode(), 0)


def read_holder(handle: int, most_bytes: int = 4096) -> str:
    """Return the owner's entry of a lock file. Raises OSError."""
    return os.pread(handle, most_bytes, 0).decode("utf-8", errors="replace")
