"""Draw the grid: step time of a workload, and shapes with buckets. SVG and PNG.

Both axes are logarithmic; each is labelled with its ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gaudi_launch.core.base.plotting import BLUE, dress, label, plain_numbers, rendered, sheet
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.predict.simulator import Shapes, Weighted
from gaudi_launch.core.predict.step_time import StepTime

_ROWS, _COLUMNS = 24, 48
_MOST_TICKS = 12


@dataclass(frozen=True)
class Heat:
    """Shares of step time and numbers of buckets in cells of (batch, size).

    Row 0 is the smallest batch. ``batches`` and ``sizes`` are the upper ends of the cells.
    """

    batches: tuple[int, ...]
    sizes: tuple[int, ...]
    share: tuple[tuple[float, ...], ...]
    buckets: tuple[tuple[int, ...], ...]


def heat(
    pairs: list[tuple[int, int]], part: Weighted, time: object, rows: int, columns: int
) -> Heat:
    """Count one phase into at most ``rows`` x ``columns`` cells.

    Cells are even over the logarithms.
    """
    assert callable(time)
    every_batch = [batch for batch, _ in pairs] + (part.batch.tolist() or [1])
    every_size = [size for _, size in pairs] + (part.size.tolist() or [1])
    batches = _ends(1, max(every_batch), rows)
    sizes = _ends(min(every_size), max(every_size), columns)
    share = [[0.0] * len(sizes) for _ in batches]
    held = [[0] * len(sizes) for _ in batches]
    weights = part.weight * time(part.batch, part.size) if len(part) else part.weight
    total = float(weights.sum()) or 1.0
    for batch, size, weight in zip(
        part.batch.tolist(), part.size.tolist(), weights.tolist(), strict=True
    ):
        share[_cell(batches, batch)][_cell(sizes, size)] += weight / total
    for batch, size in pairs:
        held[_cell(batches, batch)][_cell(sizes, size)] += 1
    return Heat(batches, sizes, tuple(map(tuple, share)), tuple(map(tuple, held)))


def _ends(low: int, high: int, count: int) -> tuple[int, ...]:
    if high <= low:
        return (max(high, 1),)
    step = (math.log(high) - math.log(low)) / max(count - 1, 1)
    return tuple(
        sorted(
            {min(high, math.ceil(low * math.exp(step * at) - 1e-9)) for at in range(count)} | {high}
        )
    )


def _cell(ends: tuple[int, ...], value: int) -> int:
    return min(range(len(ends)), key=lambda at: (ends[at] < value, ends[at]))


def picture(buckets: Buckets, shapes: Shapes, cost: StepTime, title: str, ending: str) -> bytes:
    """Return the picture as a PNG or SVG file: the panels of prompt and decode.

    Raises LaunchError (FAILED).
    """
    prompt = [(batch, query) for batch, query, context in buckets.prompt if context == 0]
    decode = [(batch, blocks) for batch, _, blocks in buckets.decode]
    with sheet(title, columns=2, size=(12, 5)) as made:
        _panel(
            made, 0, "prompt", heat(prompt, shapes.prompt, cost.prefill, _ROWS, _COLUMNS), prompt
        )
        _panel(made, 1, "decode", heat(decode, shapes.decode, cost.decode, _ROWS, _COLUMNS), decode)
        return rendered(made, ending)


def _panel(made: Any, place: int, phase: str, grid: Heat, pairs: list[tuple[int, int]]) -> None:
    axis = made.axes[place]
    count = len(pairs)
    dress(
        axis, label(f"plot.{phase}", count=count), label(f"plot.{phase}_size"), label("plot.batch")
    )
    shares = [[100 * share for share in row] for row in grid.share]
    cells = axis.pcolormesh(_edges(grid.sizes), _edges(grid.batches), shares, cmap="Reds", vmin=0)
    made.colorbar(cells, ax=axis, label=label("plot.step_time"))
    sizes, batches = [size for _, size in pairs], [batch for batch, _ in pairs]
    name = label("plot.bucket")
    axis.scatter(sizes, batches, s=14, marker="s", facecolors="none", edgecolors=BLUE, label=name)
    for scale, each in ((axis.set_xscale, axis.xaxis), (axis.set_yscale, axis.yaxis)):
        scale("log")
        plain_numbers(each)
    # a bucket is at the upper corner of its cell: the topmost ones need room, too
    axis.set_xlim(right=1.15 * max(grid.sizes[-1], *sizes, 1))
    axis.set_ylim(0.5, 1.3 * max(grid.batches[-1], *batches, 1))
    named = sorted(set(batches))
    if 0 < len(named) <= _MOST_TICKS:
        axis.set_yticks(named, [str(batch) for batch in named])
        axis.minorticks_off()
    axis.tick_params(axis="x", labelrotation=45)
    axis.legend(loc="upper left")


def _edges(ends: tuple[int, ...]) -> list[float]:
    """Return the borders of cells: one more than there are cells.

    ``ends`` are the upper ones.
    """
    first = ends[0] * ends[0] / ends[1] if len(ends) > 1 else ends[0] / 2
    return [first, *map(float, ends)]
