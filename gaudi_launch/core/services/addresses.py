"""Addresses: whether one is free, which port is, and who listens there."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pwd
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from gaudi_launch.core.base import locks
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.host import card_locks

_log = logging.getLogger(__name__)

_PORTS_TRIED = 100
_LAST_PORT = 65535
_CONNECT_SECONDS = 1.0


def check_address(host: str, port: int, root: Path) -> None:
    """Raise what `reservation.reserve_address` would raise now, without reserving."""
    handle = _lock_on(host, port, root)
    if handle is None:
        return
    try:
        raise address_taken(host, port, root, handle)
    finally:
        os.close(handle)


def _is_reserved(host: str, port: int, root: Path) -> bool:
    handle = _lock_on(host, port, root)
    if handle is None:
        return False
    os.close(handle)
    return True


def _lock_on(host: str, port: int, root: Path) -> int | None:
    """Return the open lock file of another launch's address, or None.

    The caller closes it.
    """
    for folder in card_locks.lock_folders(root):
        try:
            handle = os.open(
                folder / card_locks.port_lock_name(host, port),
                os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            )
        except OSError:
            continue
        try:
            if locks.is_ofd_locked(handle):
                return handle
        except OSError:
            pass
        os.close(handle)
    return None


def free_port(host: str, after: int, root: Path) -> int:
    """Return a free port: the next one above ``after``, or one of the system's."""
    for port in range(after + 1, min(after + _PORTS_TRIED, _LAST_PORT) + 1):
        if _is_available(host, port, root):
            return port
    return system_port()


def system_port() -> int:
    """Return a free port that the system picks."""
    with socket.socket() as picked:
        picked.bind(("", 0))
        return int(picked.getsockname()[1])


def _is_available(host: str, port: int, root: Path) -> bool:
    if _is_reserved(host, port, root):
        return False
    try:
        return port_free(host, port)
    except OSError as error:
        _log.debug("the address cannot be tried: %s", error)
        # an address that this machine does not have is refused as such
        return True


def address_taken(host: str, port: int, root: Path, handle: int) -> LaunchError:
    """Return the error (MACHINE) of an address that another launch has reserved."""
    content = locks.read_holder(handle)
    holder = card_locks.read_holder(content)
    pid: object = "-"
    user = "-"
    if holder is not None:
        pid, user = holder.pid, holder.user
    return LaunchError(
        "services.port_reserved",
        ExitCode.MACHINE,
        port=port,
        service=card_locks.read_service(content) or "-",
        pid=pid,
        user=user,
        free=free_port(host, port, root),
    )


def check_port(url: str) -> None:
    """Raise what `reservation.hold_port` would raise now, without reserving."""
    host, port = address(url)
    check_address(host, port, machine_root())
    check_free(host, port)


def check_free(host: str, port: int) -> None:
    """Raise LaunchError (MACHINE) where another process listens, or none could."""
    try:
        free = port_free(host, port)
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError(
            "serve.bad_host", ExitCode.MACHINE, host=host, port=port, why=why
        ) from None
    if not free:
        raise LaunchError(
            "serve.port_taken",
            ExitCode.MACHINE,
            port=port,
            who=holder(port),
            free=free_port(host, port, machine_root()),
        )


def port_free(host: str, port: int) -> bool:
    """Return True if a server could listen there now.

    Raises OSError when none ever could: no such address here, no such port.
    """
    if not 0 <= port <= 65535:
        raise OSError(errno.EINVAL, "a port is 0 to 65535")
    family = socket.AF_INET
    if ":" in host:
        family = socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            # also a port that needs more rights cannot be used
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def address(url: str) -> tuple[str, int]:
    """Return host and port of a base URL."""
    host, _, port = url.removeprefix("http://").removeprefix("https://").rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0


def holder(port: int) -> str:
    """Return the process that listens on a port: ``command [pid]``.

    Return its user's name where only that is visible, "-" where nothing is.
    """
    import psutil

    with contextlib.suppress(psutil.Error, OSError, KeyError):
        for pid in listeners((), port):
            return f"{psutil.Process(pid).name()} [{pid}]"
        tables = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
        # "0: 0100007F:1F90 00000000:0000 0A queues timer retransmits uid": state 0A listens
        for uid in re.findall(rf"^ *\d+: \w+:{port:04X} \S+ 0A (?:\S+ +){{3}}(\d+) ", tables, re.M):
            return pwd.getpwuid(int(uid)).pw_name
    return "-"


def accepts(host: str, port: int) -> bool:
    """Report whether a server accepts connections there."""
    with contextlib.suppress(OSError):
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
        return True
    return False


def listeners(hosts: Sequence[str], port: int) -> Iterator[int]:
    """Yield the visible processes that listen on a port of one of these addresses.

    Without addresses, of any.
    """
    import psutil

    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError) as error:
        _log.debug("the connections are not known: %s", error)
        return
    for connection in connections:
        local = connection.laddr
        if connection.status != psutil.CONN_LISTEN or not local or local.port != port:
            continue
        if connection.pid and (not hosts or local.ip.removeprefix("::ffff:") in hosts):
            yield connection.pid
