"""Fit the constants to published figures, and cross-validate them.

Pure numpy, deterministic.

Each fitted constant has a prior: it moves from there only as far as the figures ask for. Errors are
logarithms of predicted / published and large ones weigh less than their square.

A fit evaluates all figures many times: their loads are formulas here, with equal lengths. What is
shown for a figure is simulated (`gaudi_launch.core.launch.prediction.of_figure`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gaudi_launch.core.predict.constants import Constant
from gaudi_launch.core.predict.loads import Lengths, closed_loop, prompts_together, static_batch
from gaudi_launch.core.predict.published import Figure, Kind
from gaudi_launch.core.predict.step_model import (
    Amounts,
    Parts,
    Rates,
    amounts_of,
    decode,
    prefill,
    rate_names,
)

Floats = Any
# how far a figure of each kind is off where the model is right: repeats of one load differ by about
# this much
_SPREAD: Mapping[Kind, float] = {
    Kind.DENSE: 0.12,
    Kind.SMALL: 0.12,
    Kind.SERVED: 0.20,
    Kind.MIXTURE: 0.35,
    Kind.MLA: 0.35,
    Kind.HYBRID: 0.35,
    Kind.MIXTURE_SERVED: 0.35,
    Kind.MLA_SERVED: 0.35,
    Kind.HYBRID_SERVED: 0.35,
}
_ROUNDS = 15
_STEP = 1e-4
_LATE = 0.9


@dataclass(frozen=True)
class Points:
    """Figures as arrays.

    ``index`` has for each field of Rates the constant's position for each figure.
    """

    names: tuple[str, ...]
    index: Mapping[str, Floats]
    amounts: Amounts
    input: Floats
    output: Floats
    batch: Floats
    requests: Floats
    value: Floats
    together: Floats
    served: Floats
    waves: Floats
    measure: Floats
    statistic: Floats


def points_of(figures: Sequence[Figure], names: Sequence[str]) -> Points:
    """Return ``figures`` as arrays.

    ``names`` are all constants, in the order of their values.
    """
    return Points(
        names=tuple(names),
        index=_positions(figures, names),
        amounts=_amounts(figures),
        input=np.array([figure.input for figure in figures]),
        output=np.array([figure.output for figure in figures]),
        batch=np.array([figure.batch for figure in figures]),
        requests=np.array([figure.requests or figure.batch for figure in figures]),
        value=np.array([figure.value for figure in figures]),
        together=np.array(
            [
                prompts_together(figure.setup.prompt_tokens, figure.input, figure.batch)
                for figure in figures
            ]
        ),
        served=np.array([figure.setup.engine != "static" for figure in figures]),
        waves=np.array([figure.setup.engine == "v0" for figure in figures]),
        measure=np.array([figure.measure for figure in figures]),
        statistic=np.array([figure.statistic for figure in figures]),
    )


def _positions(figures: Sequence[Figure], names: Sequence[str]) -> dict[str, Floats]:
    """Return for each field of Rates the constant's position for each figure."""
    position = {name: at for at, name in enumerate(names)}
    # one more value, which is zero, for terms that do not apply
    none = len(position)
    named = [rate_names(figure.setup, figure.shape) for figure in figures]
    index: dict[str, Floats] = {}
    for field in fields(Rates):
        found = [each[field.name] for each in named]
        index[field.name] = np.array([position[name] if name else none for name in found])
    return index


def _amounts(figures: Sequence[Figure]) -> Amounts:
    """Return the amounts of work of all figures, each as an array."""
    rows = [amounts_of(figure.setup, figure.shape) for figure in figures]
    columns = {
        field.name: np.array([getattr(row, field.name) for row in rows], dtype=float)
        for field in fields(Amounts)
    }
    return Amounts(**columns)


def predicted(points: Points, values: Floats) -> Floats:
    """Return the model's value for each figure, in the figure's unit.

    ``values`` are those of all constants, or rows of them: then each has a row of the result.
    """
    padded = np.concatenate([values, np.zeros((*values.shape[:-1], 1))], axis=-1)
    rates = Rates(**{field: padded[..., index] for field, index in points.index.items()})
    amounts = points.amounts

    def first(prompts: Floats, tokens: Floats) -> Parts:
        return prefill(amounts, rates, prompts, tokens)

    def each(batch: Floats, context: Floats) -> Parts:
        return decode(amounts, rates, batch, context)

    lengths = Lengths(points.input, points.output, points.together)
    together = static_batch(first, each, lengths, points.batch)
    loop = closed_loop(first, each, lengths, points.batch)
    result = np.where(points.served, loop.throughput, together.throughput)
    prompt, step = first(1.0, points.input).total, loop.step
    # the first prompts of all clients wait for one another, later ones for a step; with V0 answers
    # of equal lengths end together, and so do all prompts wait
    early = np.where(points.waves, 1.0, np.minimum(1.0, points.batch / points.requests))
    mean = early * loop.ttft + (1 - early) * (prompt + step)
    ttft = np.where(points.served, mean, together.ttft)
    further = points.output - 1
    round_trip = points.batch * prompt + further * step
    tpot = np.where(points.served, (round_trip - ttft) / further, together.tpot)
    # nine tenths of clients that begin together have their first token when nine tenths are
    # prefilled
    late = ttft * 2 * _LATE * points.batch / (points.batch + 1)
    ttft = np.where(points.statistic == "p90", late, ttft)
    waited = (points.statistic == "median") & (early <= 1 / 2)
    ttft = np.where(waited, prompt + step, ttft)
    tpot = np.where(points.statistic == "step", step, tpot)
    times = np.where(points.measure == "tpot", tpot, ttft)
    return np.where(points.measure == "throughput", result, times)


def errors(points: Points, values: Floats) -> Floats:
    """Return ln(predicted / published) as speeds: positive if the model is too fast."""
    signs = np.where(points.measure == "throughput", 1.0, -1.0)
    return signs * np.log(predicted(points, values) / points.value)


def fit(
    figures: Sequence[Figure],
    constants: Mapping[str, Constant],
    start: Floats | None = None,
    rounds: int = _ROUNDS,
) -> Floats:
    """Return the values of ``constants`` that explain ``figures``, in their order.

    Those with a prior are fitted, the others kept. Levenberg-Marquardt on logarithms.
    """
    used = [figure for figure in figures if not figure.other_harness]
    names = tuple(constants)
    points = points_of(used, names)
    free = np.array([constants[name].prior is not None for name in names])
    scale = np.array([constants[name].scaled / constants[name].value for name in names])
    priors = np.array([constants[name].prior or constants[name].value for name in names]) * scale
    spread = np.array([constants[name].spread or 1.0 for name in names])[free]
    weight = np.array([1 / _SPREAD[figure.kind] for figure in used])
    centre = np.log(priors[free])

    def complete(logs: Floats) -> Floats:
        found = np.broadcast_to(priors, (*logs.shape[:-1], len(priors))).copy()
        found[..., free] = np.exp(logs)
        return found

    def residuals(logs: Floats) -> Floats:
        off = errors(points, complete(logs)) * weight
        # pseudo-Huber: the square near zero, the absolute value far from it
        robust = np.sign(off) * np.sqrt(8 * (np.sqrt(1 + off**2 / 4) - 1))
        return np.concatenate([robust, (logs - centre) / spread], axis=-1)

    first = centre
    if start is not None:
        first = np.log(start[free])
    return complete(_minimise(residuals, first, rounds))


def _minimise(residuals: Callable[[Floats], Floats], start: Floats, rounds: int) -> Floats:
    """Return the values with the least sum of squares.

    Levenberg-Marquardt with forward differences.
    """
    at, damping = start.copy(), 1e-2
    now = residuals(at)
    for _ in range(rounds):
        # a row for each value that moves: computed together, they take a third of the time
        moved = at + _STEP * np.eye(len(at))
        slopes = ((residuals(moved) - now) / _STEP).T
        normal = slopes.T @ slopes
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slopes.T @ now)
        then = residuals(at + step)
        if then @ then < now @ now:
            at, now, damping = at + step, then, damping / 5
        else:
            damping *= 5
    return at
