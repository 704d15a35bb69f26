"""One writer a folder: a lock that the kernel forgets with its holder, and a sentence that says who holds it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from gaudi_launch.errors import ExitCode, LaunchError

NAME = ".gaudi-launch.lock"
_MOST_BYTES = 200


@contextlib.contextmanager
def hold(folder: Path, work: str) -> Iterator[None]:
    """Hold a folder for ``work`` (a word like ``pull``), making it where it is not there.

    Raises LaunchError (FAILED): ``lock.held`` naming the process that holds it, ``lock.folder`` when the folder
    cannot be made or written. A file system without locks is used without.
    """
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise LaunchError("lock.folder", ExitCode.FAILED, path=str(folder), why=error.strerror or "") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                holder = os.read(handle, _MOST_BYTES).decode("utf-8", errors="replace").strip() or "?"
                raise LaunchError("lock.held", ExitCode.FAILED, path=str(folder), holder=holder) from None
        # for people who look; the lock itself is the kernel's. A full disk must not keep a pull from resuming
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
            os.write(handle, f"{work}, PID {os.getpid()}\n".encode())
        yield
    finally:
        os.close(handle)
