"""The content of files before `doctor --fix` changed them: a JSON line per write.

The line is on disk before the write begins. A process killed anywhere leaves either a line without
its write (undoing it writes the present content) or both. A torn last line means that its write
never began.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gaudi_launch.core.base import codec, locks, paths
from gaudi_launch.core.base.reader import parse_json


@dataclass(frozen=True)
class Former:
    """The former content of ``path`` (without the leading slash, below ``root``).

    ``content`` None: there was no file. ``folders`` were created for it, deepest last; ``wrote`` is
    the new content; ``kernel`` marks a file of /proc or /sys, whose content is a setting and not
    text; ``program`` reads the file.
    """

    number: str
    root: str
    path: str
    content: bytes | None
    mode: int | None
    wrote: bytes
    kernel: bool
    folders: tuple[str, ...] = ()
    program: str = ""
    at: float = field(default=0.0, compare=False)


class Reverted(Protocol):
    """A change that is reverted by its number, below a machine root."""

    @property
    def number(self) -> str: ...

    @property
    def root(self) -> str: ...


RevertedT = TypeVar("RevertedT", bound=Reverted)


def journal_path() -> Path:
    """Return the journal of this user, for every machine root."""
    return paths.state_dir() / "doctor" / "journal.jsonl"


class Journal:
    """The open journal; only one process has it at a time (see `opened`)."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._count = 0

    def add(self, former: Reverted) -> None:
        """Add a line; it is on disk when this returns."""
        self._append({"schema": 1, **codec.write(former)})

    def undone(self, number: str) -> None:
        """Record that this write was reverted."""
        self._append({"schema": 1, "undone": number})

    def next_number(self) -> str:
        self._count += 1
        return f"{time.time_ns()}-{os.getpid()}-{self._count}"

    def waiting(self, root: Path) -> list[Former]:
        """Return writes below this root that are not reverted yet, oldest first."""
        return self.waiting_of(root, Former)

    def waiting_of(self, root: Path, kind: type[RevertedT]) -> list[RevertedT]:
        """Return the changes of a kind below this root, as `waiting` does."""
        entries: dict[str, RevertedT] = {}
        for line in self._lines():
            if "undone" in line:
                entries.pop(str(line["undone"]), None)
                continue
            # a line of the other kind, or a damaged one
            with suppress(codec.BadRecord):
                former = codec.read(kind, line)
                if former.root == str(root):
                    entries[former.number] = former
        return list(entries.values())

    def _lines(self) -> Iterator[dict[str, Any]]:
        os.lseek(self._handle, 0, os.SEEK_SET)
        content = b""
        while chunk := os.read(self._handle, 1 << 20):
            content += chunk
        for line in content.splitlines():
            try:
                entry = parse_json(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.get("schema") == 1:
                yield entry

    def _append(self, entry: dict[str, Any]) -> None:
        # the line of a process that was killed may lack its end; the new line must not be joined to
        # it
        content = f"\n{json.dumps(entry)}\n".encode()
        os.lseek(self._handle, 0, os.SEEK_END)
        while content:
            content = content[os.write(self._handle, content) :]
        os.fsync(self._handle)


@contextmanager
def opened() -> Iterator[Journal]:
    """Yield the journal, locked against another run.

    Raises OSError when it cannot be written.
    """
    path = journal_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        locks.wait(handle)
        _sync_folder(path.parent)
        yield Journal(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
