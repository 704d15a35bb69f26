"""Draw runs: distribution of TTFT, and tokens per second over time.

For terminals and as PNG.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gaudi_launch import drawing
from gaudi_launch.bench.run_file import Sample
from gaudi_launch.bench.statistics import over_time, values
from gaudi_launch.drawing import INK, LETTER_WIDTH, WHITE, Color, Rectangle

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#@"
_COLORS: tuple[Color, ...] = ((20, 80, 200), (214, 100, 20))
_MARGIN, _WIDTH, _HEIGHT = 60, 480, 260


def histogram(numbers: Sequence[float], rows: int = 8) -> list[tuple[float, float, int]]:
    """Return (low, high, count) of equal cells on a logarithmic scale.

    They reach from the smallest to the largest value.
    """
    positive = sorted(number for number in numbers if number > 0)
    if not positive:
        return []
    low, high = positive[0], positive[-1]
    if high <= low * 1.0001:
        return [(low, high, len(positive))]
    step = math.log(high / low) / rows
    ends = [low * math.exp(step * at) for at in range(rows)] + [high]
    counts = [0] * rows
    for number in positive:
        counts[min(rows - 1, int(math.log(number / low) / step))] += 1
    return list(zip(ends, ends[1:], counts, strict=False))


def terminal(samples: Sequence[Sample], titles: tuple[str, str], width: int = 60, ascii: bool = False) -> list[str]:
    """Return lines of both plots; ``titles`` are those of TTFT and of the rate.

    The result is empty when no request succeeded.
    """
    shades = _ASCII if ascii else _BLOCKS
    cells = histogram(values(samples, "ttft"))
    if not cells:
        return []
    most = max(count for _, _, count in cells)
    lines = [titles[0]]
    for low, high, count in cells:
        bar = shades[-1] * round((width - 20) * count / most) or (shades[1] if count else "")
        lines.append(f"{_ms(low):>8} -{_ms(high):>8} |{bar} {count}")
    seconds, rates = over_time(samples, width)
    top = max(rates, default=0.0)
    if top > 0:
        lines += ["", titles[1]]
        marks = "".join(shades[_level(rate / top, len(shades))] for rate in rates)
        lines.append(f"{top:>8.0f} |{marks}|")
        lines.append(" " * 10 + "0" + f"{seconds * len(rates):.0f} s".rjust(len(rates) - 1))
    return lines


def _level(share: float, levels: int) -> int:
    return 0 if share <= 0 else max(1, round(share * (levels - 1)))


def _ms(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def png(runs: Sequence[tuple[str, Sequence[Sample]]]) -> bytes:
    """Return both panels of one or two named runs, with scales.

    The text in the picture is English.
    """
    width, height = 3 * _MARGIN + 2 * _WIDTH, 2 * _MARGIN + _HEIGHT
    boxes: list[Rectangle] = []
    left, right = _MARGIN, 2 * _MARGIN + _WIDTH
    for number, (name, _) in enumerate(runs):
        x = left + 260 * number
        boxes.append(Rectangle(x, 12, 14, 10, _COLORS[number % 2]))
        boxes += drawing.words(name[:26], x + 20, 12)
    boxes += _spread(left, [values(samples, "ttft") for _, samples in runs])
    boxes += _course(right, [over_time(samples, 80) for _, samples in runs])
    return drawing.png(width, height, boxes)


def _frame(left: int, title: str) -> list[Rectangle]:
    return [
        Rectangle(left - 1, _MARGIN - 1, _WIDTH + 2, _HEIGHT + 2, INK),
        Rectangle(left, _MARGIN, _WIDTH, _HEIGHT, WHITE),
        *drawing.words(title, left, _MARGIN - 18),
    ]


_GREY: Color = (225, 225, 225)


def _mark_x(x: float, label: str) -> list[Rectangle]:
    half = len(label) * LETTER_WIDTH
    return [Rectangle(x, _MARGIN, 1, _HEIGHT, _GREY), *drawing.words(label, x - half, _MARGIN + _HEIGHT + 8)]


def _mark_y(left: int, y: float, label: str) -> list[Rectangle]:
    wide = len(label) * LETTER_WIDTH * 2
    return [Rectangle(left, y, _WIDTH, 1, _GREY), *drawing.words(label, left - wide - 4, y - 5)]


def _spread(left: int, sets: list[list[float]]) -> list[Rectangle]:
    """Return the share of requests (y) with a first token within a time (x, log)."""
    boxes = _frame(left, "time to first token, share of requests")
    positive = [number for numbers in sets for number in numbers if number > 0]
    if not positive:
        return boxes
    low, high = math.log10(min(positive)), math.log10(max(positive))
    low, high = low - 0.05, max(high + 0.05, low + 0.3)

    def x(number: float) -> float:
        return left + _WIDTH * (math.log10(number) - low) / (high - low)

    for percent in (50, 90, 99):
        boxes += _mark_y(left, _MARGIN + _HEIGHT * (1 - percent / 100), f"{percent}%")
    ticks = [m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
    shown = [tick for tick in ticks if low <= math.log10(tick) <= high]
    if len(shown) < 3:
        # between two round numbers: the ends and the middle
        shown = [10 ** (low + (high - low) * part) for part in (0.1, 0.5, 0.9)]
    for tick in shown[:: max(1, len(shown) // 7)]:
        boxes += _mark_x(x(tick), _ms(tick).replace(" ", ""))
    for number, numbers in enumerate(sets):
        ordered = sorted(number for number in numbers if number > 0)
        points = [(float(left), float(_MARGIN + _HEIGHT))]
        for place, value in enumerate(ordered, start=1):
            points.append((x(value), _MARGIN + _HEIGHT * (1 - place / len(ordered))))
        if ordered:
            points.append((float(left + _WIDTH), float(_MARGIN)))
        boxes += drawing.steps(points, _COLORS[number % 2])
    return boxes


def _course(left: int, courses: list[tuple[float, list[float]]]) -> list[Rectangle]:
    """Return output tokens per second (y) over the run's time (x)."""
    boxes = _frame(left, "output tokens a second over time")
    span = max((seconds * len(rates) for seconds, rates in courses), default=0.0)
    top = max((rate for _, rates in courses for rate in rates), default=0.0)
    if span <= 0 or top <= 0:
        return boxes
    for part in (0.25, 0.5, 0.75, 1.0):
        boxes += _mark_y(left, _MARGIN + _HEIGHT * (1 - part / 1.05), f"{top * part:.0f}")
        boxes += _mark_x(left + _WIDTH * part, f"{span * part:.3g}s")
    for number, (seconds, rates) in enumerate(courses):
        points = []
        for place, rate in enumerate([*rates, *rates[-1:]]):
            x = left + _WIDTH * min(1.0, seconds * place / span)
            points.append((x, _MARGIN + _HEIGHT * (1 - rate / top / 1.05)))
        boxes += drawing.steps(points, _COLORS[number % 2])
    return boxes
