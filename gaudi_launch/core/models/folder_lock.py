"""A lock that admits one writer per folder, and the name of its owner.

The kernel releases it when its owner ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from gaudi_launch.core.base import locks
from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.errors import ExitCode, LaunchError

_log = logging.getLogger(__name__)

NAME = ".gaudi-launch.lock"
_MOST_BYTES = 200
# seconds for the workers of a killed holder, which have its lock, to notice and end
_PATIENCE = 15.0
_HOLDER = re.compile(r", PID (\d{1,9})$")


@contextlib.contextmanager
def hold(folder: Path, work: str) -> Iterator[None]:
    """Lock a folder for ``work`` (such as ``pull``), creating it if necessary.

    Raises LaunchError (FAILED): ``lock.held`` naming the process that owns the lock,
    ``lock.folder`` when the folder cannot be created or written. Processes left by an owner that
    was killed are waited for. On a file system without locks the folder is used without.
    """
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise LaunchError(
            "lock.folder", ExitCode.FAILED, path=str(folder), why=error.strerror or ""
        ) from None
    try:
        given_up = time.monotonic() + _PATIENCE
        while not _take(handle):
            holder = locks.read_holder(handle, _MOST_BYTES).strip() or "?"
            # the process that wrote its name into the lock may still run
            found = _HOLDER.search(holder)
            if found is None or Path("/proc", found[1]).exists() or time.monotonic() > given_up:
                raise LaunchError("lock.held", ExitCode.FAILED, path=str(folder), holder=holder)
            time.sleep(0.05)
        # for people who look; the lock itself is the kernel's. A full disk must not keep a pull
        # from resuming
        with best_effort(_log, "write who works in the folder"):
            locks.write_holder(handle, f"{work}, PID {os.getpid()}\n")
        yield
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    """Return whether the lock is ours, or the file system has none."""
    try:
        return locks.try_take(handle)
    except OSError:
        _log.debug("the file system has no locks", exc_info=True)
        return True
