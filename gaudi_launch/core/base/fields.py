"""Command-line options as metadata of a record's fields, stated once.

@dataclass(frozen=True)
class Options:
    port: int | None = value("-p", "--port", help="Port to listen on.", metavar="PORT", read=port)
    force: bool = switch("--force", help="Continue where a check fails.", panel="More")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_KEY = "gaudi_launch.option"
# makes a value of the name of an option and its text
Reader = Callable[[str, str], Any]


class OneNumber(tuple[int, int]):
    """Two bounds given as one number; the start scripts use other values then."""

    __slots__ = ()


@dataclass(frozen=True)
class Option:
    """One option.

    No ``metavar``: it takes no value. ``many``: it may be given more than once.

    Without names it is what follows ``--``. ``bare``: its value may be given without its name, as
    the only positional argument. ``read`` makes the value of an option's name and text, ``join`` is
    between the parts of a value with several.
    """

    names: tuple[str, ...]
    help: str
    panel: str = ""
    metavar: str = ""
    many: bool = False
    bare: bool = False
    read: Reader | None = None
    join: str = ","

    @property
    def switch(self) -> bool:
        """Return True if the option is given without a value."""
        return not self.metavar

    def written(self, value: Any) -> str:
        """Return the text that `read` makes this value of."""
        if isinstance(value, float):
            return str(value).removesuffix(".0")
        if not isinstance(value, tuple):
            return str(value)
        if isinstance(value, OneNumber):
            value = value[:1]
        return self.join.join(map(str, value))


def value(
    *names: str,
    help: str,
    metavar: str,
    panel: str = "",
    bare: bool = False,
    read: Reader | None = None,
    join: str = ",",
) -> Any:
    """Return a field for an option with one value, None where not given."""
    option = Option(names, help, panel, metavar, bare=bare, read=read, join=join)
    return field(default=None, metadata={_KEY: option})


def text(
    *names: str,
    help: str,
    metavar: str,
    panel: str = "",
    default: str = "",
    read: Reader | None = None,
) -> Any:
    """Return a field for an option with one value.

    Without ``default`` it is empty where not given.
    """
    return field(default=default, metadata={_KEY: Option(names, help, panel, metavar, read=read)})


def switch(*names: str, help: str, panel: str = "", default: bool | None = False) -> Any:
    """Return a field for an option without a value."""
    return field(default=default, metadata={_KEY: Option(names, help, panel)})


def values(*names: str, help: str, metavar: str, panel: str = "") -> Any:
    """Return a field for an option that may be repeated.

    Without names it is for the arguments after ``--``.
    """
    return field(default=(), metadata={_KEY: Option(names, help, panel, metavar, many=True)})


def option_of(field: Field[Any]) -> Option | None:
    """Return the option of a field, None for one that the command line does not set."""
    found = field.metadata.get(_KEY)
    return found if isinstance(found, Option) else None


def options_of(record: DataclassInstance | type[DataclassInstance]) -> dict[str, Option]:
    """Return the options of a record by their fields."""
    found = {each.name: option_of(each) for each in fields(record)}
    return {name: option for name, option in found.items() if option is not None}


@dataclass(frozen=True)
class OptionRecord:
    """A record of options, whose values may be given as text.

    Raises LaunchError (USAGE).
    """

    def __post_init__(self) -> None:
        """Read each value by its option, so that a number has the bounds of the text."""
        for name, option in options_of(self).items():
            given = getattr(self, name)
            if option.read is not None and given is not None:
                checked = option.read(option.names[0], option.written(given))
                object.__setattr__(self, name, checked)

    def options_given(self) -> tuple[tuple[str, Option], ...]:
        """Return the field and the option of each given value, in the order of the help."""
        return tuple(
            (name, option)
            for name, option in options_of(self).items()
            if option.names and getattr(self, name)
        )

    def text(self, name: str) -> str:
        """Return a value as it is typed, "" where not given."""
        given = dict(self.options_given())
        if name not in given:
            return ""
        return given[name].written(getattr(self, name))
