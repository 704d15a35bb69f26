"""Values that may be missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


def value_or(value: _T | None, default: _T) -> _T:
    """Return the value, the default instead of None.

    >>> value_or(0, 5), value_or(None, 5)
    (0, 5)
    """
    if value is None:
        return default
    return value


def mapped(function: Callable[[_T], _R], value: _T | None) -> _R | None:
    """Return the function's result for a value; None stays None.

    >>> mapped(int, "3"), mapped(int, None)
    (3, None)
    """
    if value is None:
        return None
    return function(value)
