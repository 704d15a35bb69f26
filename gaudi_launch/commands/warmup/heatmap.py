"""A grid of shapes in the terminal: dark for more step time, ``o`` for a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from gaudi_launch.core.predict.simulator import Weighted

_SHADES = " .:-=+*#%@"
_ROWS, _COLUMNS = 10, 56


def heatmap(title: str, pairs: list[tuple[int, int]], part: Weighted, time: object) -> Text:
    """Return one phase; ``pairs`` are (batch, size) of its buckets.

    Readable without colours.
    """
    from rich.text import Text

    from gaudi_launch.commands.warmup.picture import heat

    grid = heat(pairs, part, time, _ROWS, _COLUMNS)
    most = max((value for row in grid.share for value in row), default=0.0) or 1.0
    drawn = Text(f"{title}\n", no_wrap=True)
    for row in range(len(grid.batches) - 1, -1, -1):
        drawn.append(f"{grid.batches[row]:>6} |")
        for column in range(len(grid.sizes)):
            warmth = (grid.share[row][column] / most) ** 0.4
            if grid.buckets[row][column]:
                mark = "o"
            else:
                mark = _SHADES[round(warmth * (len(_SHADES) - 1))]
            red, other = 255, round(255 * (1 - warmth))
            style = f"black on rgb({red},{other},{other})" if warmth else ""
            drawn.append(mark, style=style)
        drawn.append("\n")
    sizes = grid.sizes
    left, right = str(sizes[0]), str(sizes[-1])
    drawn.append(" " * 8 + left + " " * max(1, len(sizes) - len(left) - len(right)) + right + "\n")
    return drawn
