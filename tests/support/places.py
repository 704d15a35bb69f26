"""Folders that tests read."""

from __future__ import annotations

from pathlib import Path

TOP = Path(__file__).parents[2]
SUPPORT = TOP / "tests" / "support"
DATA = TOP / "tests" / "data"
SHARED = TOP.parent / "shared"
