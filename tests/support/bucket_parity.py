"""Recorded bucket lists of the engines' code.

They are in tests/data/parity/buckets and ../shared.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gaudi_launch.core.buckets.families import (
    CONTEXT_LADDER,
    EVERY_CONTEXT,
    FIXED_LENGTHS,
    PLAIN_GRID,
)
from tests.support.places import TOP

ROOT = TOP
RECORDED = ROOT / "tests" / "data" / "parity" / "buckets"
SHARED = ROOT.parent / "shared" / "parity" / "buckets"
# arguments of bucketing as the engines pass them
SMALL = {
    "max_num_seqs": 16,
    "max_model_len": 4096,
    "block_size": 128,
    "num_hpu_blocks": 1000,
    "max_num_prefill_seqs": 1,
    "max_num_batched_tokens": 2048,
}
FOUR_PROMPTS = {
    **SMALL,
    "num_hpu_blocks": 300,
    "max_num_prefill_seqs": 4,
    "max_num_batched_tokens": 4096,
}


def recorded_files() -> list[Path]:
    """Return every file of records, ours first."""
    return [*sorted(RECORDED.glob("*.json.gz")), *sorted(SHARED.glob("*.json"))]


FAMILY_OF = {
    "vllm-fork-aice-v1.21.0": PLAIN_GRID,
    "vllm-fork-aice-v1.22.0": EVERY_CONTEXT,
    "vllm-fork-deepseek_r1": FIXED_LENGTHS,
    "vllm-gaudi-main": CONTEXT_LADDER,
}
"""Family of each branch that was recorded."""


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of one file."""
    data = path.read_bytes()
    yield from json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
