"""Holding cards between the choice and the engine's own hold on them, so that two launches never take the same.

One lock file per module under the machine's root (see `gaudi_launch.host.locks`). A lock lasts as long as the
``with`` block or the process, whichever ends first; the file stays, and means nothing without its lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host import locks
from gaudi_launch.host.records import Host
from gaudi_launch.planning.plan import Placement

_TRIES = 20
_PAUSE_SECONDS = 0.05


@contextlib.contextmanager
def reserve(modules: tuple[int, ...], root: Path) -> Iterator[tuple[int, ...]]:
    """Hold these modules of the machine under ``root``; the open lock files, which another process may take over.

    Raises LaunchError (MACHINE): ``placement.reserved`` naming who holds one of them, ``placement.no_lock_folder``
    when no lock folder can be written. Either all are held or none.
    """
    with contextlib.ExitStack() as held:
        folders = [folder for folder in locks.lock_folders(root) if _prepare(folder)]
        if not folders:
            shown = ", ".join(map(str, locks.lock_folders(root)))
            raise LaunchError("placement.no_lock_folder", ExitCode.MACHINE, folders=shown)
        handles: list[int] = []
        # in one order everywhere, so that of two launches that want the same cards one gets them all
        for module in sorted(modules):
            tried = (_hold(folder / locks.lock_name(module), module, held) for folder in folders)
            taken = [handle for handle in tried if handle is not None]
            if not taken:
                shown = ", ".join(map(str, folders))
                raise LaunchError("placement.no_lock_folder", ExitCode.MACHINE, folders=shown)
            handles += taken
        yield tuple(handles)


@contextlib.contextmanager
def claim(
    read: Callable[[], Host], choose: Callable[[Host], Placement], root: Path
) -> Iterator[tuple[Placement, tuple[int, ...]]]:
    """Choose cards and hold them, choosing again when another launch was quicker; with `reserve`'s open files.

    ``read`` reads the machine (locks of others show there as busy cards), ``choose`` picks; both are called
    until what was picked could be held. Raises what ``choose`` raises, and `reserve`'s errors when the same
    cards stay taken.
    """
    for left in reversed(range(_TRIES)):
        placement = choose(read())
        with contextlib.ExitStack() as held:
            try:
                handles = held.enter_context(reserve(placement.modules, root))
            except LaunchError as error:
                if error.id != "placement.reserved" or not left:
                    raise
            else:
                yield placement, handles
                return
        time.sleep(_PAUSE_SECONDS)


def _prepare(folder: Path) -> bool:
    """Make the folder for all users, if it is not there; False when it cannot be used."""
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    except FileExistsError:
        pass
    except OSError:
        return False
    return folder.is_dir() and not folder.is_symlink() and os.access(folder, os.R_OK | os.X_OK)


def _hold(path: Path, module: int, held: contextlib.ExitStack) -> int | None:
    """Lock this file until ``held`` ends; None when it cannot be opened or locked at all."""
    handle = _open(path)
    if handle is None:
        return None
    held.callback(os.close, handle)
    try:
        if not locks.try_lock(handle):
            raise _taken(module, handle)
        sign(handle)
    except OSError:
        return None
    return handle


def _open(path: Path) -> int | None:
    """The lock file open for writing, made for all users if it is not there; None if that cannot be."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(3):
        # fs.protected_regular forbids O_CREAT on another user's file in a sticky folder: without it first
        try:
            handle = os.open(path, flags | os.O_NONBLOCK)
        except FileNotFoundError:
            try:
                handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(handle, 0o666)
            except FileExistsError:
                continue
            except OSError:
                return None
        except OSError:
            return None
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
        return None
    return None


def _taken(module: int, handle: int) -> LaunchError:
    holder = locks.read_holder(os.pread(handle, 4096, 0).decode("utf-8", errors="replace"))
    who = f"{holder.command} (pid {holder.pid}, {holder.user})" if holder else "-"
    return LaunchError("placement.reserved", ExitCode.MACHINE, module=module, holder=who)


def sign(handle: int) -> None:
    """Write who holds the lock, for those who find it taken."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    content = json.dumps({"pid": os.getpid(), "command": "gaudi-launch", "user": user}).encode()
    os.ftruncate(handle, 0)
    os.pwrite(handle, content, 0)
