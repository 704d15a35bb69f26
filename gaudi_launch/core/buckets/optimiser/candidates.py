"""Choose the buckets that are worth their graph, for one phase of one engine.

One price, the time that a graph must save, decides everything. First an exact dynamic programme
over batch rows and, within each row, over sizes, in which every row reaches its top; then removal
of buckets that save less than the price, under the engine's look-up (first bucket of the sorted
list that is large enough: the smallest batch row wins), as long as every shape that can be formed
keeps a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import Weighted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_STARTS = (1.0, 0.3, 4.0)
# rows whose values are computed at once: their tables stay in the processor's cache
_ROWS_TOGETHER = 4

Pair = tuple[int, int]
"""(batch, size): size is query tokens or blocks."""


@dataclass(frozen=True)
class OptimiserPhase:
    """One phase as the optimiser reads it.

    ``top(batch)`` is the largest size of a row; a row for every batch of ``corners`` must exist
    with its top, because no other bucket within the limits is large enough for that shape.
    ``grain`` is the unit of sizes, ``time(batch, size)`` the step.
    """

    rows: int
    top: Callable[[int], int]
    corners: tuple[int, ...]
    grain: int
    time: Callable[[Any, Any], Any]


def corners(limits: EngineLimits) -> tuple[int, ...]:
    """Return the prompt batches whose longest rectangle no larger batch can contain."""
    rows = limits.prefill_rows
    tops = [limits.query_top(batch) for batch in range(1, rows + 2)]
    return tuple(
        batch
        for batch in range(1, rows + 1)
        if tops[batch - 1] and (batch == rows or tops[batch] < tops[batch - 1])
    )


def plan_phase(
    shapes: Weighted, phase: OptimiserPhase, price: float, thorough: bool = True
) -> list[Pair]:
    """Return the buckets of one phase for one price, sorted as the engine sorts.

    The price is in the unit of weight times time. Not ``thorough`` is three times as fast, for
    searches over prices.
    """
    # rows that share their tops need fewer buckets than the programme assumes, so finer starts may
    # end better
    starts = _STARTS if thorough else _STARTS[:1]
    programmes = _programmes(shapes, phase, [price * start for start in starts])
    tried = [_remove(pairs, shapes, phase, price) for pairs in programmes]
    return min(tried, key=lambda state: state.time() + price * len(state.pairs)).pairs


def candidates(values: Integers, weights: Floats, most: int) -> list[int]:
    """Return at most about ``most`` of ``values``.

    They are quantiles of the weight, so the detail is where the time is spent.
    """
    import numpy as np

    order = np.argsort(values)
    distinct, where = np.unique(values[order], return_inverse=True)
    if len(distinct) <= most:
        return list(distinct.tolist())
    share = np.cumsum(np.bincount(where, weights=weights[order]))
    marks = np.searchsorted(share, np.linspace(0, share[-1], most)).clip(0, len(distinct) - 1)
    return sorted({*distinct[marks].tolist()})


def _ladder(low: int, high: int, ratio: float) -> list[int]:
    """Return geometric values, so that sizes without past requests can have buckets."""
    values = [low]
    while values[-1] < high:
        values.append(max(values[-1] + 1, int(values[-1] * ratio)))
    return [*values[:-1], high]


def _grid(shapes: Weighted, phase: OptimiserPhase) -> tuple[list[int], list[int]]:
    """Return candidate rows and sizes."""
    import numpy as np

    grain, top = phase.grain, phase.top(phase.corners[0])
    tops = {phase.top(batch) for batch in phase.corners}
    if phase.rows <= 48:
        rows = set(range(1, phase.rows + 1))
    else:
        rows = set(candidates(shapes.batch, shapes.weight, 24)) | set(_ladder(1, phase.rows, 1.25))
    rows = {row for row in rows if row <= phase.rows} | set(phase.corners)
    highest = max(tops | {top})
    if highest // grain <= 400:
        sizes = set(range(grain, highest + 1, grain))
    else:
        seen: Any = -(-shapes.size // grain) * grain
        sizes = set(candidates(seen, shapes.weight, 120))
        sizes |= {
            -(-size // grain) * grain for size in _ladder(max(grain, highest // 256), highest, 1.08)
        }
    sizes = {size for size in sizes if size <= highest} | tops | {phase.top(row) for row in rows}
    return sorted(rows), sorted(int(size) for size in np.asarray(sorted(sizes)))


def _programmes(
    shapes: Weighted, phase: OptimiserPhase, prices: Sequence[float]
) -> list[list[Pair]]:
    """Return the best list for each price by a dynamic programme.

    It is exact among lists whose rows each reach their top.
    """
    import numpy as np

    rows, sizes = _grid(shapes, phase)
    row_of = np.searchsorted(rows, shapes.batch)
    size_of = np.searchsorted(sizes, shapes.size)
    inside = (row_of < len(rows)) & (size_of < len(sizes))
    weight = np.zeros((len(rows) + 1, len(sizes) + 1))
    np.add.at(weight, (row_of[inside] + 1, size_of[inside] + 1), shapes.weight[inside])
    # below[r, s]: weight of all shapes up to row r and size s
    below = weight.cumsum(axis=0).cumsum(axis=1)
    table = np.asarray(sizes, dtype=np.float64)
    must = set(phase.corners)
    first = 0  # the earliest row a new row may follow: corners cannot be skipped
    firsts, masses, times = [], [], []
    for r, row in enumerate(rows, start=1):
        end = sizes.index(phase.top(row)) + 1
        firsts.append(first)
        masses.append((below[r, : end + 1] - below[first:r, : end + 1]).T)
        times.append(phase.time(float(row), table[:end]))
        if row in must:
            first = r
    values: list[Floats] = []
    for start in range(0, len(rows), _ROWS_TOGETHER):
        some = slice(start, start + _ROWS_TOGETHER)
        values.extend(_values(masses[some], times[some], np.asarray(prices)))
    best = np.full((len(prices), len(rows) + 1), np.inf)
    best[:, 0] = 0.0
    came: list[list[tuple[int, _Sizes]]] = [[] for _ in prices]
    for r, (first, mass, time, value) in enumerate(
        zip(firsts, masses, times, values, strict=True), start=1
    ):
        for number in range(len(prices)):
            total = best[number, first:r] + value[-1, number]
            chosen = int(np.argmin(total))
            best[number, r] = total[chosen]
            came[number].append(
                (first + chosen, _Sizes(value[:, number, chosen], mass[:, chosen], time))
            )
    return [_pairs(each, rows, sizes) for each in came]


def _pairs(
    came: Sequence[tuple[int, _Sizes]], rows: Sequence[int], sizes: Sequence[int]
) -> list[Pair]:
    """Return the buckets of the best way to the last row."""
    found: list[Pair] = []
    at = len(rows)
    while at:
        before, ends = came[at - 1]
        found.extend((rows[at - 1], sizes[end - 1]) for end in ends.chosen())
        at = before
    return sorted(found)


def _values(masses: Sequence[Floats], times: Sequence[Floats], prices: Floats) -> list[Floats]:
    """Return the cheapest value of each row up to each size.

    There is one for each price and each row below. ``mass[s, a]`` is the weight up to size s when
    row a is the one below, ``time[s]`` the step at size s. The value is at [s, price, a].
    """
    import numpy as np

    # one column for each row, price and row below: few large operations. A row with fewer sizes
    # than another is continued with its last one
    most = max(map(len, times))
    counts = [mass.shape[1] for mass in masses]
    widths = [len(prices) * count for count in counts]
    price = np.concatenate([np.repeat(prices, count) for count in counts])
    time = np.repeat(np.stack([_continued(each, most) for each in times], axis=1), widths, axis=1)
    mass = np.concatenate(
        [np.tile(_continued(each, most + 1), (1, len(prices))) for each in masses], axis=1
    )
    own = mass[1:] * time
    value = np.empty_like(mass)
    value[0] = 0.0
    open_ = np.empty_like(mass)
    for end in range(1, most + 1):
        before = open_[:end]
        np.multiply(mass[:end], time[end - 1], out=before)
        np.subtract(value[:end], before, out=before)
        best = np.minimum.reduce(before, axis=0, out=value[end])
        best += own[end - 1]
        best += price
    columns = np.split(value, np.cumsum(widths)[:-1], axis=1)
    return [
        part[: len(each)].reshape(len(each), len(prices), -1)
        for part, each in zip(columns, masses, strict=True)
    ]


def _continued(table: Floats, most: int) -> Floats:
    """Return ``most`` rows of a table: its last one again where it has fewer."""
    import numpy as np

    return table[np.minimum(np.arange(most), len(table) - 1)]


@dataclass(frozen=True)
class _Sizes:
    """Values of one row for one price and one row below.

    The sizes of the row follow from them.
    """

    value: Floats
    mass: Floats
    time: Floats

    def chosen(self) -> list[int]:
        """Return the sizes of the cheapest way to the last one, ascending."""
        end = len(self.value) - 1
        found: list[int] = []
        while end:
            found.append(end)
            step = float(self.time[end - 1])
            end = int((self.value[:end] - self.mass[:end] * step).argmin())
        return found[::-1]


class _List:
    """A bucket list under change, with the shapes of every bucket.

    ``known`` are losses of removals, each with the shapes that other buckets take then.
    """

    def __init__(self, pairs: Sequence[Pair], shapes: Weighted, phase: OptimiserPhase) -> None:
        import numpy as np

        self.shapes = shapes
        self.phase = phase
        self.pairs = sorted(pairs)
        self.held: dict[Pair | None, Integers] = dict.fromkeys(
            self.pairs, np.empty(0, dtype=np.int64)
        )
        self.held |= self._fit(0, np.arange(len(shapes)))
        self.known: dict[Pair, tuple[float, dict[Pair | None, Integers]]] = {}

    def _fit(self, start: int, numbers: Integers) -> dict[Pair | None, Integers]:
        """Return the shapes by their first large enough bucket from ``start`` on.

        None is the key of shapes that fit in none.
        """
        taken: dict[Pair | None, Integers] = {}
        batch, size = self.shapes.batch[numbers], self.shapes.size[numbers]
        for pair in self.pairs[start:]:
            if not len(numbers):
                break
            fits = (batch <= pair[0]) & (size <= pair[1])
            if fits.any():
                taken[pair] = numbers[fits]
                left = ~fits
                numbers, batch, size = numbers[left], batch[left], size[left]
        if len(numbers):
            taken[None] = numbers
        return taken

    def _padded(self, pair: Pair | None, numbers: Integers) -> float:
        """Return the time of these shapes in a bucket; infinite without one."""
        if pair is None:
            return float("inf")
        return float(self.shapes.weight[numbers].sum() * self.phase.time(*map(float, pair)))

    def time(self) -> float:
        """Return the padded time of all shapes."""
        return sum(
            self._padded(pair, self.held[pair]) for pair in self.pairs if len(self.held[pair])
        )

    def loss(self, at: int) -> float:
        """Return the time lost when bucket ``at`` is removed."""
        pair = self.pairs[at]
        if pair not in self.known:
            moved = self._fit(at + 1, self.held[pair])
            lost = -self._padded(pair, self.held[pair])
            for other, numbers in moved.items():
                lost += self._padded(other, numbers)
            self.known[pair] = lost, moved
        return self.known[pair][0]

    def remove(self, at: int) -> None:
        """Remove bucket ``at``, whose loss is known; forget losses that depend on it."""
        import numpy as np

        pair = self.pairs.pop(at)
        _, moved = self.known.pop(pair)
        for other, numbers in moved.items():
            self.held[other] = np.concatenate([self.held[other], numbers])
        self.known = {
            each: found
            for each, found in self.known.items()
            if each not in moved and pair not in found[1]
        }


def _remove(pairs: Sequence[Pair], shapes: Weighted, phase: OptimiserPhase, price: float) -> _List:
    """Remove buckets that save less than the price; corners stay."""
    state = _List(pairs, shapes, phase)
    kept = {(batch, phase.top(batch)) for batch in phase.corners}
    while True:
        losses = [
            (state.loss(at), at) if pair not in kept else (float("inf"), at)
            for at, pair in enumerate(state.pairs)
        ]
        cheap = sorted(entry for entry in losses if entry[0] < price)
        if not cheap:
            return state
        # several at once, the cheapest first and never two neighbours in the list: their losses
        # depend on each other
        gone: list[int] = []
        for _, at in cheap:
            if all(abs(at - other) > 1 for other in gone):
                gone.append(at)
        for at in sorted(gone, reverse=True):
            if state.loss(at) < price:
                state.remove(at)
