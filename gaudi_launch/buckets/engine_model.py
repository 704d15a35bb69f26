"""The bucketing of one engine in one configuration.

Its buckets, resolved flags, profile shape and look-up rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gaudi_launch.buckets.bucket_list import Bucket, Buckets
from gaudi_launch.buckets.grid import Grid
from gaudi_launch.buckets.lookup import Lookups

MakeLookups = Callable[[Sequence[Bucket], Sequence[Bucket], bool], Lookups]
"""(prompt buckets, decode buckets, remember invented ones) to a look-up rule."""


@dataclass(frozen=True)
class EngineModel:
    """An engine's bucketing, computed on demand.

    Prompt buckets need no KV cache size; decode buckets do (LaunchError when it is unknown).
    ``resolved``: the flags (1.22, vllm-gaudi) or the (min, step, max...) of each dimension (1.21,
    deepseek_r1) after the engine's resolution. ``max_prompt_shape``: (batch, tokens) of the memory
    profile run; batch 0 where the engine takes only the length from its buckets.
    """

    prompt: Grid
    make_decode: Callable[[], Grid]
    resolved: Mapping[str, Any]
    max_prompt_shape: tuple[int, int]
    make_lookups: MakeLookups

    @cached_property
    def decode(self) -> Grid:
        """Return the decode grid. Raises BucketError where the engine would fail."""
        return self.make_decode()

    @cached_property
    def buckets(self) -> Buckets:
        """Return both lists, written out in the engine's order."""
        return Buckets(self.prompt.buckets(), self.decode.buckets())

    def lookups(self, remember: bool = False) -> Lookups:
        """Return the look-up rule over these buckets.

        ``remember`` keeps invented buckets, as the running engine does.
        """
        return self.make_lookups(self.buckets.prompt, self.buckets.decode, remember)


def dimension_configs(
    prompt_bs: list[Any], prompt_seq: list[Any], decode_bs: list[Any], decode_block: list[Any]
) -> dict[str, list[Any]]:
    """Return `EngineModel.resolved` of engines with one configuration per dimension.

    The keys are the engines' names.
    """
    return {
        "prompt_bs_bucket_cfg": prompt_bs,
        "prompt_seq_bucket_cfg": prompt_seq,
        "decode_bs_bucket_cfg": decode_bs,
        "decode_block_bucket_cfg": decode_block,
    }
