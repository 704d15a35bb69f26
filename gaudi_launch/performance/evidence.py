"""The published figures nearest to a load, and the error band of their class.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gaudi_launch.performance.published import MEASURED_HERE, Figure, Kind, kind_of
from gaudi_launch.performance.shape import Shape
from gaudi_launch.performance.step_model import Setup

# up to here two loads count as alike, for example twice the model and four times the batch
NEAR = 2.0
SHOWN = 3
# assumed: a prediction far from every figure is off by the class's error and this much more of it
_FAR = 1.6
_DIFFERENT_CARD = 1.0
_DIFFERENT_MATH = 1.0
_DIFFERENT_HARNESS = 2.5
_DIFFERENT_EXPERTS = 1.5
_LENGTH_WEIGHT = 0.3
# assumed: repeats of a load on one host differ by this factor
_LEAST_BAND = 1.15
_CARDS_WEIGHT = 0.5


@dataclass(frozen=True)
class Query:
    """A load that evidence is sought for: ``batch`` sequences at once over all cards.

    ``measured`` False: no figure is of this product or this number of cards, whatever the rest is.
    """

    setup: Setup
    shape: Shape
    input: float
    output: float
    batch: float
    measured: bool = True


@dataclass(frozen=True)
class Neighbour:
    """A figure and its distance from a query: doublings of size, batch and cards."""

    figure: Figure
    distance: float


@dataclass(frozen=True)
class Band:
    """A value with its range: four fifths of the class's left-out figures are in it."""

    low: float
    expected: float
    high: float

    def to_json(self) -> dict[str, float]:
        """Return the three numbers, rounded to four digits."""
        return {
            "low": _rounded(self.low),
            "expected": _rounded(self.expected),
            "high": _rounded(self.high),
        }


@dataclass(frozen=True)
class Evidence:
    """The basis of a prediction. ``low`` and ``high`` are factors of its speed."""

    kind: Kind
    points: int
    typical: float
    low: float
    high: float
    near: bool
    neighbours: tuple[Neighbour, ...]
    learned: int = 0

    def speed(self, expected: float) -> Band:
        """Return the range of a speed."""
        return Band(expected * self.low, expected, expected * self.high)

    def time(self, expected: float) -> Band:
        """Return the range of a time."""
        return Band(expected / self.high, expected, expected / self.low)


def evidence_for(
    query: Query, figures: Sequence[Figure], constants: Mapping[str, float]
) -> Evidence:
    """Return the class of ``query``, its nearest scored figures and its band."""
    kind = kind_of(query.shape, query.setup.engine, query.batch)
    scored = [figure for figure in figures if not figure.not_scored]
    found = sorted(
        (Neighbour(figure, distance(query, figure)) for figure in scored),
        key=lambda neighbour: neighbour.distance,
    )
    near = query.measured and bool(found) and found[0].distance <= NEAR
    widen = 1.0 if near else _FAR
    return Evidence(
        kind=kind,
        points=int(constants[f"band.{kind.value}.points"]),
        typical=constants[f"band.{kind.value}.typical"],
        low=constants[f"band.{kind.value}.low"] ** widen,
        high=constants[f"band.{kind.value}.high"] ** widen,
        near=near,
        neighbours=_distinct(found),
    )


def of_learned(evidence: Evidence, *, version: int, typical: float) -> Evidence:
    """Return the evidence with this host's constants.

    Where the nearest figure was measured on this host, the typical factor there gives the range.
    """
    own = bool(evidence.neighbours) and evidence.neighbours[0].figure.note == MEASURED_HERE
    if not (own and evidence.near):
        return replace(evidence, learned=version)
    band = max(_LEAST_BAND, typical**2)
    return replace(evidence, learned=version, typical=typical, low=1 / band, high=band)


def _distinct(found: Sequence[Neighbour]) -> tuple[Neighbour, ...]:
    """Return the first few, one of each load and source."""
    chosen: dict[tuple[str, str], Neighbour] = {}
    for neighbour in found:
        chosen.setdefault((neighbour.figure.title, neighbour.figure.source), neighbour)
        if len(chosen) == SHOWN:
            break
    return tuple(chosen.values())


def distance(query: Query, figure: Figure) -> float:
    """Return the distance of two loads: 0 if equal, 1 for twice the model.

    Four times the batch per card is 1, too.
    """
    one, other = query.setup, figure.setup
    apart = _doublings(query.shape.active, figure.shape.active)
    apart += _CARDS_WEIGHT * _doublings(one.cards, other.cards)
    apart += _doublings(query.batch / one.cards, figure.batch / other.cards) / 2
    apart += _LENGTH_WEIGHT * _doublings(query.input, figure.input)
    apart += _LENGTH_WEIGHT * _doublings(query.output, figure.output)
    if one.generation != other.generation:
        apart += _DIFFERENT_CARD
    if one.math != other.math:
        apart += _DIFFERENT_MATH
    if (one.engine == "static") != (other.engine == "static"):
        apart += _DIFFERENT_HARNESS
    if bool(query.shape.experts) != bool(figure.shape.experts):
        apart += _DIFFERENT_EXPERTS
    if query.shape.experts and figure.shape.experts:
        apart += _doublings(query.shape.parameters, figure.shape.parameters) / 2
        apart += _DIFFERENT_EXPERTS * (one.fused != other.fused)
    return apart


def _doublings(one: float, other: float) -> float:
    return abs(math.log2(max(one, 1e-9) / max(other, 1e-9)))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
