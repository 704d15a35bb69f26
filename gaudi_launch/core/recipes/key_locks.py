"""Locks on a cache directory: several users, one that fills or removes it.

Each key has two locks: all users of the directory share the first as long as the engine runs; the
one that fills it also has the second, until it is warm. So another launch waits for a fill, never
for a service that answers. The kernel releases the locks of dead owners.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gaudi_launch.core.base import locks
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.recipes.sharing import share


def lock_path(root: Path, key: str, *, fill: bool = False) -> Path:
    return root / (f"{key}.lock-fill" if fill else f"{key}.lock")


@contextlib.contextmanager
def held(
    root: Path, key: str, *, exclusive: bool, wait_seconds: float = 0.0, fill: bool = False
) -> Iterator[None]:
    """Lock a key: shared to use it, exclusive to repair or remove it.

    ``fill``: the lock for filling it. Raises LaunchError ``cache.in_use`` when another process has
    it for longer than ``wait_seconds``.
    """
    try:
        handle = _open(lock_path(root, key, fill=fill), root)
    except OSError as error:
        raise LaunchError(
            "cache.no_lock", ExitCode.FAILED, path=str(root), why=error.strerror or ""
        ) from None
    try:
        try:
            taken = locks.try_take(handle, shared=not exclusive, wait_seconds=wait_seconds)
        except OSError as error:
            raise file_error("cache.no_lock", error, root) from None
        if not taken:
            raise LaunchError("cache.in_use", ExitCode.FAILED, key=key, path=str(root))
        yield
    finally:
        os.close(handle)


def _open(path: Path, root: Path) -> int:
    """Return the open lock file, made for all users of the root if necessary.

    Raises OSError. flock(2) needs no right to write, so the lock of another user is enough to
    read. It is opened without O_CREAT first, which a folder like /tmp forbids on another user's
    file (fs.protected_regular, proc_sys_fs(5)).
    """
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, os.O_RDWR | flags)
    except FileNotFoundError:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
        share(path, root)
        return handle
    except PermissionError:
        return os.open(path, os.O_RDONLY | flags)


def in_use(root: Path, key: str, *, fill: bool = False) -> bool:
    """Return True if a process uses this key now; ``fill``: if one fills it."""
    try:
        handle = os.open(lock_path(root, key, fill=fill), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not locks.try_take(handle)
    except OSError:
        return False
    finally:
        os.close(handle)
