"""Beginnings that past requests share, by the columns of a trace.

`hash_ids` are one number for each block of a prompt, equal where all tokens up to its end are
equal. Mooncake's have blocks of 512 tokens (kvcache-ai/Mooncake:FAST25-release/README), Bailian's
of 16 (alibaba-edu/qwen-bailian-usagetraces-anon@03a51e31087d:README.md). `cached_tokens` is what a
server found in its own cache (OpenAI's usage.prompt_tokens_details).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_launch.core.predict.load import SharedPrefix

HASH_COLUMN, CACHED_COLUMN, DETAILS_COLUMN = "hash_ids", "cached_tokens", "prompt_tokens_details"
# tokens of a block; the first of those that fit equally well is taken
_BLOCKS = (512, 16, 32, 64, 128, 256, 1024)
_MOST_TOKENS = 10**8


def columns_of(values: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    """Return hashes and cached tokens of one line, whose names are in lower case."""
    details = values.get(DETAILS_COLUMN)
    cached = values.get(CACHED_COLUMN)
    if cached is None and isinstance(details, Mapping):
        cached = details.get(CACHED_COLUMN)
    return _numbers(values.get(HASH_COLUMN)), count_of(cached)


def _numbers(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        return tuple(int(digits) for digits in re.findall(r"\d{1,18}", value))
    if isinstance(value, list):
        return tuple(each for each in value if isinstance(each, int))
    return ()


def count_of(value: object, most: int = _MOST_TOKENS) -> int:
    """Return a count below ``most``; 0 for anything else."""
    if not isinstance(value, (int, float, str)):
        return 0
    try:
        count = int(float(value))
    except (ValueError, OverflowError):
        return 0
    if not 0 < count < most:
        return 0
    return count


def shared_prefixes(
    columns: Sequence[tuple[tuple[int, ...], int]], prompts: Sequence[int]
) -> tuple[SharedPrefix, ...]:
    """Return each request's shared beginning, in order of arrival.

    Empty where none shares any. At least one token of a prompt is always computed.
    """
    block = _block_of(columns, prompts)
    used: dict[int, int] = {}
    brought = 0
    found: list[SharedPrefix] = []
    for (hashes, cached), tokens in zip(columns, prompts, strict=True):
        known = _known(hashes, used)
        shared = max(known * block, cached)
        oldest = min((used[each] for each in hashes[:known]), default=brought)
        found.append(SharedPrefix(max(0, min(shared, tokens - 1)), brought - oldest))
        brought += max(0, tokens - known * block)
        used.update(dict.fromkeys(hashes, brought))
    if not any(each.tokens for each in found):
        return ()
    return tuple(found)


def _block_of(columns: Sequence[tuple[tuple[int, ...], int]], prompts: Sequence[int]) -> int:
    """Return the size of a block with which most prompts have as many as hashes."""
    known = [
        (len(hashes), tokens)
        for (hashes, _), tokens in zip(columns, prompts, strict=True)
        if hashes
    ]
    return max(
        _BLOCKS, key=lambda block: sum(count == -(-tokens // block) for count, tokens in known)
    )


def _known(hashes: Sequence[int], used: Mapping[int, int]) -> int:
    """Return how many blocks from the first on an earlier request had."""
    for count, each in enumerate(hashes):
        if each not in used:
            return count
    return len(hashes)
