"""The bucket of a shape, and the result when no bucket is large enough.

Three rules cover the engines: by configuration or ladder, each dimension separately (1.21,
deepseek_r1), and by the sorted list, first entry large enough in every dimension (1.22,
vllm-gaudi).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol

from gaudi_launch.core.buckets.bucket_list import Bucket, BucketError
from gaudi_launch.core.buckets.engine_env import SlicedAttention
from gaudi_launch.core.buckets.ladders import fallback

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Outcome = Literal["warmed", "fallback", "recompile", "hang", "error"]
"""warmed: a bucket of the warm-up. fallback: the engine adds a bucket and compiles it. recompile:
the shape is used although no warm-up compiled it. hang: the worker stops in a debugger. error:
the bucket the engine picks is too small for the shape.
"""

Shape = tuple[int, int, int]
"""(batch, query tokens, context blocks); a decode shape is (batch, 1, blocks)."""

_TABLE_CELLS = 2_000_000


@dataclass(frozen=True)
class Lookup:
    """The bucket of a shape (None on a hang) and the outcome.

    ``added``: the engine appends the bucket to its list.
    """

    bucket: Bucket | None
    outcome: Outcome
    added: bool = False


class Lookups(Protocol):
    """The look-up rule of one engine in one configuration."""

    def prompt(self, batch: int, query: int, context: int = 0) -> Lookup:
        """Return the bucket of a prefill step.

        The shape is requests, longest query in tokens, longest context in blocks.
        """

    def decode(self, batch: int, blocks: int) -> Lookup:
        """Return the bucket of a decode step: requests and KV blocks."""


class BucketTable:
    """The first entry of a sorted bucket list that is large enough, in constant time.

    Cell (i, j, k) contains the smallest list index among buckets of at least the i-th batch, j-th
    query and k-th context size; three bisections find the cell. Beyond the last place of an axis
    there is no bucket. Lists whose table would be too large are scanned.
    """

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self.buckets = sorted(buckets)
        self._axes = [sorted({bucket[axis] for bucket in self.buckets}) for axis in range(3)]
        self._too_large = math.prod(map(len, self._axes)) > _TABLE_CELLS

    def find(self, batch: int, query: int, context: int) -> Bucket | None:
        """Return the bucket of a shape, or None if no bucket is large enough."""
        if self._too_large:
            return self._scan(batch, query, context)
        asked = zip(self._axes, (batch, query, context), strict=True)
        index = int(self._cells[tuple(bisect_left(axis, value) for axis, value in asked)])
        if index < len(self.buckets):
            return self.buckets[index]
        return None

    def find_all(self, batch: Integers, query: Integers, context: Integers) -> Integers:
        """Return the number of the bucket of each shape.

        The number ``len(buckets)`` means that no bucket is large enough.
        """
        import numpy as np

        if self._too_large:
            shapes = zip(batch.tolist(), query.tolist(), context.tolist(), strict=True)
            return np.asarray([self._scanned(*shape) for shape in shapes], dtype=np.int64)
        asked = zip(self._axes, (batch, query, context), strict=True)
        return self._cells[tuple(np.searchsorted(axis, values) for axis, values in asked)]

    def _scanned(self, batch: int, query: int, context: int) -> int:
        """Return the number of the bucket of a shape, without a table."""
        bucket = self._scan(batch, query, context)
        return len(self.buckets) if bucket is None else bisect_left(self.buckets, bucket)

    def _scan(self, batch: int, query: int, context: int) -> Bucket | None:
        start = bisect_left(self.buckets, [batch, query, context])
        for bucket in self.buckets[start:]:
            if bucket[0] >= batch and bucket[1] >= query and bucket[2] >= context:
                return bucket
        return None

    @cached_property
    def sizes(self) -> Integers:
        """Return the buckets by number, and zeros for the number of none."""
        import numpy as np

        return np.asarray([*self.buckets, [0, 0, 0]], dtype=np.int64)

    @cached_property
    def _cells(self) -> Integers:
        import numpy as np

        none = len(self.buckets)
        cells = np.full([len(axis) + 1 for axis in self._axes], none, dtype=np.int64)
        columns = self.sizes[:none].T
        places = [np.searchsorted(*pair) for pair in zip(self._axes, columns, strict=True)]
        np.minimum.at(cells, tuple(places), np.arange(none))
        for axis in range(3):
            cells = np.flip(np.minimum.accumulate(np.flip(cells, axis), axis), axis)
        return cells


def holds(bucket: Bucket, batch: int, query: int, context: int) -> bool:
    """Return True if ``bucket`` is large enough for the shape."""
    return bucket[0] >= batch and bucket[1] >= query and bucket[2] >= context


Sizer = Callable[[int], "int | None"]
"""The padded size of a value in one dimension; None: the engine stops in a debugger."""


def next_of(ladder: Iterable[int], *, above: Literal["hang", "raw"]) -> Sizer:
    """Return a `Sizer`: the first ladder value that is large enough.

    Above the largest value it hangs, or returns the value itself.
    """
    values = sorted(set(ladder))

    def size(value: int) -> int | None:
        index = bisect_left(values, value)
        if index < len(values):
            return values[index]
        return None if above == "hang" else value

    return size


@dataclass(frozen=True)
class ByDimension:
    """Padding of each dimension separately (1.21 and deepseek_r1).

    Source: ``get_padded_*`` of the bucketing context. The combination may be one that no warm-up
    compiled: "Configuration: ... was not warmed-up!". Decode blocks are cut to the cache size.
    """

    prompt_batch: Sizer
    prompt_query: Sizer
    decode_batch: Sizer
    decode_blocks: Sizer
    cache: int
    prompt_buckets: Sequence[Bucket]
    decode_buckets: Sequence[Bucket]
    _warmed: set[Shape] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        warmed = {(b[0], b[1], b[2]) for b in (*self.prompt_buckets, *self.decode_buckets)}
        object.__setattr__(self, "_warmed", warmed)

    def prompt(self, batch: int, query: int, context: int = 0) -> Lookup:
        """Return the bucket of `Lookups.prompt`; these engines have no context dimension."""
        return self._answer(
            (batch, query, 0), lambda: (self.prompt_batch(batch), self.prompt_query(query), 0)
        )

    def decode(self, batch: int, blocks: int) -> Lookup:
        """Return the bucket of `Lookups.decode`."""

        def padded() -> tuple[int | None, int | None, int | None]:
            size = self.decode_blocks(blocks)
            return self.decode_batch(batch), 1, None if size is None else min(size, self.cache)

        return self._answer((batch, 1, blocks), padded)

    def _answer(
        self, shape: Shape, padded: Callable[[], tuple[int | None, int | None, int | None]]
    ) -> Lookup:
        try:
            batch, query, context = padded()
        except BucketError:
            return Lookup(None, "hang")
        if batch is None or query is None or context is None:
            return Lookup(None, "hang")
        bucket = [batch, query, context]
        if not holds(bucket, *shape):
            return Lookup(bucket, "error")
        if (batch, query, context) not in self._warmed:
            return Lookup(bucket, "recompile")
        return Lookup(bucket, "warmed")


class Raw:
    """No bucketing: every shape is compiled as it is (VLLM_ENABLE_BUCKETING=false)."""

    def prompt(self, batch: int, query: int, context: int = 0) -> Lookup:
        """Return the bucket of `Lookups.prompt`."""
        return Lookup([batch, query, context], "recompile")

    def decode(self, batch: int, blocks: int) -> Lookup:
        """Return the bucket of `Lookups.decode`."""
        return Lookup([batch, 1, blocks], "recompile")


@dataclass(frozen=True)
class FallbackRule:
    """The caps on an added bucket.

    ``slices``: the kernel of sliced attention, if any. ``append_twice``: a decode
    bucket is added even if the list has it.
    """

    query_step: int
    query_cap: int
    batch_cap: int | None
    prompt_context_cap: int
    decode_context_cap: int
    slices: SlicedAttention | None
    append_twice: bool = True

    def bucket(self, batch: int, query: int, context: int, *, is_prompt: bool) -> Bucket:
        """Return the bucket that the engine adds for a shape without one."""
        new_batch = fallback(batch, 2)
        if self.batch_cap is not None:
            new_batch = min(new_batch, self.batch_cap)
        new_query = None
        if self.slices is not None:
            new_query = self.slices.added_query(query)
        if new_query is None:
            new_query = min(fallback(query, self.query_step), self.query_cap)
        cap = self.prompt_context_cap if is_prompt else self.decode_context_cap
        return [new_batch, new_query, min(fallback(context, 32), cap)]


class ByList:
    """The first entry of the sorted list that is large enough, else a fallback.

    ``remember`` keeps added buckets for later shapes, as the engine does; a planner scores without
    memory. ``decode_clip``: a decode request above this many blocks is looked up as this many
    (vllm-gaudi). Sources: find_prompt_bucket, find_decode_bucket of 1.22 (bucketing/common.py) and
    of vllm-gaudi.
    """

    def __init__(
        self,
        prompt: Sequence[Bucket],
        decode: Sequence[Bucket],
        rule: FallbackRule,
        *,
        decode_clip: int = 0,
        remember: bool = False,
    ) -> None:
        self._tables = {True: BucketTable(prompt), False: BucketTable(decode)}
        self._added: dict[bool, list[Bucket]] = {True: [], False: []}
        self._rule = rule
        self._clip = decode_clip
        self._remember = remember

    def prompt(self, batch: int, query: int, context: int = 0) -> Lookup:
        """Return the bucket of `Lookups.prompt`."""
        return self._answer((batch, query, context), (batch, query, context), is_prompt=True)

    def decode(self, batch: int, blocks: int) -> Lookup:
        """Return the bucket of `Lookups.decode`."""
        asked = blocks
        if self._clip > 0:
            asked = min(blocks, self._clip)
        return self._answer((batch, 1, blocks), (batch, 1, asked), is_prompt=False)

    def _answer(self, shape: Shape, asked: Shape, *, is_prompt: bool) -> Lookup:
        found = self._find(asked, is_prompt)
        added = False
        if found is None:
            found = self._rule.bucket(*asked, is_prompt=is_prompt)
            known = found in self._tables[is_prompt].buckets or found in self._added[is_prompt]
            added = is_prompt or self._rule.append_twice or not known
            if self._remember and added:
                self._added[is_prompt].append(found)
        if not holds(found, *shape):
            return Lookup(list(found), "error", added)
        if added:
            return Lookup(list(found), "fallback", added)
        return Lookup(list(found), "warmed", added)

    def _find(self, asked: Shape, is_prompt: bool) -> Bucket | None:
        fitting = [bucket for bucket in self._added[is_prompt] if holds(bucket, *asked)]
        found = self._tables[is_prompt].find(*asked)
        if found is not None:
            fitting.append(found)
        return min(fitting, default=None)
