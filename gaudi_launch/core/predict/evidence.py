"""The figures nearest to a load, the error band of their class, and its kind.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gaudi_launch.core.predict.published import MEASURED_HERE, Figure, Kind, kind_of
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.step_model import (
    LAUNCH_CARDS,
    Setup,
    amounts_of,
    decode,
    prefill,
    rates_of,
)

# the kind of a number that a user may act on
Word = Literal["measured here", "published", "fitted", "assumed"]

# up to here two loads count as alike, for example twice the model and four times the batch
NEAR = 2.0
SHOWN = 3
# doublings of size up to which two counts of parameters may be of one model
_SAME_MODEL = 0.25
# a figure of the class counts for a setup of up to twice or half its cards
_CARDS_NEAR = 1.0
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
    """The basis of a prediction. ``low`` and ``high`` are factors of its speed.

    ``word``: "fitted" needs figures of the class, card, data type and a near number of cards in
    the fit; without them the number is "assumed", and the range contains both cases of a mixture:
    only the selected experts are read, or all. ``measured``: figures of the same load.
    """

    kind: Kind
    points: int
    typical: float
    low: float
    high: float
    near: bool
    neighbours: tuple[Neighbour, ...]
    learned: int = 0
    word: Word = "assumed"
    measured: tuple[Figure, ...] = ()

    def speed(self, expected: float, measure: str = "") -> Band:
        """Return the range of a speed.

        With ``measure``, a name of `Figure.measure`, it contains the figures of the same load.
        """
        return self._including(expected * self.low, expected, expected * self.high, measure)

    def time(self, expected: float, measure: str = "") -> Band:
        """Return the range of a time. ``measure`` as in `speed`."""
        return self._including(expected / self.high, expected, expected / self.low, measure)

    def _including(self, low: float, expected: float, high: float, measure: str) -> Band:
        shown = [
            each.value
            for each in self.measured
            if each.measure == measure and each.statistic in ("total", "mean")
        ]
        return Band(min(low, *shown, expected), expected, max(high, *shown, expected))


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
    name = band_name(kind, query.setup.cards, constants)
    low, high = constants[f"{name}.low"] ** widen, constants[f"{name}.high"] ** widen
    word: Word = "assumed"
    if query.measured and any(_informs(query, kind, figure) for figure in scored):
        word = "fitted"
    elif query.shape.experts:
        slower, faster = _both_paths(query, constants)
        low, high = low * slower, high * faster
    measured = tuple(figure for figure in scored if same_load(query, kind, figure))
    if near and found[0].figure in measured:
        word = "published"
    return Evidence(
        kind=kind,
        points=int(constants.get(f"band.{kind.value}.points", 0)),
        typical=constants[f"{name}.typical"],
        low=low,
        high=high,
        near=near,
        neighbours=_distinct(found),
        word=word,
        measured=measured,
    )


def cards_class(cards: int) -> str:
    """Return the group of card counts whose errors are alike.

    >>> [cards_class(cards) for cards in (1, 2, 4, 8, 16)]
    ['one', 'few', 'few', 'many', 'many']
    """
    if cards == 1:
        return "one"
    return "few" if cards < LAUNCH_CARDS else "many"


def band_name(kind: Kind, cards: int, constants: Mapping[str, float]) -> str:
    """Return the beginning of a band's names, of these cards where there are such."""
    name = f"band.{kind.value}.{cards_class(cards)}"
    if f"{name}.low" in constants:
        return name
    return f"band.{kind.value}"


def same_load(query: Query, kind: Kind, figure: Figure) -> bool:
    """Return True for a figure of the load, cards, data type and model of ``query``."""
    one, other = query.setup, figure.setup
    return (
        (query.input, query.output, query.batch) == (figure.input, figure.output, figure.batch)
        and (one.generation, one.cards, one.math) == (other.generation, other.cards, other.math)
        and kind is figure.kind
        and _doublings(query.shape.active, figure.shape.active) <= _SAME_MODEL
    )


def _informs(query: Query, kind: Kind, figure: Figure) -> bool:
    """Return True for a figure that the fit uses for this setup."""
    one, other = query.setup, figure.setup
    return (
        figure.kind is kind
        and not figure.other_harness
        and (one.generation, one.math) == (other.generation, other.math)
        and _doublings(one.cards, other.cards) <= _CARDS_NEAR
    )


def _both_paths(query: Query, constants: Mapping[str, float]) -> tuple[float, float]:
    """Return the factors of speed if a step reads other experts than assumed.

    The slowest and the fastest of a prefill and a decode step, 1 where nothing changes.
    """
    factors = [1.0]
    seconds = []
    for fused in (query.setup.fused, not query.setup.fused):
        setup = replace(query.setup, fused=fused)
        amounts = amounts_of(setup, query.shape)
        rates = rates_of(setup, query.shape, constants)
        context = query.input + query.output / 2
        steps = (
            prefill(amounts, rates, 1.0, query.input),
            decode(amounts, rates, query.batch, context),
        )
        seconds.append([float(step.total) for step in steps])
    factors += [now / then for now, then in zip(*seconds, strict=True)]
    return min(factors), max(factors)


def of_learned(evidence: Evidence, *, version: int, typical: float) -> Evidence:
    """Return the evidence with this host's constants.

    Where the nearest figure was measured on this host, the typical factor there gives the range.
    """
    own = bool(evidence.neighbours) and evidence.neighbours[0].figure.note == MEASURED_HERE
    if not (own and evidence.near):
        return replace(evidence, learned=version)
    band = max(_LEAST_BAND, typical**2)
    return replace(
        evidence,
        word="measured here",
        learned=version,
        typical=typical,
        low=1 / band,
        high=band,
    )


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
    if bool(query.shape.state_layers) != bool(figure.shape.state_layers):
        apart += _DIFFERENT_EXPERTS
    return apart


def _doublings(one: float, other: float) -> float:
    return abs(math.log2(max(one, 1e-9) / max(other, 1e-9)))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
