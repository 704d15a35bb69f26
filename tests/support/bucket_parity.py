"""Recorded bucket lists: what the engines' own code returned (tests/data/parity/buckets, ../shared when there)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.places import TOP

ROOT = TOP
RECORDED = ROOT / "tests" / "data" / "parity" / "buckets"
SHARED = ROOT.parent / "shared" / "parity" / "buckets"


def recorded_files() -> list[Path]:
    """Every file of records, ours first."""
    return [*sorted(RECORDED.glob("*.json.gz")), *sorted(SHARED.glob("*.json"))]


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of one file."""
    data = path.read_bytes()
    yield from json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
