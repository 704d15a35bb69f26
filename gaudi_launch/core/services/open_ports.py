"""Addresses, and the processes that listen there."""

from __future__ import annotations

import contextlib
import logging
import pwd
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

_log = logging.getLogger(__name__)

_CONNECT_SECONDS = 1.0


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
