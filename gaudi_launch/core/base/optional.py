"""Values that may be missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of those that are known; None without one.

    >>> mean([1, None, 2]), mean([None])
    (1.5, None)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    return sum(known) / len(known)


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum of all; None where one is unknown, or without any.

    >>> total([1, 2]), total([1, None]), total([])
    (3.0, None, None)
    """
    found = list(values)
    known = [value for value in found if value is not None]
    if not known or len(known) != len(found):
        return None
    return float(sum(known))


def mapped(function: Callable[[_T], _R], value: _T | None) -> _R | None:
    """Return the function's result for a value; None stays None.

    >>> mapped(int, "3"), mapped(int, None)
    (3, None)
    """
    if value is None:
        return None
    return function(value)
