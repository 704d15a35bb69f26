"""The bucketing of one engine in one configuration.

Its buckets and its look-up rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from gaudi_launch.core.buckets.bucket_list import Bucket, Buckets
from gaudi_launch.core.buckets.grid import Grid
from gaudi_launch.core.buckets.lookup import Lookups

MakeLookups = Callable[[Sequence[Bucket], Sequence[Bucket], bool], Lookups]
"""(prompt buckets, decode buckets, remember invented ones) to a look-up rule."""


@dataclass(frozen=True)
class EngineModel:
    """An engine's bucketing, computed on demand.

    Prompt buckets need no KV cache size; decode buckets do (LaunchError when it is unknown).
    """

    prompt: Grid
    make_decode: Callable[[], Grid]
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
