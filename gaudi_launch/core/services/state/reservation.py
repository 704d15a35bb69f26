"""Reserve cards until the engine opens them: two launches never share one.

One lock file per module under the machine's root (see `gaudi_launch.core.host.card_locks`). A lock
lasts as long as the ``with`` block or the process, whichever ends first; the file stays, and means
nothing without its lock.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gaudi_launch.core.base import locks
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.host import card_locks
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.services.addresses import address, address_taken, check_free

_log = logging.getLogger(__name__)

_TRIES = 20
_PAUSE_SECONDS = 0.05


@contextlib.contextmanager
def reserve(modules: tuple[int, ...], root: Path) -> Iterator[tuple[int, ...]]:
    """Reserve these modules of the machine under ``root``.

    Returns the open lock files, which another process may take over. Raises LaunchError (MACHINE):
    ``placement.reserved`` naming the owner of one of them, ``placement.no_lock_folder`` when no
    lock folder can be written. Either all are reserved or none.
    """
    with contextlib.ExitStack() as held:
        folders = [folder for folder in card_locks.lock_folders(root) if _prepare(folder)]
        if not folders:
            shown = ", ".join(map(str, card_locks.lock_folders(root)))
            raise LaunchError("placement.no_lock_folder", ExitCode.MACHINE, folders=shown)
        handles: list[int] = []
        # in one order everywhere, so that of two launches that need the same cards one gets them
        # all
        for module in sorted(modules):
            taken: list[int] = []
            for folder in folders:
                taken += _hold(folder / card_locks.lock_name(module), held, partial(_taken, module))
            if not taken:
                shown = ", ".join(map(str, folders))
                raise LaunchError("placement.no_lock_folder", ExitCode.MACHINE, folders=shown)
            handles += taken
        yield tuple(handles)


@contextlib.contextmanager
def reserve_address(host: str, port: int, service: str, root: Path) -> Iterator[tuple[int, ...]]:
    """Reserve an address for a service before its engine listens there.

    Returns the open lock files, as `reserve` does. Raises LaunchError (MACHINE,
    ``services.port_reserved``) naming the service that has it. Where no lock folder can be written
    nothing is reserved: the engine's bind decides then.
    """
    with contextlib.ExitStack() as held:
        handles = []
        for folder in card_locks.lock_folders(root):
            if _prepare(folder):
                path = folder / card_locks.port_lock_name(host, port)
                handles += _hold(path, held, partial(address_taken, host, port, root), service)
        yield tuple(handles)


@contextlib.contextmanager
def hold_port(url: str, name: str) -> Iterator[tuple[int, ...]]:
    """Reserve the address of a service that is about to start.

    Returns the open lock files, as `reserve` does. Raises LaunchError (MACHINE), naming the service
    that has it, also one that does not listen yet, or else the process that listens there.
    """
    host, port = address(url)
    with reserve_address(host, port, name, machine_root()) as handles:
        check_free(host, port)
        yield handles


@contextlib.contextmanager
def claim(
    read: Callable[[], Host], choose: Callable[[Host], Placement], root: Path
) -> Iterator[tuple[Placement, tuple[int, ...]]]:
    """Choose cards and reserve them; choose again when another launch was first.

    Returns `reserve`'s open files too. ``read`` reads the machine (locks of others show there as
    busy cards), ``choose`` picks; both are called until the choice could be reserved. Raises what
    ``choose`` raises, and `reserve`'s errors when the same cards stay taken.
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
    """Create the folder for all users, if it does not exist.

    Return False when it cannot be used.
    """
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    except FileExistsError:
        pass
    except OSError as error:
        _log.debug("the folder of reservations is not made: %s", error)
        return False
    return folder.is_dir() and not folder.is_symlink() and os.access(folder, os.R_OK | os.X_OK)


def _hold(
    path: Path,
    held: contextlib.ExitStack,
    taken: Callable[[int], LaunchError],
    service: str = "",
) -> list[int]:
    """Lock this file until ``held`` ends; return its handle.

    Return nothing when it cannot be opened or locked at all. Raises what ``taken`` makes.
    """
    handle = _open(path)
    if handle is None:
        return []
    held.callback(os.close, handle)
    try:
        if not locks.try_ofd(handle):
            raise taken(handle)
        sign(handle, service)
    except OSError as error:
        _log.debug("%s cannot be locked: %s", path, error)
        return []
    return [handle]


def _open(path: Path) -> int | None:
    """Return the lock file open for writing, created for all users if necessary.

    Return None if that is impossible.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(3):
        # fs.protected_regular forbids O_CREAT on another user's file in a sticky folder, so the
        # first attempt is without it
        try:
            handle = os.open(path, flags | os.O_NONBLOCK)
        except FileNotFoundError:
            try:
                handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(handle, 0o666)
            except FileExistsError:
                continue
            except OSError as error:
                _log.debug("a lock file is not opened: %s", error)
                return None
        except OSError as error:
            _log.debug("a lock file is not opened: %s", error)
            return None
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
        return None
    return None


def _taken(module: int, handle: int) -> LaunchError:
    holder = card_locks.read_holder(locks.read_holder(handle))
    who = "-"
    if holder is not None:
        who = f"{holder.command} (pid {holder.pid}, {holder.user})"
    return LaunchError("placement.reserved", ExitCode.MACHINE, module=module, holder=who)


def sign(handle: int, service: str = "") -> None:
    """Write the owner of the lock, and its service, for other processes."""
    content = json.dumps(
        {
            "pid": os.getpid(),
            "command": "gaudi-launch",
            "user": locks.user_name(),
            "service": service,
        }
    )
    locks.write_holder(handle, content)
