"""Who may touch a cache directory: many users at once, or one that fills it. The kernel forgets dead holders."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from gaudi_launch.errors import ExitCode, LaunchError

_POLL_SECONDS = 0.2


def lock_path(root: Path, key: str) -> Path:
    return root / f"{key}.lock"


@contextlib.contextmanager
def held(root: Path, key: str, *, exclusive: bool, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold a key's lock: shared to use it, exclusive to fill, repair or remove it.

    Raises LaunchError ``cache.in_use`` when somebody else holds it for longer than ``wait_seconds``.
    """
    try:
        handle = os.open(lock_path(root, key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise LaunchError("cache.no_lock", ExitCode.FAILED, path=str(root), why=error.strerror or "") from None
    try:
        _flock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, root, key, wait_seconds)
        yield
    finally:
        os.close(handle)


def in_use(root: Path, key: str) -> bool:
    """Does anybody use or fill this key now?"""
    try:
        handle = os.open(lock_path(root, key), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES)
    finally:
        os.close(handle)
    return False


def _flock(handle: int, mode: int, root: Path, key: str, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            return fcntl.flock(handle, mode | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                why = error.strerror or str(error)
                raise LaunchError("cache.no_lock", ExitCode.FAILED, path=str(root), why=why) from None
            if time.monotonic() >= deadline:
                raise LaunchError("cache.in_use", ExitCode.FAILED, key=key, path=str(root)) from None
        time.sleep(_POLL_SECONDS)
