"""The number of cases of one rule that a run takes.

A usual run takes some cases of the long tables and draws fewer examples; with ``EVERY_CASE=1``
it takes all (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import pytest

EVERY_CASE = bool(os.environ.get("EVERY_CASE"))
# for a long test that proves little more than another one does
ONE_MORE_ENGINE = pytest.mark.skipif(
    not EVERY_CASE, reason="EVERY_CASE=1 starts these real programs, too (half a minute)"
)

Case = TypeVar("Case")


def examples(usual: int, most: int) -> int:
    """Return the number of examples that hypothesis draws."""
    return most if EVERY_CASE else usual


def covering(cases: Sequence[Case], traits: Callable[[Case], Iterable[Hashable]]) -> list[Case]:
    """Return the cases that have a trait which none before them has."""
    if EVERY_CASE:
        return list(cases)
    known: set[Hashable] = set()
    found: list[Case] = []
    for case in cases:
        new = set(traits(case)) - known
        if new:
            found.append(case)
            known |= new
    return found
