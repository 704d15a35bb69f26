"""Objects by their names: MODULE:MEMBER, and the entry points of other packages."""

from __future__ import annotations

import logging
import sys
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ForeignMember:
    """An object of another package under a name, as MODULE:MEMBER."""

    name: str
    target: str
    package: str

    def load(self) -> Any:
        """Return the object, imported now. Raises LaunchError (FAILED)."""
        try:
            return member(self.target)
        # code of others fails in any way
        except Exception as error:
            _log.debug("%s cannot be imported", self.target, exc_info=True)
            why = f"{type(error).__name__}: {error}"
            values = {"package": self.package, "name": self.name, "why": why}
            raise LaunchError("foreign.broken", ExitCode.FAILED, **values) from error


def member(target: str) -> Any:
    """Return what MODULE:MEMBER names, imported now."""
    module, _, name = target.partition(":")
    return attrgetter(name)(import_module(module))


def _any_package() -> bool:
    """Return whether an installed package has an entry point for this program."""
    for place in sys.path:
        for file in Path(place or ".").glob("*-info/entry_points.txt"):
            try:
                if b"[gaudi_launch." in file.read_bytes():
                    return True
            except OSError as error:
                _log.debug("the entry points of a package are not read: %s", error)
    return False


@cache
def _entry_points(kind: str) -> tuple[ForeignMember, ...]:
    """Return the entry points ``gaudi_launch.KIND`` of installed packages."""
    if not _any_package():
        return ()
    # it takes as long as a short command
    from importlib.metadata import entry_points

    found = []
    for each in entry_points(group=f"gaudi_launch.{kind}"):
        package = each.dist.name if each.dist is not None else each.value
        found.append(ForeignMember(each.name, each.value, package))
    return tuple(found)


def foreign(kind: str, own: Container[str]) -> Mapping[str, ForeignMember]:
    """Return what other packages add, by name: commands, engines or targets.

    Without names that are among our ``own``, which `refused` lists.
    """
    return {each.name: each for each in _entry_points(kind) if each.name not in own}


def refused(kind: str, own: Container[str]) -> list[Message]:
    """Return why the names of other packages that are our ``own`` are not used."""
    taken = [each for each in _entry_points(kind) if each.name in own]
    return [message("foreign.taken", package=each.package, name=each.name) for each in taken]
