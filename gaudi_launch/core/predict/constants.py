"""Constants of the step-time model: value, unit, kind and source of each.

They are read from the profile's data file; what a product can do at most is read from
``profiles/accelerators.yaml``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gaudi_launch.core.base import paths
from gaudi_launch.core.host.accelerators import accelerators

FOLDER = "performance"
FILE = "constants.csv"
# the products whose peaks the model uses
_PRODUCTS = ("gaudi2", "gaudi3")
# one unit of the file in seconds, operations per second or bytes per second
_UNITS: Mapping[str, float] = {
    "TFLOP/s": 1e12,
    "TB/s": 1e12,
    "GB/s": 1e9,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "share": 1.0,
    "tokens": 1.0,
    "sequences": 1.0,
    "columns": 1.0,
    "factor": 1.0,
    "points": 1.0,
}


@dataclass(frozen=True)
class Constant:
    """One number of the model.

    ``prior`` and ``spread`` (of its logarithm) guide a fitted one.
    """

    name: str
    value: float
    unit: str
    kind: str
    source: str
    prior: float | None = None
    spread: float | None = None

    @property
    def scaled(self) -> float:
        """Return the value in seconds, bytes per second or operations per second."""
        return self.value * _UNITS[self.unit]


def folder() -> Path:
    """Return the folder of the shipped figures and constants."""
    return paths.profiles_dir() / FOLDER


@cache
def constants() -> Mapping[str, Constant]:
    """Return the shipped constants by name."""
    return {**peaks(), **read_constants(folder() / FILE)}


def peaks() -> dict[str, Constant]:
    """Return the most that the products do, by the names of the model's constants."""
    found: dict[str, Constant] = {}
    for name in _PRODUCTS:
        card = accelerators()[name]
        rows = (
            (f"peak.{name}.bf16", card.peak_tflops_bf16, "TFLOP/s", "peak_tflops"),
            (f"peak.{name}.fp8", card.peak_tflops_fp8, "TFLOP/s", "peak_tflops"),
            (f"bandwidth.{name}", card.bandwidth_gb_s, "GB/s", "bandwidth_gb_s"),
            (f"pair.{name}", card.pair_gb_s, "GB/s", "pair_gb_s"),
        )
        for constant, value, unit, fact in rows:
            assert value is not None
            found[constant] = Constant(constant, value, unit, "published", card.sources[fact])
    return found


@cache
def shipped_values() -> Mapping[str, float]:
    """Return the shipped constants' values by name.

    In seconds, bytes per second and operations per second.
    """
    return {name: constant.scaled for name, constant in constants().items()}


def read_constants(file: Path) -> dict[str, Constant]:
    """Return the constants of one data file by name."""
    found: dict[str, Constant] = {}
    with file.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            found[row["name"]] = Constant(
                name=row["name"],
                value=float(row["value"]),
                unit=row["unit"],
                kind=row["kind"],
                source=row["source"],
                prior=_optional(row["prior"]),
                spread=_optional(row["spread"]),
            )
    return found


def _optional(text: str) -> float | None:
    if not text:
        return None
    return float(text)
