"""The duration of a warm-up: a range with its basis, corrected by measurements.

Published points: vllm-gaudi's documentation 49 s for 72 buckets and 32 s for 25 (8B bf16, one
card), about 10 minutes for 271 (72B bf16, four cards): 0.7 to 2.2 s per graph; the same 8B setting
66 s in bf16 and 504 s in fp8 (7.6 times), 23 and 34 s with recipes cached. A uniform time per graph
is assumed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.messages import Message, message
from gaudi_launch.paths import write_whole
from gaudi_launch.reader import read_json

_log = logging.getLogger(__name__)

SECONDS_LOW, SECONDS_HIGH = 0.7, 2.2
FP8_FACTOR = 7.6
CACHED_SHARE = {"bf16": 23 / 66, "fp8": 34 / 504}
# the file's name under the state folder
FILE_NAME = "warmup-times.json"
_MOST_KEPT = 200


@dataclass(frozen=True)
class Measured:
    """One warm-up on this host. ``cached``: recipes existed before it."""

    engine: str
    model: str
    cards: int
    dtype: str
    graphs: int
    seconds: float
    cached: bool = False


@dataclass(frozen=True)
class Span:
    """Seconds, low and high, and their basis."""

    low: float
    high: float
    basis: Message


def is_fp8(dtype: str | None) -> bool:
    """Return True if graphs are the slow fp8 ones."""
    return (dtype or "").lower().startswith(("fp8", "float8"))


def per_graph(
    dtype: str | None,
    cached: bool,
    measured: Sequence[Measured] = (),
    *,
    engine: str = "",
    model: str = "",
    cards: int = 0,
) -> Span:
    """Return the seconds that one graph takes.

    Measurements of the same engine, precision and cache state are preferred to published figures;
    those of the same model and cards to other ones.
    """
    fp8 = is_fp8(dtype)
    alike = [
        m
        for m in measured
        if m.engine == engine and is_fp8(m.dtype) == fp8 and m.cached == cached and m.graphs > 0
    ]
    same = [m for m in alike if m.model == model and m.cards == cards]
    # one measurement is not a range: it varies for the same setting, and more for another model
    if same:
        return _span(same, 1.15, "warmup.basis_measured")
    if alike:
        return _span(alike, 1.6, "warmup.basis_similar")
    factor, kind = 1.0, "bf16"
    if fp8:
        factor, kind = FP8_FACTOR, "fp8"
    if cached:
        factor *= CACHED_SHARE[kind]
    return Span(SECONDS_LOW * factor, SECONDS_HIGH * factor, message("warmup.basis_published"))


def _span(measured: Sequence[Measured], slack: float, basis: str) -> Span:
    times = [each.seconds / each.graphs for each in measured]
    return Span(min(times) / slack, max(times) * slack, message(basis, count=len(times)))


def times(span: Span, graphs: int) -> Span:
    """Return the time of this number of graphs."""
    return Span(span.low * graphs, span.high * graphs, span.basis)


def read_measured(path: Path) -> list[Measured]:
    """Return the warm-ups measured on this host.

    A missing or broken file gives none.
    """
    try:
        entries = read_json(path)["warmups"]
        return [found for entry in entries if (found := _entry(entry)) is not None]
    except (OSError, ValueError, TypeError, KeyError) as error:
        _log.debug("measured warm-ups are not read: %s", error)
        return []


def _entry(entry: Any) -> Measured | None:
    try:
        found = Measured(
            str(entry["engine"]),
            str(entry["model"]),
            int(entry["cards"]),
            str(entry["dtype"]),
            int(entry["graphs"]),
            float(entry["seconds"]),
            bool(entry.get("cached", False)),
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    if found.graphs > 0 and 0 < found.seconds < 1e7:
        return found
    return None


def record(path: Path, measured: Measured) -> None:
    """Add a warm-up to the file atomically; the oldest beyond 200 are dropped.

    Raises OSError.
    """
    kept = [*read_measured(path), measured][-_MOST_KEPT:]
    document = {"schema": 1, "warmups": [asdict(m) for m in kept]}
    write_whole(path, json.dumps(document, indent=1))
