"""Read parts of JSON of other programs; the wrong type counts as missing."""

from __future__ import annotations

from typing import Any, TypeGuard


def mapping(value: object) -> dict[str, Any]:
    """Return an object of JSON; {} for anything else.

    >>> mapping({"a": 1}), mapping([1]), mapping(None)
    ({'a': 1}, {}, {})
    """
    if not isinstance(value, dict):
        return {}
    return value


def is_number(value: object) -> TypeGuard[float]:
    """Return True for a number of JSON.

    >>> is_number(1.5), is_number(2), is_number(True), is_number("3")
    (True, True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: object) -> float | None:
    """Return a number of JSON; None for anything else.

    >>> number(2), number(True)
    (2.0, None)
    """
    if is_number(value):
        return float(value)
    return None


def array(value: object) -> list[Any]:
    """Return an array of JSON; [] for anything else.

    >>> array([1]), array({"a": 1}), array(None)
    ([1], [], [])
    """
    if not isinstance(value, list):
        return []
    return value
