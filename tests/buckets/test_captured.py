"""The buckets that a warm-up without its first pass captures."""

from __future__ import annotations

from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.buckets.captured import captured


def test_prompts_count_all_their_tokens_and_sequences_one_each() -> None:
    every = Buckets(
        [[1, 128, 9], [2, 64, 0], [2, 65, 0], [1, 256, 0]], [[1, 1, 999], [128, 1, 9], [129, 1, 1]]
    )
    assert captured(every, 128) == Buckets([[1, 128, 9], [2, 64, 0]], [[1, 1, 999], [128, 1, 9]])
    assert captured(every, 0) == Buckets([], [])
