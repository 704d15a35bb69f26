"""A row of characters that draws values as they change."""

from __future__ import annotations

from collections.abc import Sequence

UNICODE = "▁▂▃▄▅▆▇█"
ASCII = "_.-=+*%#"


def sparkline(
    values: Sequence[float | None], width: int, most: float | None = None, *, ascii: bool = False
) -> str:
    """Return the last ``width`` values, the newest at the right.

    Unknown ones are blank.

    ``most`` is the value of a full character; None takes the largest of the values.
    """
    if width <= 0:
        return ""
    levels = ASCII if ascii else UNICODE
    shown = list(values[-width:])
    known = [value for value in shown if value is not None]
    top = most if most is not None else max(known, default=0.0)
    marks = "".join(_mark(value, top, levels) for value in shown)
    return marks.rjust(width)


def _mark(value: float | None, top: float, levels: str) -> str:
    if value is None:
        return " "
    if top <= 0:
        return levels[0]
    share = min(1.0, max(0.0, value / top))
    return levels[min(len(levels) - 1, int(share * len(levels)))]
