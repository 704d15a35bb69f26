"""Folders that tests read."""

from __future__ import annotations

from pathlib import Path

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "gaudi_launch"
TESTS = TOP / "tests"
SUPPORT = TESTS / "support"
DATA = TESTS / "data"
SHARED = TOP.parent / "shared"
