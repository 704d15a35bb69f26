"""Fit the constants of the step-time model to the shipped figures.

They are written with their error bands.

    .venv/bin/python scripts/fit_speed.py            # fit, print the cross-validation, write the
    constants .venv/bin/python scripts/fit_speed.py --check    # print only; exit code 1 where the
    file differs

The result is the same on each machine to the digits that the file keeps.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gaudi_launch.performance import constants as store
from gaudi_launch.performance import fitting, published
from gaudi_launch.performance.constants import Constant
from gaudi_launch.performance.published import Figure, Kind

# fraction of the left-out figures that is outside the band on each side
TAIL = 0.085
SOURCE = "figures.csv, scripts/fit_speed.py"
WAYS = ("source", "model", "cards")
# a digit of the file more than this is noise of the last rounds
TOLERANCE = 0.01
COLUMNS = ("name", "value", "unit", "kind", "source", "prior", "spread")


def main() -> int:
    """Fit, print and write. Returns the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; 1 where the file differs"
    )
    check = parser.parse_args().check
    shipped = store.constants()
    made = refit(shipped, published.scored())
    print_points(made, published.figures())
    if not check:
        write_constants(store.folder() / store.FILE, made)
        return 0
    different = [
        name for name in made if name not in shipped or _differs(made[name], shipped[name])
    ]
    print("different from the file:", ", ".join(different) or "nothing")
    return 1 if different else 0


def write_constants(file: Path, found: Mapping[str, Constant]) -> None:
    """Write a data file of constants, in the order given."""
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for constant in found.values():
            prior = _cell(constant.prior)
            spread = _cell(constant.spread)
            value = f"{constant.value:.4g}"
            writer.writerow(
                [constant.name, value, constant.unit, constant.kind, constant.source, prior, spread]
            )


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:g}"


def _differs(made: Constant, shipped: Constant) -> bool:
    return abs(made.value - shipped.value) > TOLERANCE * abs(shipped.value)


def refit(shipped: Mapping[str, Constant], figures: tuple[Figure, ...]) -> dict[str, Constant]:
    """Return all constants, fitted, with the bands of the cross-validation."""
    physical = {
        name: one for name, one in shipped.items() if not name.startswith(("band.", "software."))
    }
    fitted = fitting.fit(figures, physical)
    made: dict[str, Constant] = {}
    for name, value in zip(fitted.names, fitted.values, strict=True):
        unit = shipped[name].scaled / shipped[name].value
        made[name] = replace(shipped[name], value=float(value / unit))
    found = cross(figures, physical)
    for kind in Kind:
        made.update(bands(figures, found, kind))
    made["software.old"] = old_software(made)
    return made


def left_out(figures: Sequence[Figure], by: str) -> list[Hashable]:
    """Return the group with which each figure is left out: source, model or cards."""
    if by == "source":
        return [figure.source for figure in figures]
    if by == "model":
        return [figure.model for figure in figures]
    return [figure.setup.cards for figure in figures]


def cross_validate(
    figures: Sequence[Figure], constants: Mapping[str, Constant], by: str, rounds: int = 6
) -> fitting.Floats:
    """Return each figure's error when its group is left out of the fit."""
    all_fitted = fitting.fit(figures, constants)
    groups = left_out(figures, by)
    points = fitting.points_of(figures, all_fitted.names)
    found = np.zeros(len(figures))
    for group in dict.fromkeys(groups):
        out = np.array([one == group for one in groups])
        kept = [figure for figure, absent in zip(figures, out, strict=True) if not absent]
        fitted = fitting.fit(kept, constants, all_fitted, rounds)
        found[out] = fitting.errors(points, fitted.values)[out]
    return found


@dataclass(frozen=True)
class Accuracy:
    """The error of a class of figures.

    ``typical`` is exp(mean |error|); ``fast`` is the number predicted more than 1.5 times too fast.
    """

    kind: Kind
    points: int
    typical: float
    median: float
    fast: int
    off: int


def accuracy(figures: Sequence[Figure], found: fitting.Floats) -> list[Accuracy]:
    """Return the errors of each class."""
    limit = np.log(1.5)
    rows: list[Accuracy] = []
    for kind in Kind:
        off = found[np.array([figure.kind is kind for figure in figures])]
        if not len(off):
            continue
        rows.append(
            Accuracy(
                kind=kind,
                points=len(off),
                typical=float(np.exp(np.abs(off).mean())),
                median=float(np.exp(np.median(off))),
                fast=int((off > limit).sum()),
                off=int((np.abs(off) > limit).sum()),
            )
        )
    return rows


def cross(
    figures: tuple[Figure, ...], physical: Mapping[str, Constant]
) -> dict[str, fitting.Floats]:
    """Return the errors of each left-out figure, and print the table.

    Figures are left out by source, by model and by card count.
    """
    found: dict[str, fitting.Floats] = {}
    for way in WAYS:
        found[way] = cross_validate(figures, physical, way)
        for row in accuracy(figures, found[way]):
            print(
                f"left out by {way:7} {row.kind.value:7} {row.points:4} points  typical "
                f"{row.typical:.3f}  median {row.median:.2f}  more than 1.5 off {row.off}, too "
                f"fast {row.fast}"
            )
    return found


def bands(
    figures: tuple[Figure, ...], found: Mapping[str, fitting.Floats], kind: Kind
) -> dict[str, Constant]:
    """Return the factors between which published / predicted is, of the class.

    Also return its number of figures.
    """
    chosen = np.array([figure.kind is kind for figure in figures])
    off = np.concatenate([found[way][chosen] for way in WAYS])
    numbers = {
        "low": ("factor", float(np.exp(-np.quantile(off, 1 - TAIL)))),
        "high": ("factor", float(np.exp(-np.quantile(off, TAIL)))),
        "typical": ("factor", float(np.exp(np.abs(off).mean()))),
        "points": ("points", float(chosen.sum())),
    }
    made: dict[str, Constant] = {}
    for part, (unit, value) in numbers.items():
        name = f"band.{kind.value}.{part}"
        made[name] = Constant(name, value, unit, "fitted", SOURCE)
    return made


def old_software(made: Mapping[str, Constant]) -> Constant:
    """Return how much slower the figures noted as older software are than the model."""
    physical = {name: one for name, one in made.items() if not name.startswith("band.")}
    older = [
        figure
        for figure in published.figures()
        if figure.not_scored == "older software" and figure.kind is not Kind.MOE
    ]
    points = fitting.points_of(older, tuple(physical))
    off = fitting.errors(points, np.array([one.scaled for one in physical.values()]))
    return Constant("software.old", float(np.exp(np.median(off))), "factor", "fitted", SOURCE)


def print_points(made: Mapping[str, Constant], figures: tuple[Figure, ...]) -> None:
    """Print each scored figure that is off by more than 1.5, in sample."""
    points = fitting.points_of(figures, tuple(made))
    off = fitting.errors(points, np.array([one.scaled for one in made.values()]))
    for figure, error in zip(figures, off, strict=True):
        if abs(error) > np.log(1.5) and not figure.not_scored:
            print(f"off by {np.exp(error):.2f}: {figure.measure} of {figure.title}; {figure.note}")


if __name__ == "__main__":
    raise SystemExit(main())
