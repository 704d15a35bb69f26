"""Draw the grid: step time of a workload, and shapes with buckets. SVG and PNG.

Both axes are logarithmic; each is labelled with its ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gaudi_launch import drawing
from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.drawing import INK, WHITE, Rectangle, Words
from gaudi_launch.performance.simulator import Shapes, Weighted
from gaudi_launch.performance.step_time import StepTime

_HOT, _BUCKET = (214, 40, 40), (20, 80, 200)
# the letters of a PNG are English capitals
_TITLES = ("prompt: batch (up) by tokens (right)", "decode: batch (up) by blocks (right)")
_LETTER = 8
_MARGIN, _PANEL_WIDTH, _PANEL_HEIGHT = 50, 480, 300


@dataclass(frozen=True)
class Heat:
    """Shares of step time and numbers of buckets in cells of (batch, size).

    Row 0 is the smallest batch. ``batches`` and ``sizes`` are the upper ends of the cells.
    """

    batches: tuple[int, ...]
    sizes: tuple[int, ...]
    share: tuple[tuple[float, ...], ...]
    buckets: tuple[tuple[int, ...], ...]


def heat(pairs: list[tuple[int, int]], part: Weighted, time: object, rows: int, columns: int) -> Heat:
    """Count one phase into at most ``rows`` x ``columns`` cells.

    Cells are even over the logarithms.
    """
    assert callable(time)
    most_batch = max([batch for batch, _ in pairs] + [int(part.batch.max()) if len(part) else 1])
    most_size = max([size for _, size in pairs] + [int(part.size.max()) if len(part) else 1])
    least_size = min([size for _, size in pairs] + [int(part.size.min()) if len(part) else 1])
    batches, sizes = _ends(1, most_batch, rows), _ends(least_size, most_size, columns)
    share = [[0.0] * len(sizes) for _ in batches]
    held = [[0] * len(sizes) for _ in batches]
    weights = part.weight * time(part.batch, part.size) if len(part) else part.weight
    total = float(weights.sum()) or 1.0
    for batch, size, weight in zip(part.batch.tolist(), part.size.tolist(), weights.tolist(), strict=True):
        share[_cell(batches, batch)][_cell(sizes, size)] += weight / total
    for batch, size in pairs:
        held[_cell(batches, batch)][_cell(sizes, size)] += 1
    return Heat(batches, sizes, tuple(map(tuple, share)), tuple(map(tuple, held)))


def _ends(low: int, high: int, count: int) -> tuple[int, ...]:
    if high <= low:
        return (max(high, 1),)
    step = (math.log(high) - math.log(low)) / max(count - 1, 1)
    return tuple(sorted({min(high, math.ceil(low * math.exp(step * at) - 1e-9)) for at in range(count)} | {high}))


def _cell(ends: tuple[int, ...], value: int) -> int:
    return min(range(len(ends)), key=lambda at: (ends[at] < value, ends[at]))


def _panel(
    pairs: list[tuple[int, int]], part: Weighted, time: object, left: int, title: str
) -> tuple[list[Rectangle], list[Words]]:
    grid = heat(pairs, part, time, 24, 48)
    width, height = _PANEL_WIDTH / len(grid.sizes), _PANEL_HEIGHT / len(grid.batches)
    most = max((value for row in grid.share for value in row), default=0.0) or 1.0
    boxes = [Rectangle(left - 1, _MARGIN - 1, _PANEL_WIDTH + 2, _PANEL_HEIGHT + 2, INK)]
    boxes.append(Rectangle(left, _MARGIN, _PANEL_WIDTH, _PANEL_HEIGHT, WHITE))
    for r, row in enumerate(grid.share):
        top = _MARGIN + _PANEL_HEIGHT - (r + 1) * height
        for c, value in enumerate(row):
            x = left + c * width
            if value:
                part_of = (value / most) ** 0.4
                color = (
                    round(255 - part_of * (255 - _HOT[0])),
                    round(255 - part_of * (255 - _HOT[1])),
                    round(255 - part_of * (255 - _HOT[2])),
                )
                boxes.append(Rectangle(x, top, width, height, color))
            if grid.buckets[r][c]:
                side = min(width, height, 6.0)
                boxes.append(Rectangle(x + (width - side) / 2, top + (height - side) / 2, side, side, _BUCKET))
    bottom = _MARGIN + _PANEL_HEIGHT
    first, last, largest = str(grid.batches[0]), str(grid.batches[-1]), str(grid.sizes[-1])
    words: list[Words] = [
        (left, _MARGIN - 12, title),
        (left - 5 - _LETTER * len(last), _MARGIN + 12, last),
        (left - 5 - _LETTER * len(first), bottom, first),
        (left, bottom + 18, str(grid.sizes[0])),
        (left + _PANEL_WIDTH - _LETTER * len(largest), bottom + 18, largest),
    ]
    return boxes, words


def _scene(
    buckets: Buckets, shapes: Shapes, cost: StepTime, titles: tuple[str, str]
) -> tuple[int, int, list[Rectangle], list[Words]]:
    prompt = [(batch, query) for batch, query, context in buckets.prompt if context == 0]
    decode = [(batch, blocks) for batch, _, blocks in buckets.decode]
    boxes, words = _panel(prompt, shapes.prompt, cost.prefill, _MARGIN, titles[0])
    right = _panel(decode, shapes.decode, cost.decode, 2 * _MARGIN + _PANEL_WIDTH, titles[1])
    return 3 * _MARGIN + 2 * _PANEL_WIDTH, 2 * _MARGIN + _PANEL_HEIGHT, boxes + right[0], words + right[1]


def svg(buckets: Buckets, shapes: Shapes, cost: StepTime, titles: tuple[str, str]) -> str:
    """Return the picture as SVG text.

    ``titles`` are those of the prompt and the decode panel.
    """
    return drawing.svg(*_scene(buckets, shapes, cost, titles))


def png(buckets: Buckets, shapes: Shapes, cost: StepTime) -> bytes:
    """Return the picture as PNG (8-bit RGB); its text is English."""
    width, height, boxes, words = _scene(buckets, shapes, cost, _TITLES)
    return drawing.png(width, height, boxes + drawing.written(words))
