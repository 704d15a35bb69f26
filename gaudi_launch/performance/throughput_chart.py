"""Tokens per second against sequences at once, with the range, as a picture.

Both axes are logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gaudi_launch import drawing
from gaudi_launch.drawing import INK, WHITE, Color, Rectangle, Words
from gaudi_launch.performance.evidence import Band

LEAST = 16
_BAND: Color = (200, 215, 245)
_LINE: Color = (20, 80, 200)
_LEFT, _TOP, _WIDTH, _HEIGHT, _RIGHT, _BOTTOM = 90, 30, 560, 300, 30, 40


@dataclass(frozen=True)
class Point:
    """Output tokens per second at a number of sequences."""

    batch: int
    throughput: Band


def batches(most: int) -> list[int]:
    """Return the powers of two below ``most``, and ``most``.

    >>> batches(20)
    [1, 2, 4, 8, 16, 20]
    """
    found = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return [*found, most]


def svg(points: Sequence[Point]) -> str:
    """Return the picture as SVG text."""
    return drawing.svg(*_scene(points))


def png(points: Sequence[Point]) -> bytes:
    """Return the picture as PNG."""
    width, height, boxes, words = _scene(points)
    return drawing.png(width, height, boxes + drawing.written(words))


def _scene(points: Sequence[Point]) -> tuple[int, int, list[Rectangle], list[Words]]:
    low = min(point.throughput.low for point in points) / 1.15
    high = max(point.throughput.high for point in points) * 1.15
    last = points[-1].batch

    def height(value: float) -> float:
        return _TOP + _HEIGHT * (1 - math.log(value / low) / math.log(high / low))

    boxes = [
        Rectangle(_LEFT - 1, _TOP - 1, _WIDTH + 2, _HEIGHT + 2, INK),
        Rectangle(_LEFT, _TOP, _WIDTH, _HEIGHT, WHITE),
    ]
    for column in range(_WIDTH):
        batch = last ** (column / (_WIDTH - 1))
        band = _between(points, batch)
        top, middle, bottom = height(band.high), height(band.expected), height(band.low)
        boxes.append(Rectangle(_LEFT + column, top, 1, bottom - top, _BAND))
        boxes.append(Rectangle(_LEFT + column, middle - 1, 1, 2, _LINE))
    words: list[Words] = [
        (10, _TOP + _HEIGHT / 2, "TOKENS/S"),
        (10, _TOP + 10, f"{high:.0f}"),
        (10, _TOP + _HEIGHT, f"{low:.0f}"),
        (_LEFT, _TOP + _HEIGHT + 22, "1"),
        (_LEFT + _WIDTH / 2 - 40, _TOP + _HEIGHT + 22, "SEQUENCES"),
        (_LEFT + _WIDTH - 40, _TOP + _HEIGHT + 22, str(last)),
    ]
    return _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + _BOTTOM, boxes, words


def _between(points: Sequence[Point], batch: float) -> Band:
    """Return the range at ``batch``, along straight lines over the logarithms."""
    after = next((at for at, point in enumerate(points) if point.batch >= batch), len(points) - 1)
    if after == 0:
        return points[0].throughput
    one, other = points[after - 1], points[after]
    share = math.log(batch / one.batch) / math.log(other.batch / one.batch)

    def mix(first: float, second: float) -> float:
        return math.exp((1 - share) * math.log(first) + share * math.log(second))

    return Band(
        mix(one.throughput.low, other.throughput.low),
        mix(one.throughput.expected, other.throughput.expected),
        mix(one.throughput.high, other.throughput.high),
    )
