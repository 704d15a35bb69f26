"""Draw the latency of one replica against its load: TTFT, and TPOT below it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gaudi_launch.capacity.search import Curve, Targets, latency_at
from gaudi_launch.optional import mapped


@dataclass(frozen=True)
class Panel:
    """One latency: name, unit, factor from seconds, target and points.

    The target is in seconds; each column has a point.
    """

    name: str
    unit: str
    factor: float
    values: tuple[float, ...]
    target: float | None
    low: float
    high: float

    def height(self, seconds: float) -> float:
        """Return the height of a value: 0 at the bottom, 1 at the top, logarithmic."""
        return (math.log(seconds) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))


def panels(
    curve: Curve, ttft: float | None, tpot: float | None, columns: int
) -> tuple[Panel, Panel]:
    """Return both latencies at ``columns`` rates, evenly over the simulated loads."""
    first, last = curve.loads[0].rate, curve.loads[-1].rate
    rates = [first + (last - first) * at / (columns - 1) for at in range(columns)]
    seen = [latency_at(curve, rate) for rate in rates]
    return (
        _panel("TTFT", "S", 1.0, [one for one, _ in seen], ttft),
        _panel("TPOT", "MS", 1000.0, [each for _, each in seen], tpot),
    )


def _panel(
    name: str, unit: str, factor: float, values: Sequence[float], target: float | None
) -> Panel:
    floor = 1e-6
    known = [max(value, floor) for value in values]
    shown = list(known)
    if target is not None:
        shown.append(max(target, floor))
    return Panel(name, unit, factor, tuple(known), target, min(shown) / 1.15, max(shown) * 1.15)


def column_of(curve: Curve, rate: float, columns: int) -> int:
    """Return the column for ``rate``."""
    first, last = curve.loads[0].rate, curve.loads[-1].rate
    return round(max(0.0, min(1.0, (rate - first) / (last - first))) * (columns - 1))


def number(value: float) -> str:
    """Return a short figure.

    >>> [number(value) for value in (0.01234, 1.5, 31.04, 12345.6)]
    ['0.0123', '1.5', '31', '12346']
    """
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}"


def picture(curve: Curve, targets: Targets, chosen: float | None, title: str, ending: str) -> bytes:
    """Return the picture as a PNG or SVG file: TTFT above TPOT, against the load.

    It is the load of one replica.

    ``chosen`` is the rate of one replica of the fleet. Raises LaunchError (FAILED).
    """
    from gaudi_launch.plotting import BLUE, GREEN, RED, dress, label, plain_numbers, sheet

    rates = [load.rate for load in curve.loads]
    simulated = label("plot.simulated", percentile=f"{targets.percentile:g}")
    with sheet(title, rows=2, size=(9, 7)) as made:
        ttft, tpot = (
            [load.ttft for load in curve.loads],
            [1000 * load.tpot for load in curve.loads],
        )
        goals = (targets.ttft, mapped(lambda seconds: 1000 * seconds, targets.tpot))
        parts = (("ttft", "s", ttft, goals[0]), ("tpot", "ms", tpot, goals[1]))
        for axis, (name, unit, latencies, goal) in zip(made.axes, parts, strict=True):
            dress(
                axis,
                label(f"plot.{name}"),
                label("plot.requests_per_s"),
                label(f"plot.{name}_{unit}"),
            )
            axis.plot(rates, latencies, color=BLUE, marker="o", markersize=3, label=simulated)
            if goal is not None:
                target = label("plot.target", value=f"{number(goal)} {unit}")
                axis.axhline(goal, color=RED, linestyle="--", label=target)
            if chosen is not None:
                at = label("plot.replica", rate=number(chosen))
                axis.axvline(chosen, color=GREEN, linestyle=":", linewidth=2, label=at)
            axis.set_yscale("log")
            plain_numbers(axis.yaxis)
            axis.legend(loc="best")
        return made.rendered(ending)
