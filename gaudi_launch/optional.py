"""Values that may be missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


def mapped(function: Callable[[_T], _R], value: _T | None) -> _R | None:
    """Return the function's result for a value; None stays None.

    >>> mapped(int, "3"), mapped(int, None)
    (3, None)
    """
    if value is None:
        return None
    return function(value)
