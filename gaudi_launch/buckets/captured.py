"""The warm-up of 1.21 when its first pass over the buckets is skipped.

Only the buckets that it captures as graphs are left.
"""

from __future__ import annotations

from gaudi_launch.buckets.bucket_list import Buckets


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
