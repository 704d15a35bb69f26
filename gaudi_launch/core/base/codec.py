"""Write records as JSON, and read them back.

Fields that a record does not have are ignored: a later release may write more of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_WRONG = re.compile(r"Expected `(.+)`, got `(.+)`")
_MISSING = re.compile(r"Object missing required field `(.+)`")


class BadRecord(ValueError):
    """A wrong document: its place (``.cards[3].memory``), and what was found there."""

    def __init__(self, place: str, expected: str, found: str) -> None:
        super().__init__(f"{place or '.'}: {found}, expected {expected}")
        self.place = place
        self.expected = expected
        self.found = found


def write(record: Any) -> Any:
    """Return a record as objects, lists, texts and numbers."""
    # it takes 13 ms to import
    import msgspec

    return _with_lists(msgspec.to_builtins(record, enc_hook=_plain, str_keys=True))


def read(kind: type[T], document: object) -> T:
    """Return the record, or another type of values, of a document. Raises BadRecord."""
    import msgspec

    try:
        return msgspec.convert(document, kind, dec_hook=_own, str_keys=True)
    except msgspec.ValidationError as error:
        raise _bad(str(error)) from None


def _with_lists(value: Any) -> Any:
    """Return a value as JSON reads it: msgspec leaves tuples."""
    if isinstance(value, dict):
        return {name: _with_lists(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_lists(each) for each in value]
    return value


def _bad(error: str) -> BadRecord:
    why, _, where = error.partition(" - at ")
    # "`$.cards[3]`", or "`key` in `$.cards[3]`"
    place = where.rpartition("$")[2].removesuffix("`")
    if found := _WRONG.fullmatch(why):
        return BadRecord(place, found[1], found[2])
    if found := _MISSING.fullmatch(why):
        return BadRecord(f"{place}.{found[1]}", "a value", "missing")
    return BadRecord(place, "another value", why)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(type(value))


def _own(kind: type, value: Any) -> Any:
    if issubclass(kind, Path) and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(kind)
