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

from gaudi_launch.core.predict import constants as store
from gaudi_launch.core.predict import fitting, published
from gaudi_launch.core.predict.constants import Constant
from gaudi_launch.core.predict.evidence import cards_class
from gaudi_launch.core.predict.published import Figure, Kind

# fraction of the left-out figures that is outside the band on each side
TAIL = 0.06
SOURCE = "figures.csv, scripts/fit_speed.py"
WAYS = ("source", "model", "cards", "release")
# classes of mixtures and hybrids behind a server: few people publish them
FEW_OWNERS = (Kind.MIXTURE_SERVED, Kind.MLA_SERVED, Kind.HYBRID_SERVED)
# a band of fewer figures than this takes those of the classes next to it
LEAST = 12
NEXT_TO = (
    (Kind.DENSE, Kind.SMALL, Kind.SERVED),
    (Kind.MIXTURE, Kind.MLA, Kind.HYBRID),
    FEW_OWNERS,
    tuple(Kind),
)
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
            if constant.name in store.peaks():
                continue
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
    for name, value in zip(physical, fitted, strict=True):
        unit = shipped[name].scaled / shipped[name].value
        made[name] = replace(shipped[name], value=float(value / unit))
    found = {way: cross_validate(figures, physical, way) for way in (*WAYS, "owner")}
    print_accuracy(figures, found)
    for kind in Kind:
        made.update(bands(figures, found, kind))
    made["software.old"] = old_software(made)
    return made


def left_out(figures: Sequence[Figure], by: str) -> list[Hashable]:
    """Return the group with which each figure is left out."""
    if by == "cards":
        return [figure.setup.cards for figure in figures]
    if by == "release":
        return [figure.software for figure in figures]
    return [getattr(figure, by) for figure in figures]


def cross_validate(
    figures: Sequence[Figure], constants: Mapping[str, Constant], by: str, rounds: int = 6
) -> fitting.Floats:
    """Return each figure's error when its group is left out of the fit."""
    all_fitted = fitting.fit(figures, constants)
    groups = left_out(figures, by)
    points = fitting.points_of(figures, tuple(constants))
    found = np.zeros(len(figures))
    for group in dict.fromkeys(groups):
        out = np.array([one == group for one in groups])
        kept = [figure for figure, absent in zip(figures, out, strict=True) if not absent]
        fitted = fitting.fit(kept, constants, all_fitted, rounds)
        found[out] = fitting.errors(points, fitted)[out]
    return found


@dataclass(frozen=True)
class Accuracy:
    """The errors of a class's left-out figures, and the band of the others.

    ``typical`` is exp(mean |error|); ``inside`` the share in the band of the figures that were not
    left out with it, ``width`` the median of high / low of these bands.
    """

    kind: Kind
    points: int
    typical: float
    inside: float
    width: float


def accuracy(
    figures: Sequence[Figure], found: Mapping[str, fitting.Floats], way: str
) -> list[Accuracy]:
    """Return the accuracy of each class when complete groups are left out by ``way``."""
    groups = left_out(figures, way)
    rows: list[Accuracy] = []
    for kind in Kind:
        inside: list[bool] = []
        widths: list[float] = []
        own = [at for at, figure in enumerate(figures) if figure.kind is kind]
        if not own:
            continue
        for at in own:
            kept = np.array([group != groups[at] for group in groups])
            cell = cards_class(figures[at].setup.cards)
            low, high = limits(figures, found, Cell(kind, cell), kept)
            inside.append(low <= found[way][at] <= high)
            widths.append(float(np.exp(high - low)))
        off = np.abs(found[way][own])
        rows.append(
            Accuracy(
                kind=kind,
                points=len(own),
                typical=float(np.exp(off.mean())),
                inside=float(np.mean(inside)),
                width=float(np.median(widths)),
            )
        )
    return rows


def print_accuracy(figures: Sequence[Figure], found: Mapping[str, fitting.Floats]) -> None:
    """Print the accuracy by class and by what was left out."""
    for way in found:
        for row in accuracy(figures, found, way):
            print(
                f"left out by {way:7} {row.kind.value:14} {row.points:4} points  typical "
                f"{row.typical:.3f}  inside {100 * row.inside:3.0f} %  width {row.width:.2f}"
            )


@dataclass(frozen=True)
class Cell:
    """A class, and one of the groups of card counts or "" for all."""

    kind: Kind
    cards: str = ""

    @property
    def name(self) -> str:
        """Return the beginning of the names of its band."""
        return ".".join(part for part in ("band", self.kind.value, self.cards) if part)


def members(figures: Sequence[Figure], cell: Cell) -> fitting.Floats:
    """Return which figures belong to a class on such cards."""
    return np.array(
        [
            figure.kind is cell.kind and cell.cards in ("", cards_class(figure.setup.cards))
            for figure in figures
        ]
    )


def chosen(figures: Sequence[Figure], cell: Cell, kept: fitting.Floats) -> fitting.Floats:
    """Return the figures that make a band.

    Those of the cards; of the class where they are few; of the classes next to it where those are.
    """
    wanted = members(figures, cell) & kept
    if wanted.sum() < LEAST:
        wanted = members(figures, Cell(cell.kind)) & kept
    for near in NEXT_TO:
        if cell.kind in near and wanted.sum() < LEAST:
            wanted = np.any([members(figures, Cell(kind)) for kind in near], axis=0) & kept
    return wanted


def limits(
    figures: Sequence[Figure],
    found: Mapping[str, fitting.Floats],
    cell: Cell,
    kept: fitting.Floats,
) -> tuple[float, float]:
    """Return between which errors the figures that make a band are."""
    wanted = chosen(figures, cell, kept)
    off = np.concatenate([found[way][wanted] for way in ways_of(cell.kind)])
    low, high = np.quantile(off, (TAIL, 1 - TAIL))
    return float(low), float(high)


def ways_of(kind: Kind) -> tuple[str, ...]:
    """Return what is left out in turn for the band of a class."""
    return ("owner",) if kind in FEW_OWNERS else WAYS


def bands(
    figures: tuple[Figure, ...], found: Mapping[str, fitting.Floats], kind: Kind
) -> dict[str, Constant]:
    """Return the factors between which published / predicted is, of the class.

    Also return its number of figures in the fit, and the factors on such numbers of cards as have
    enough figures.
    """
    made: dict[str, Constant] = {}
    for cards in ("", "one", "few", "many"):
        cell = Cell(kind, cards)
        every = np.ones(len(figures), dtype=bool)
        if cards and members(figures, cell).sum() < LEAST:
            continue
        low, high = limits(figures, found, cell, every)
        wanted = chosen(figures, cell, every)
        off = np.concatenate([found[way][wanted] for way in ways_of(kind)])
        numbers = {
            "low": ("factor", float(np.exp(-high))),
            "high": ("factor", float(np.exp(-low))),
            "typical": ("factor", float(np.exp(np.abs(off).mean()))),
        }
        if not cards:
            used = sum(one.kind is kind and not one.other_harness for one in figures)
            if used:
                numbers["points"] = ("points", float(used))
        for part, (unit, value) in numbers.items():
            name = f"{cell.name}.{part}"
            made[name] = Constant(name, value, unit, "fitted", SOURCE)
    return made


def old_software(made: Mapping[str, Constant]) -> Constant:
    """Return how much slower the figures noted as older software are than the model."""
    physical = {name: one for name, one in made.items() if not name.startswith("band.")}
    older = [
        figure
        for figure in published.figures()
        if figure.not_scored == "older software" and not figure.shape.experts
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
