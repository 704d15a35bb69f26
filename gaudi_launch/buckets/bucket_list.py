"""The record every bucket room speaks: which shapes are compiled before the server answers."""

from __future__ import annotations

from dataclasses import dataclass

Bucket = list[int]
"""[batch, query tokens, context blocks]; a decode bucket is [batch, 1, blocks]."""


@dataclass(frozen=True)
class Buckets:
    """Prompt and decode buckets in the order the engine holds them.

    ``prompt`` entries are [batch, query tokens, context blocks], ``decode`` entries [batch, 1, blocks].
    Lists, not tuples: they are the JSON of the Plan and compare equal to recorded ones.
    """

    prompt: list[Bucket]
    decode: list[Bucket]

    @property
    def graphs(self) -> int:
        """How many graphs a full warm-up compiles."""
        return len(self.prompt) + len(self.decode)


class BucketError(Exception):
    """The engine itself would raise or hang on this configuration; the text is the reason."""
