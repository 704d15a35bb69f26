"""Draw the latency of one replica against its load.

Time to first token, and time per token below it. Only rectangles and axis labels, as in all
pictures of this package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gaudi_launch import drawing
from gaudi_launch.capacity.search import Curve, latency_at
from gaudi_launch.drawing import INK, WHITE, Rectangle, Words

_LINE, _TARGET, _CHOSEN = (20, 80, 200), (214, 40, 40), (30, 140, 60)
_LEFT, _TOP, _WIDTH, _HEIGHT, _GAP, _RIGHT = 90, 30, 560, 200, 60, 30


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


def panels(curve: Curve, ttft: float | None, tpot: float | None, columns: int) -> tuple[Panel, Panel]:
    """Return both latencies at ``columns`` rates, evenly over the simulated loads."""
    first, last = curve.loads[0].rate, curve.loads[-1].rate
    rates = [first + (last - first) * at / (columns - 1) for at in range(columns)]
    seen = [latency_at(curve, rate) for rate in rates]
    return (
        _panel("TTFT", "S", 1.0, [one for one, _ in seen], ttft),
        _panel("TPOT", "MS", 1000.0, [each for _, each in seen], tpot),
    )


def _panel(name: str, unit: str, factor: float, values: Sequence[float], target: float | None) -> Panel:
    floor = 1e-6
    known = [max(value, floor) for value in values]
    shown = [*known, *([max(target, floor)] if target is not None else [])]
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
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _scene(
    curve: Curve, ttft: float | None, tpot: float | None, chosen: float | None
) -> tuple[int, int, list[Rectangle], list[Words]]:
    boxes: list[Rectangle] = []
    words: list[Words] = []
    top = _TOP
    for panel in panels(curve, ttft, tpot, _WIDTH):
        boxes += [
            Rectangle(_LEFT - 1, top - 1, _WIDTH + 2, _HEIGHT + 2, INK),
            Rectangle(_LEFT, top, _WIDTH, _HEIGHT, WHITE),
        ]
        if chosen is not None:
            boxes.append(Rectangle(_LEFT + column_of(curve, chosen, _WIDTH), top, 1, _HEIGHT, _CHOSEN))
        if panel.target is not None:
            boxes.append(Rectangle(_LEFT, top + _HEIGHT * (1 - panel.height(panel.target)), _WIDTH, 1, _TARGET))
        heights = [top + _HEIGHT * (1 - panel.height(value)) for value in panel.values]
        for at, height in enumerate(heights):
            before = heights[max(0, at - 1)]
            boxes.append(Rectangle(_LEFT + at, min(before, height), 1, abs(before - height) + 2, _LINE))
        words += [
            (10, top + _HEIGHT / 2, f"{panel.name} {panel.unit}"),
            (10, top + 10, number(panel.high * panel.factor)),
            (10, top + _HEIGHT, number(panel.low * panel.factor)),
        ]
        top += _HEIGHT + _GAP
    bottom = top - _GAP + 22
    words += [
        (_LEFT, bottom, number(curve.loads[0].rate)),
        (_LEFT + _WIDTH / 2, bottom, "REQ/S"),
        (_LEFT + _WIDTH - 40, bottom, number(curve.loads[-1].rate)),
    ]
    return _LEFT + _WIDTH + _RIGHT, top - _GAP + 40, boxes, words


def svg(curve: Curve, ttft: float | None, tpot: float | None, chosen: float | None) -> str:
    """Return the picture as SVG text.

    Targets in seconds, ``chosen`` the rate of one replica of the fleet.
    """
    return drawing.svg(*_scene(curve, ttft, tpot, chosen))


def png(curve: Curve, ttft: float | None, tpot: float | None, chosen: float | None) -> bytes:
    """Return the picture as PNG (8-bit RGB)."""
    width, height, boxes, words = _scene(curve, ttft, tpot, chosen)
    return drawing.png(width, height, boxes + drawing.written(words))
