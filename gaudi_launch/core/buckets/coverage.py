"""Check that every shape within the engine's limits has a bucket.

A shape has a bucket when some bucket is large enough in every dimension, so the holes are known
from the largest size among the buckets of at least each batch. Prompt shapes are rectangles of
``batch`` prompts padded to complete blocks within max_num_batched_tokens, up to max_model_len
whatever the input range is, because a preempted request prefills again with its output so far.
Where an engine computes a prompt in parts, or finds its begin in the cache, the rest of it is a
query behind a context, both together within max_model_len.
Decode shapes are 1 to max_num_seqs sequences with up to named_blocks blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.predict.limits import EngineLimits


@dataclass(frozen=True)
class Holes:
    """Shapes without a bucket: the number of each phase, and the largest by batch.

    The largest are [batch, query, context]. ``behind`` counts queries, in blocks, behind a context.
    """

    prompt: int
    decode: int
    examples: tuple[tuple[int, int, int], ...] = ()
    behind: int = 0

    @property
    def shapes(self) -> int:
        return self.prompt + self.decode + self.behind


def uncovered(buckets: Buckets, limits: EngineLimits) -> Holes:
    """Return every hole of ``buckets`` within ``limits``, in blocks.

    A prompt without a context may take a bucket that has one.
    """
    decode, block = 0, limits.block_size
    tops = list(map(limits.query_top, range(1, limits.prefill_rows + 1)))
    prompt, missing = _lengths(map(itemgetter(0, 1), buckets.prompt), tops, block)
    examples = [(batch, top, 0) for batch, top in missing]
    reach = _reach(map(itemgetter(0, 2), buckets.decode), limits.max_num_seqs)
    most = limits.named_blocks
    for batch in range(1, min(limits.max_num_seqs, most) + 1):
        top = min(limits.block_top(batch), most)
        if reach[batch] < top:
            decode += top - max(reach[batch], batch - 1)
            examples.append((batch, 1, top))
    contexts = limits.most_context if limits.mixed_steps else 0
    tops = list(map(limits.query_behind, range(1, contexts + 1)))
    behind, missing = _lengths(map(itemgetter(2, 1), buckets.prompt), tops, block)
    examples += [(1, top, context) for context, top in missing]
    return Holes(prompt, decode, tuple(examples), behind)


def _lengths(
    pairs: Iterable[tuple[int, int]], tops: Sequence[int], block: int
) -> tuple[int, list[tuple[int, int]]]:
    """Return how many lengths, in blocks, no bucket reaches, and the longest by row.

    Rows count from 1. Chunks of hybrids end within a block.
    """
    reach = _reach(pairs, len(tops))
    missing = [(row, top) for row, top in enumerate(tops, 1) if reach[row] < top]
    return sum(-(-top // block) - reach[row] // block for row, top in missing), missing


def _reach(pairs: Iterable[tuple[int, int]], rows: int) -> list[int]:
    """Return, for each batch up to ``rows``, the largest size among larger batches."""
    largest = [0] * (rows + 2)
    # lists have 100,000 buckets, of few pairs
    for batch, size in set(pairs):
        at = min(batch, rows)
        largest[at] = max(largest[at], size)
    for batch in range(rows - 1, 0, -1):
        largest[batch] = max(largest[batch], largest[batch + 1])
    return largest


def prove(buckets: Buckets, limits: EngineLimits) -> None:
    """Raise an internal error if a plan has a hole: that would be a bug."""
    holes = uncovered(buckets, limits)
    if holes.shapes:
        raise AssertionError(
            f"a plan leaves {holes.shapes} shapes without a bucket: {holes.examples[:3]}"
        )
