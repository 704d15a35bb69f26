"""Identify a process: a pid is reused, and is meaningless after a reboot."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.paths import machine_root

_log = logging.getLogger(__name__)

_BOOT_ID = "proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """Return the kernel's name for this boot; "" where it cannot be read (proc(5))."""
    try:
        return (machine_root() / _BOOT_ID).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def stat_fields(pid: int) -> list[bytes]:
    """Return /proc/PID/stat from field 3 on; [] for a process that is gone or hidden."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return []
    # the name in brackets may contain anything, brackets too
    return content.rpartition(b")")[2].split()


def start_ticks(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot; None when it is gone.

    Source: field 22 of /proc/PID/stat. A process whose first thread alone has ended looks dead
    (state Z) and still has its files and its card open.
    """
    fields = stat_fields(pid)
    if (
        len(fields) < 20
        or fields[0] in (b"X", b"x")
        or (fields[0] == b"Z" and int(fields[17]) <= 1)
    ):
        return None
    return int(fields[19])


@dataclass(frozen=True)
class Identity:
    """One process of one boot."""

    pid: int
    ticks: int
    boot: str

    def __post_init__(self) -> None:
        if self.pid <= 0:
            raise ValueError(f"process {self.pid}")

    @property
    def alive(self) -> bool:
        """Return True if this same process is running."""
        return self.boot == boot_id() and start_ticks(self.pid) == self.ticks

    def send(self, number: int) -> bool:
        """Send it a signal, never another process that got its pid.

        Returns False when it is gone. Raises PermissionError for another user's process.
        """
        import signal

        try:
            handle = os.pidfd_open(self.pid)
        except OSError as error:
            _log.debug("the signal is not sent: %s", error)
            return False
        try:
            # checked after it was opened: from here on the handle means this process or none
            if not self.alive:
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True


def identity_in(state: Mapping[str, Any], name: str) -> Identity | None:
    """Return the process under this name of a service's state; None without one."""
    try:
        return codec.read(Identity, state.get(name))
    except codec.BadRecord:
        return None


def of(pid: int) -> Identity | None:
    """Return the identity of a running process; None when it is gone."""
    ticks = start_ticks(pid)
    if ticks is None:
        return None
    return Identity(pid, ticks, boot_id())
