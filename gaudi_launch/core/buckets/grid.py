"""A bucket list as rows, so that it can be counted without being written out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from gaudi_launch.core.buckets.bucket_list import Bucket

Row = tuple[int, list[tuple[int, Sequence[int]]]]
"""A batch with its queries, each with its context (prompt) or block (decode) sizes."""


@dataclass(frozen=True)
class Grid:
    """All buckets of one phase.

    ``by_area`` is the order of 1.21 and deepseek_r1, else plain sorted order.
    """

    rows: Sequence[Row]
    by_area: bool = False

    def count(self) -> int:
        """Return the number of buckets, in time of the rows and queries."""
        return sum(len(contexts) for _, queries in self.rows for _, contexts in queries)

    def buckets(self) -> list[Bucket]:
        """Return every bucket in the engine's order."""
        found = [
            [batch, query, context]
            for batch, queries in self.rows
            for query, contexts in queries
            for context in contexts
        ]
        if self.by_area:
            # 1.21 keeps pairs: [batch, tokens] or [batch, blocks]; the absent dimension must not
            # take part.
            found.sort(key=lambda b: (b[0] * _length(b), _length(b), b[0]))
        else:
            found.sort()
        return found


def _length(bucket: Bucket) -> int:
    return bucket[2] or bucket[1]


def decode_rows(batches: Sequence[int], blocks: Sequence[int], cache: int) -> list[Row]:
    """Return the decode rows of the linear algorithms of the forks.

    Ascending blocks not below the batch; the first that is not below the ``cache`` size becomes the
    cache size and ends the row. Nothing is added when the ladder ends below it.
    """
    rows: list[Row] = []
    for batch in batches:
        start, end = bisect_left(blocks, batch), bisect_left(blocks, cache)
        row = list(blocks[start:end])
        if max(start, end) < len(blocks):
            row.append(cache)
        rows.append((batch, [(1, row)]))
    return rows
