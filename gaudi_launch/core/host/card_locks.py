"""Lock files that reserve cards for launches: their folders, and reading them.

The locks are open-file-description locks, not flock: another process can test them without taking
them, the kernel releases them when their owner ends, and forked children that close the file do not
release them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from gaudi_launch.core.base import locks
from gaudi_launch.core.base.locks import Holder
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.base.server_address import reached

_NAME = re.compile(r"^module-(\d{1,4})\.lock$")
_PORT_NAME = re.compile(r"^port-\d{1,5}-.*\.lock$")


def lock_folders(root: Path) -> tuple[Path, ...]:
    """Return the folders of card locks, under the machine's root."""
    return (root / "run/lock/gaudi-launch", root / "tmp/gaudi-launch-locks")


def lock_name(module: int) -> str:
    return f"module-{module}.lock"


def port_lock_name(host: str, port: int) -> str:
    """Return the file name for a port of an address, as clients use it.

    A server that listens on every address is filed under 127.0.0.1.
    """
    plain = "127.0.0.1" if host == "localhost" else reached(host)
    return f"port-{port}-{re.sub(r'[^0-9A-Za-z.:-]', '_', plain)[:100]}.lock"


def read_reserved(root: Path) -> dict[int, Holder | None]:
    """Return the reserved modules, each with the launch that its lock file names."""
    found: dict[int, Holder | None] = {}
    for match, content in _locked(root, _NAME):
        module = int(match[1])
        found[module] = found.get(module) or read_holder(content)
    return found


def read_services(root: Path) -> dict[str, Holder]:
    """Return the services of all users that have a port, each with its launcher."""
    found: dict[str, Holder] = {}
    for _, content in _locked(root, _PORT_NAME):
        holder = read_holder(content)
        if holder is not None:
            found.setdefault(read_service(content), holder)
    return found


def _locked(root: Path, name: re.Pattern[str]) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the locked files of this name, with their content."""
    for folder in lock_folders(root):
        try:
            names = sorted(entry.name for entry in folder.iterdir())
        except OSError:
            continue
        for match in filter(None, map(name.match, names)):
            content = _content_of_locked(folder / match.string)
            if content is not None:
                yield match, content


def _content_of_locked(path: Path) -> str | None:
    """Return the content of a lock file; None where no process has locked it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if locks.is_ofd_locked(handle):
                return locks.read_holder(handle)
        finally:
            os.close(handle)
    return None


def read_holder(text: str) -> Holder | None:
    """Return the launch that a lock file names; None if it names none."""
    try:
        document = parse_json(text)
        pid, command, user = document["pid"], document.get("command", ""), document.get("user", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(pid, int) or isinstance(pid, bool):
        return None
    return Holder(pid, _plain(command)[:200], _plain(user)[:64])


def read_service(text: str) -> str:
    """Return the service that a lock file names; "" if it names none."""
    try:
        document = parse_json(text)
    except ValueError:
        return ""
    if not isinstance(document, dict):
        return ""
    return _plain(document.get("service"))[:64]


def _plain(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return re.sub(r"[^\x20-\x7e]", "?", value)
