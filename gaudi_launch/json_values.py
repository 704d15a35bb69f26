"""Read parts of JSON of other programs; the wrong type counts as missing."""

from __future__ import annotations

from typing import Any


def mapping(value: object) -> dict[str, Any]:
    """Return an object of JSON; {} for anything else.

    >>> mapping({"a": 1}), mapping([1]), mapping(None)
    ({'a': 1}, {}, {})
    """
    if not isinstance(value, dict):
        return {}
    return value


def array(value: object) -> list[Any]:
    """Return an array of JSON; [] for anything else.

    >>> array([1]), array({"a": 1}), array(None)
    ([1], [], [])
    """
    if not isinstance(value, list):
        return []
    return value
