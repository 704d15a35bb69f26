"""Versions of one engine's environment side by side; one of them is in force.

The first version is in the folder NAME of the folder of engines, later ones in NAME+2, NAME+3 and
so on. None is ever moved or changed once it is complete: paths inside a virtual environment are
absolute, and a service may run from it. The link NAME.current names the version in force. One
rename replaces it, so that an interruption leaves the old version in force.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.paths import engines_dir, write_whole

_log = logging.getLogger(__name__)

_LINK = ".current"
_REPLACED = "gaudi-launch-replaced"


@dataclass(frozen=True)
class Versions:
    """The versions of the environment ``name``.

    ``is_complete`` returns True for a folder whose installation was finished.
    """

    name: str
    is_complete: Callable[[Path], bool]

    @property
    def link(self) -> Path:
        """Return the link that names the version in force; it may not exist."""
        return engines_dir() / f"{self.name}{_LINK}"

    def folders(self) -> list[Path]:
        """Return the folders of all versions, the first one first."""
        number = re.compile(rf"{re.escape(self.name)}(?:\+([1-9][0-9]*))?")
        found: dict[int, Path] = {}
        for entry in _entries():
            match = number.fullmatch(entry.name)
            if match is not None and entry.is_dir() and not entry.is_symlink():
                found[int(match[1] or 1)] = entry
        return [found[each] for each in sorted(found)]

    def in_force(self) -> Path | None:
        """Return the folder of the version in force; None without a complete one.

        Without a link it is the first version, which an older gaudi-launch made.
        """
        found = _target_of(self.link) or engines_dir() / self.name
        return found if self.is_complete(found) else None

    def replaced(self) -> Path | None:
        """Return the version that the one in force replaced; None where it is gone."""
        current = self.in_force()
        if current is None:
            return None
        try:
            name = (current / _REPLACED).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            _log.debug("no version was replaced: %s", error)
            return None
        found = engines_dir() / name
        others = [folder for folder in self.folders() if folder != current]
        if found in others and self.is_complete(found):
            return found
        return None

    def is_rolled_back(self) -> bool:
        """Return True if a complete version exists that replaced the one in force."""
        current = self.in_force()
        if current is None:
            return False
        for folder in self.folders():
            with contextlib.suppress(OSError, UnicodeDecodeError):
                name = (folder / _REPLACED).read_text(encoding="utf-8").strip()
                if folder != current and name == current.name and self.is_complete(folder):
                    return True
        return False

    def folder_for_new(self) -> Path:
        """Return the folder for another version: an unfinished one, else a new one."""
        current, found = self.in_force(), self.folders()
        for folder in reversed(found):
            if folder != current and not self.is_complete(folder):
                return folder
        first = engines_dir() / self.name
        if first not in found:
            return first
        number = 2
        while (engines_dir() / f"{self.name}+{number}") in found:
            number += 1
        return engines_dir() / f"{self.name}+{number}"

    def put_in_force(self, folder: Path) -> Path | None:
        """Put a complete version in force; return the one that it replaces.

        Return None where nothing is replaced. Raises OSError; the old version is in force then.
        """
        current = self.in_force()
        if current == folder:
            current = None
        if current is not None:
            write_whole(folder / _REPLACED, f"{current.name}\n")
        self._point_to(folder)
        return current

    def roll_back(self) -> tuple[Path, Path] | None:
        """Put the replaced version in force; return that and the one before.

        Return None where none was replaced. Raises OSError.
        """
        current, before = self.in_force(), self.replaced()
        if current is None or before is None:
            return None
        self._point_to(before)
        return before, current

    def _point_to(self, folder: Path) -> None:
        if _target_of(self.link) == folder:
            return
        new = self.link.with_name(f".{self.link.name}.new")
        # an interrupted switch leaves its link; the setup is locked, so that it is no other's
        new.unlink(missing_ok=True)
        new.symlink_to(folder.name)
        new.replace(self.link)


def name_of(engine: str) -> str:
    """Return the name of an engine's folders."""
    return engine.replace("@", "-")


def names_in_force() -> list[str]:
    """Return the names of all environments with a link."""
    return sorted(entry.name.removesuffix(_LINK) for entry in _entries() if _is_link(entry))


def fixed(program: str) -> str:
    """Return a program's path without the link that a later switch replaces.

    A process must not change its version while it runs. Other paths are returned as they are: the
    links of a virtual environment identify it.
    """
    for folder in Path(program).parents:
        if not _is_link(folder) or folder.parent.resolve() != engines_dir().resolve():
            continue
        target = _target_of(folder)
        if target is not None:
            return str(target / Path(program).relative_to(folder))
    return program


def _is_link(path: Path) -> bool:
    return path.name.endswith(_LINK) and not path.name.startswith(".") and path.is_symlink()


def _target_of(link: Path) -> Path | None:
    """Return the folder that a link names; None without a link."""
    try:
        return link.parent / link.readlink()
    except OSError as error:
        _log.debug("no version is linked: %s", error)
        return None


def _entries() -> list[Path]:
    try:
        return sorted(engines_dir().iterdir())
    except OSError as error:
        _log.debug("the folder of engines is not read: %s", error)
        return []
