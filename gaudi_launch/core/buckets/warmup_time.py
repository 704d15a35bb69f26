"""The duration of a warm-up: a range with its basis, corrected by measurements.

Published points of dense models: vllm-gaudi's documentation 49 s for 72 buckets and 32 s for 25
(8B bf16, one card), about 10 minutes for 271 (72B bf16, four cards): 0.7 to 2.2 s per graph; the
same 8B setting 66 s in bf16 and 504 s in fp8 (7.6 times), 23 and 34 s with recipes cached.

Others, of profiles/performance/figures.csv, with the number of graphs that the release's own rule
gives (it gives the 48 + 33 of the log of Qwen2.5-7B). Mixtures: Qwen3-30B-A3B bf16, 258 graphs in
628 s on 8 cards and 712 s on 4; Qwen3-235B fp8, 202 graphs in 1162 s; Llama-4-Maverick fp8, 14 s
per graph. Hybrids: Qwen3.8-27B, 258 graphs in 613 s on 8 cards and 82 in 3 minutes on one;
Qwen3.6-35B-A3B with experts, 82 in 17 minutes. These are few, so each range is wider by `_FEW`. A
hybrid with experts was also stopped at 7 minutes per prompt graph (Qwen3-Coder-Next, 8 cards); that
is outside the range. A uniform time per graph is assumed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import value_or
from gaudi_launch.core.base.paths import write_whole
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.models.model import Model

_log = logging.getLogger(__name__)

SECONDS_LOW, SECONDS_HIGH = 0.7, 2.2
FP8_FACTOR = 7.6
WarmupClass = Literal["dense", "mixture", "hybrid", "hybrid mixture"]
_DENSE: WarmupClass = "dense"
# assumed: the next model of a class with one or two published warm-ups differs by this factor
_FEW = 1.6
# seconds per graph, least and most, by class and whether graphs are fp8
_PUBLISHED: Mapping[tuple[WarmupClass, bool], tuple[float, float]] = {
    ("dense", False): (SECONDS_LOW, SECONDS_HIGH),
    ("dense", True): (SECONDS_LOW * FP8_FACTOR, SECONDS_HIGH * FP8_FACTOR),
    ("mixture", False): (628 / 258 / _FEW, 712 / 258 * _FEW),
    ("mixture", True): (1162 / 202 / _FEW, 14 * _FEW),
    ("hybrid", False): (180 / 82 / _FEW, 613 / 258 * _FEW),
    # no figure: as in bf16 at least, by the factor of dense models at most
    ("hybrid", True): (180 / 82 / _FEW, 613 / 258 * _FEW * FP8_FACTOR),
    ("hybrid mixture", False): (1020 / 82 / _FEW, 1020 / 82 * _FEW),
    ("hybrid mixture", True): (1020 / 82 / _FEW, 1020 / 82 * _FEW * FP8_FACTOR),
}
# of the time without a recipe cache, by whether graphs are fp8
CACHED_SHARE = {False: 23 / 66, True: 34 / 504}
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
class Estimate:
    """Warm-up seconds as a range, with a sentence about its basis.

    ``cached`` is the number of graphs that are read from the recipe cache.
    """

    low_seconds: float
    high_seconds: float
    basis: Message
    cached: int = 0

    @property
    def reason(self) -> Message:
        """Return the basis, with the graphs from the recipe cache."""
        if not self.cached:
            return self.basis
        return message("cache.estimate", basis=self.basis.render(), warm=self.cached)

    def of_graphs(self, count: int) -> Estimate:
        """Return the estimate of this number of graphs, from that of one."""
        low, high = self.low_seconds * count, self.high_seconds * count
        return replace(self, low_seconds=low, high_seconds=high)


def warmup_class(model: Model) -> WarmupClass:
    """Return the class whose published warm-ups a model takes."""
    layers = model.layers or 0
    hybrid = value_or(model.attention_layers, layers) < layers
    classes: dict[tuple[bool, bool], WarmupClass] = {
        (False, True): "mixture",
        (True, False): "hybrid",
        (True, True): "hybrid mixture",
    }
    return classes.get((hybrid, bool(model.moe)), "dense")


def is_fp8(dtype: str | None) -> bool:
    """Return True if graphs are the slow fp8 ones."""
    return (dtype or "").lower().startswith(("fp8", "float8"))


def per_graph(
    dtype: str | None,
    cached: bool,
    measured: Sequence[Measured] = (),
    *,
    engine: str = "",
    model: Model | None = None,
    cards: int = 0,
) -> Estimate:
    """Return the seconds that one graph takes; without a model, of a dense one.

    Measurements of the same engine, precision and cache state are preferred to published figures;
    those of the same model and cards to other ones.
    """
    fp8 = is_fp8(dtype)
    name, kind = "", _DENSE
    if model is not None:
        name, kind = model.name, warmup_class(model)
    alike = [
        m
        for m in measured
        if m.engine == engine and is_fp8(m.dtype) == fp8 and m.cached == cached and m.graphs > 0
    ]
    same = [m for m in alike if m.model == name and m.cards == cards]
    # one measurement is not a range: it varies for the same setting, and more for another model
    if same:
        return _span(same, 1.15, "warmup.basis_measured")
    if alike:
        return _span(alike, 1.6, "warmup.basis_similar")
    low, high = _PUBLISHED[kind, fp8]
    basis = message("warmup.basis_published", low=f"{low:.1f}", high=f"{high:.1f}")
    if cached:
        low, high = low * CACHED_SHARE[fp8], high * CACHED_SHARE[fp8]
    return Estimate(low, high, basis)


def _span(measured: Sequence[Measured], slack: float, basis: str) -> Estimate:
    times = [each.seconds / each.graphs for each in measured]
    return Estimate(min(times) / slack, max(times) * slack, message(basis, count=len(times)))


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
        found = codec.read(Measured, entry)
    except codec.BadRecord:
        return None
    if found.graphs > 0 and 0 < found.seconds < 1e7:
        return found
    return None


def record(path: Path, measured: Measured) -> None:
    """Add a warm-up to the file atomically; the oldest beyond 200 are dropped.

    Raises OSError.
    """
    kept = [*read_measured(path), measured][-_MOST_KEPT:]
    document = {"schema": 1, "warmups": codec.write(kept)}
    write_whole(path, json.dumps(document, indent=1))
