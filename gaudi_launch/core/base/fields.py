"""Command-line options as metadata of a record's fields, stated once.

@dataclass(frozen=True)
class Options:
    port: str | None = value("-p", "--port", help="Port to listen on.", metavar="PORT")
    force: bool = switch("--force", help="Continue where a check fails.", panel="More")
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import Any

_KEY = "gaudi_launch.option"


@dataclass(frozen=True)
class Option:
    """One option.

    No ``metavar``: it takes no value. ``many``: it may be given more than once.

    Without names it is what follows ``--``. ``bare``: its value may be given without its name, as
    the only positional argument.
    """

    names: tuple[str, ...]
    help: str
    panel: str = ""
    metavar: str = ""
    many: bool = False
    bare: bool = False

    @property
    def switch(self) -> bool:
        """Return True if the option is given without a value."""
        return not self.metavar


def value(*names: str, help: str, panel: str, metavar: str, bare: bool = False) -> Any:
    """Return a field for an option with one value, None where not given."""
    return field(default=None, metadata={_KEY: Option(names, help, panel, metavar, bare=bare)})


def text(*names: str, help: str, panel: str, metavar: str, default: str = "") -> Any:
    """Return a field for an option with one value.

    Without ``default`` it is empty where not given.
    """
    return field(default=default, metadata={_KEY: Option(names, help, panel, metavar)})


def switch(*names: str, help: str, panel: str) -> Any:
    """Return a field for an option without a value."""
    return field(default=False, metadata={_KEY: Option(names, help, panel)})


def values(*names: str, help: str, metavar: str, panel: str = "") -> Any:
    """Return a field for an option that may be repeated.

    Without names it is for the arguments after ``--``.
    """
    return field(default=(), metadata={_KEY: Option(names, help, panel, metavar, many=True)})


def option_of(field: Field[Any]) -> Option | None:
    """Return the option of a field, None for one that the command line does not set."""
    found = field.metadata.get(_KEY)
    return found if isinstance(found, Option) else None
