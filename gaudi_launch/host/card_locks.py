"""Lock files that reserve cards for launches: their folders, and reading them.

The locks are open-file-description locks, not flock: another process can test them without taking
them, the kernel releases them when their owner ends, and forked children that close the file do not
release them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

from gaudi_launch import locks
from gaudi_launch.host.hardware import Holder

_NAME = re.compile(r"^module-(\d{1,4})\.lock$")


def lock_folders(root: Path) -> tuple[Path, ...]:
    """Return the folders of card locks, under the machine's root."""
    return (root / "run/lock/gaudi-launch", root / "tmp/gaudi-launch-locks")


def lock_name(module: int) -> str:
    return f"module-{module}.lock"


def port_lock_name(host: str, port: int) -> str:
    """Return the file name for a port of an address, as clients use it.

    A server that listens on every address is filed under 127.0.0.1.
    """
    plain = {"localhost": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(host, host)
    return f"port-{port}-{re.sub(r'[^0-9A-Za-z.:-]', '_', plain)[:100]}.lock"


def read_reserved(root: Path) -> dict[int, Holder | None]:
    """Return the reserved modules, each with the launch that its lock file names."""
    found: dict[int, Holder | None] = {}
    for folder in lock_folders(root):
        try:
            names = sorted(entry.name for entry in folder.iterdir())
        except OSError:
            continue
        for name in names:
            match = _NAME.match(name)
            if match is None:
                continue
            with contextlib.suppress(OSError):
                handle = os.open(
                    folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                )
                try:
                    if locks.is_ofd_locked(handle):
                        holder = read_holder(locks.read_holder(handle))
                        found[int(match[1])] = found.get(int(match[1])) or holder
                finally:
                    os.close(handle)
    return found


def read_holder(text: str) -> Holder | None:
    """Return the launch that a lock file names; None if it names none."""
    try:
        document = json.loads(text)
        pid, command, user = document["pid"], document.get("command", ""), document.get("user", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(pid, int) or isinstance(pid, bool):
        return None
    return Holder(pid, _plain(command)[:200], _plain(user)[:64])


def read_service(text: str) -> str:
    """Return the service that a lock file names; "" if it names none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return _plain(document.get("service"))[:64] if isinstance(document, dict) else ""


def _plain(value: object) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", value) if isinstance(value, str) else ""
