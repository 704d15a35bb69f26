"""Access to a machine's files: a folder used as "/", or files in memory.

The same readers work on both, so a simulated machine is read by exactly the code that reads a real
one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gaudi_launch.core.base.messages import printable

_LARGEST = 4 << 20  # no file that we read is near this; a hostile one must not fill the memory


class Files(Protocol):
    """A machine's files by path without the leading slash.

    Nothing here ever raises or blocks.
    """

    def text(self, path: str) -> str | None:
        """Return the content of a regular file, None if it cannot be read."""

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; empty if it cannot be read."""

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link, None if the path is not a link."""

    def exists(self, path: str) -> bool: ...

    def hidden(self, path: str) -> bool:
        """Return True when the folder exists but may not be searched."""


def content(files: Files, path: str) -> str:
    """Return the content of a regular file, "" if it cannot be read."""
    return files.text(path) or ""


def captured(pattern: str | re.Pattern[str], text: str) -> str | None:
    """Return the first group of the first match in a text; None without a match."""
    match = re.search(pattern, text)
    if match is None:
        return None
    return match[1]


def first_line(files: Files, path: str) -> str | None:
    """Return the first line of a file, fit to be shown; None if unreadable or empty."""
    lines = content(files, path).strip().splitlines()
    if not lines:
        return None
    return printable(lines[0].strip()) or None


def whole_number(text: str | None) -> int | None:
    """Return the decimal integer (a sign is allowed) of a text, None for other text."""
    text = (text or "").strip()
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 15:
        return int(text)
    return None


def natural_number(text: str | None) -> int | None:
    """Return the integer of a text if it is not negative."""
    number = whole_number(text)
    if number is None or number < 0:
        return None
    return number


# the largest valid index, module ID or link width
LARGEST_SMALL = 4095


def small_number(text: str | None) -> int | None:
    """Return a card's index, module ID or width; None above `LARGEST_SMALL`."""
    number = natural_number(text)
    if number is None or number > LARGEST_SMALL:
        return None
    return number


def numbered(names: Iterable[str], stem: str) -> list[tuple[int, str]]:
    """Return the names of ``stem`` plus a number, in order: ``cpu10`` after ``cpu9``."""
    found = (
        (natural_number(name.removeprefix(stem)), name) for name in names if name.startswith(stem)
    )
    return sorted((number, name) for number, name in found if number is not None)


@dataclass(frozen=True)
class FolderFiles:
    """Files under a real folder."""

    root: Path

    def text(self, path: str) -> str | None:
        try:
            # a load reads a thousand files, and joining a Path takes longer than reading one;
            # opening a pipe or a device must not block
            handle = os.open(f"{self.root}/{path}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            content = b""
            while len(content) < _LARGEST and (chunk := os.read(handle, _LARGEST - len(content))):
                content += chunk
            return content.decode("utf-8", errors="replace")
        except OSError:
            return None
        finally:
            os.close(handle)

    def names(self, path: str) -> tuple[str, ...]:
        try:
            names = os.listdir(f"{self.root}/{path}")  # noqa: PTH208
            # a name that is not text is not a name of the kernel's, and could not be shown
            return tuple(sorted(name for name in names if name.isprintable()))
        except OSError:
            return ()

    def link(self, path: str) -> str | None:
        try:
            return str((self.root / path).readlink())
        except (OSError, ValueError):
            return None

    def exists(self, path: str) -> bool:
        return os.path.lexists(self.root / path)

    def hidden(self, path: str) -> bool:
        try:
            with os.scandir(self.root / path):
                return False
        except PermissionError:
            return True
        except OSError:
            return False


@dataclass(frozen=True)
class Imagined:
    """Files by path in memory; ``links`` are symbolic links.

    Folders are implied by the paths.
    """

    files: Mapping[str, str]
    links: Mapping[str, str] = field(default_factory=dict)
    _folders: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        folders: dict[str, set[str]] = {}
        for path in (*self.files, *self.links):
            folder, _, name = path.rpartition("/")
            # the folders above one that is known are, too
            while name and name not in folders.setdefault(folder, set()):
                folders[folder].add(name)
                folder, _, name = folder.rpartition("/")
        object.__setattr__(
            self, "_folders", {path: frozenset(names) for path, names in folders.items()}
        )

    def text(self, path: str) -> str | None:
        return self.files.get(path)

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self._folders.get(path, ())))

    def link(self, path: str) -> str | None:
        return self.links.get(path)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.links or path in self._folders

    def hidden(self, path: str) -> bool:
        return False
