"""Coverage: does every shape that the engine can form within its limits have a bucket?

A shape has a bucket when some bucket is large enough in every dimension, so the holes are known from the largest
size among the buckets of at least each batch. Prompt shapes are rectangles of ``batch`` prompts padded to whole
blocks within max_num_batched_tokens, up to max_model_len whatever the input range says, because a preempted
request prefills again with what it has written. Decode shapes are 1 to max_num_seqs sequences that hold up to
num_blocks blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.performance.limits import EngineLimits


@dataclass(frozen=True)
class Holes:
    """Shapes without a bucket: how many of each phase, and the largest one of each batch as [batch, query,
    context]."""

    prompt: int
    decode: int
    examples: tuple[tuple[int, int, int], ...] = ()

    @property
    def shapes(self) -> int:
        return self.prompt + self.decode


def uncovered(buckets: Buckets, limits: EngineLimits) -> Holes:
    """Every hole of ``buckets`` within ``limits`` (prompts without context; lengths counted in blocks)."""
    block = limits.block_size
    examples: list[tuple[int, int, int]] = []
    prompt = decode = 0
    reach = _reach(((b[0], b[1]) for b in buckets.prompt if b[2] == 0), limits.prefill_rows)
    for batch in range(1, limits.prefill_rows + 1):
        top = limits.query_top(batch)
        if reach[batch] < top:
            prompt += -(-(top - reach[batch]) // block)
            examples.append((batch, top, 0))
    reach = _reach(((b[0], b[2]) for b in buckets.decode), limits.max_num_seqs)
    for batch in range(1, limits.max_num_seqs + 1):
        top = limits.block_top(batch)
        if batch <= limits.num_blocks and reach[batch] < top:
            decode += top - max(reach[batch], batch - 1)
            examples.append((batch, 1, top))
    return Holes(prompt, decode, tuple(examples))


def _reach(pairs: Iterable[tuple[int, int]], rows: int) -> list[int]:
    """For every batch up to ``rows`` the largest size among buckets of at least that batch."""
    largest = [0] * (rows + 2)
    for batch, size in pairs:
        at = min(batch, rows)
        largest[at] = max(largest[at], size)
    for batch in range(rows - 1, 0, -1):
        largest[batch] = max(largest[batch], largest[batch + 1])
    return largest


def prove(buckets: Buckets, limits: EngineLimits) -> None:
    """Fail loudly if a plan of ours has a hole: that would be a bug, and no such plan may leave this room."""
    holes = uncovered(buckets, limits)
    if holes.shapes:
        raise AssertionError(f"a plan leaves {holes.shapes} shapes without a bucket: {holes.examples[:3]}")
