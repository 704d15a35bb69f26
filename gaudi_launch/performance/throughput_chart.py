"""Tokens per second against sequences at once, with the range, as a picture.

Both axes are logarithmic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gaudi_launch.performance.evidence import Band

LEAST = 16


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


def picture(points: Sequence[Point], title: str, ending: str) -> bytes:
    """Return the picture as a PNG or SVG file. Raises LaunchError (FAILED)."""
    from gaudi_launch.plotting import BLUE, dress, label, plain_numbers, sheet

    sequences = [point.batch for point in points]
    with sheet(title, size=(9, 5)) as made:
        (axis,) = made.axes
        dress(axis, label("plot.throughput"), label("plot.sequences"), label("plot.tokens_per_s"))
        low = [point.throughput.low for point in points]
        high = [point.throughput.high for point in points]
        axis.fill_between(sequences, low, high, color=BLUE, alpha=0.2, label=label("plot.range"))
        expected = [point.throughput.expected for point in points]
        axis.plot(
            sequences, expected, color=BLUE, marker="o", markersize=4, label=label("plot.expected")
        )
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        plain_numbers(axis.yaxis)
        axis.set_xticks(sequences, [str(batch) for batch in sequences])
        axis.minorticks_off()
        axis.legend(loc="upper left")
        return made.rendered(ending)
