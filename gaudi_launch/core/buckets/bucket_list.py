"""The record of the shapes that are compiled before the server answers."""

from __future__ import annotations

from dataclasses import dataclass

Bucket = list[int]
"""[batch, query tokens, context blocks]; a decode bucket is [batch, 1, blocks]."""


@dataclass(frozen=True)
class Buckets:
    """Prompt and decode buckets in the order of the engine's list.

    ``prompt`` entries are [batch, query tokens, context blocks], ``decode`` entries [batch, 1,
    blocks]. Lists, not tuples: they are the JSON of the Plan and compare equal to recorded ones.
    """

    prompt: list[Bucket]
    decode: list[Bucket]

    @property
    def graphs(self) -> int:
        """Return the number of graphs that a full warm-up compiles."""
        return len(self.prompt) + len(self.decode)


class BucketError(Exception):
    """An error that the engine would raise, or a hang, with this configuration.

    The text is the reason.
    """


def captured(buckets: Buckets, capture_length: int) -> Buckets:
    """Return the buckets captured with --max-seq-len-to-capture ``capture_length``.

    0 is eager mode. A prompt bucket counts with batch times length, a decode bucket with its batch.
    The engine also leaves out what exceeds its graph memory; that is unknown here.
    HabanaAI/vllm-fork@277a33cd9:vllm/worker/hpu_model_runner.py:2665-2680.
    """
    return Buckets(
        [bucket for bucket in buckets.prompt if bucket[0] * bucket[1] <= capture_length],
        [bucket for bucket in buckets.decode if bucket[0] <= capture_length],
    )
