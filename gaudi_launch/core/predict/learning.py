"""Fit constants to this host's own measurements.

Only constants that belong to the host's cards, or to its processor, are moved. The shipped value is
the prior of each, and errors count as in the shipped fit, so that one strange run moves little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gaudi_launch.core.predict.constants import Constant
from gaudi_launch.core.predict.fitting import errors, fit, points_of
from gaudi_launch.core.predict.learned import LearnedConstants
from gaudi_launch.core.predict.published import Figure
from gaudi_launch.core.predict.step_model import Generation

_MOST_MEASUREMENTS = 400
# of ln(constant): measurements of one host may move a constant of its cards by about a third
_SPREAD = 0.3
# nothing is published for a processor
_SPREAD_CPU = 2.0
# a measurement that is off by more than this after the fit has another cause
_OUTLIER = math.log(2.0)
# each has a share that is learned in its place
_PEAKS = ("peak.", "bandwidth.", "pair.")
_SHARED = ("host.v0", "host.v1", "host.sequence")


def learn(
    old: LearnedConstants | None,
    news: Sequence[Figure],
    shipped: Mapping[str, Constant],
    *,
    now: float,
) -> LearnedConstants:
    """Return the next version of the constants.

    It is fitted to the measurements kept so far and the new ones, from the shipped constants. The
    same measurement, given again, counts once. ``now``: seconds since 1970.
    """
    earlier: tuple[Figure, ...] = ()
    version = 1
    if old is not None:
        earlier, version = old.measurements, old.version + 1
    figures = tuple(dict.fromkeys((*earlier, *news)))[-_MOST_MEASUREMENTS:]
    constants = _movable(shipped, {each.setup.generation for each in figures})
    names = tuple(constants)
    start = np.array([constant.scaled for constant in constants.values()])
    before = errors(points_of(figures, names), start)
    fitted = fit(figures, constants)
    off = abs(errors(points_of(figures, names), fitted))
    good = [figure for figure, error in zip(figures, off, strict=True) if error <= _OUTLIER]
    if good and len(good) < len(figures):
        fitted = fit(good, constants)
        off = abs(errors(points_of(good, names), fitted))
    values = {}
    for name, value in zip(names, fitted, strict=True):
        if constants[name].prior is not None:
            values[name] = float(value) * shipped[name].value / shipped[name].scaled
    return LearnedConstants(
        version=version,
        learned_at=now,
        values={name: float(f"{value:.6g}") for name, value in values.items()},
        typical=math.exp(float(off.mean())),
        before=math.exp(float(abs(before).mean())),
        left_out=len(figures) - len(good) if good else 0,
        measurements=figures,
    )


def _movable(shipped: Mapping[str, Constant], generations: set[Generation]) -> dict[str, Constant]:
    """Return all constants; those that these measurements may move have a prior."""
    cards = any(generation != "cpu" for generation in generations)
    found: dict[str, Constant] = {}
    for name, constant in shipped.items():
        prior, spread = None, None
        owner = next((one for one in generations if f".{one}" in name), None)
        shared = cards and name in _SHARED
        if owner == "cpu" and not name.startswith(_PEAKS):
            prior, spread = constant.value, _SPREAD_CPU
        elif constant.prior is not None and (owner is not None or shared):
            prior, spread = constant.value, _SPREAD
        found[name] = replace(constant, prior=prior, spread=spread)
    return found
