"""Read and write vllm-gaudi's bucket file (VLLM_BUCKETING_FROM_FILE).

It is read as the engine reads it. Source: vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/extension/
bucketing/file_strategy.py and common.py. One Python tuple ``(batch, query, context)`` per line,
each element a number, a list or ``range(a, b[, step])``; query 1 marks a decode bucket. A line that
the engine cannot read stops it: its warning calls a method that does not exist.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from functools import lru_cache
from typing import Any

from gaudi_launch.core.buckets.algorithms.context_ladder import (
    PluginFlags,
    assemble,
    longest_context,
    most_blocks,
    rows_of,
)
from gaudi_launch.core.buckets.engine_env import Arguments, Env
from gaudi_launch.core.buckets.engine_model import EngineModel
from gaudi_launch.core.buckets.grid import Row
from gaudi_launch.core.buckets.ladder_rules import LadderRules
from gaudi_launch.core.buckets.ladders import broken, hang

RANGE_LIMIT = 10_000
"""A range of more elements is left as text, which the engine then cannot read."""

# the engine would try all of them
_MOST_BUCKETS = 100_000
_NEWEST = LadderRules()
_RANGE = re.compile(r"range\(\s*(-?\d+)\s*,\s*(-?\d+)\s*(?:,\s*(-?\d+)\s*)?\)")

Entry = tuple[int, int, int]


def file_model(env: Env, args: Arguments, rules: LadderRules = _NEWEST) -> EngineModel:
    """Return the buckets of ``args.bucket_file`` after the engine's filters.

    ``args.bucket_file`` is the file's text.
    """
    flags = PluginFlags(env, args, rules)
    if args.bucket_file is None:
        raise broken("FileNotFoundError", "VLLM_BUCKETING_FROM_FILE names no file that can be read")
    prompts, decodes = read(args.bucket_file, skips=rules.skips_lines)
    if not prompts:
        # An empty list counts as "no file" in the engine, which then has no ladders either.
        raise broken("ValueError", "max() arg is an empty sequence")
    budget = args.max_num_batched_tokens
    kept = [
        (batch, query, context)
        for batch, query, context in prompts
        if context <= longest_context(flags, args, query)
        and (flags.merged_prefill or batch * query <= budget)
    ]

    def decode_rows() -> list[Row]:
        if not decodes:
            raise broken("ValueError", "max() arg is an empty sequence")
        if flags.contiguous:
            return rows_of(decodes)
        return rows_of(
            (batch, query, min(blocks, most_blocks(flags, args, batch)))
            for batch, query, blocks in decodes
            if batch <= blocks
        )

    return assemble(flags, args, rows_of(kept), decode_rows)


# a plan reads the file that it writes three times
@lru_cache(maxsize=8)
def read(text: str, *, skips: bool = False) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """Return (prompt, decode) entries of a bucket file, products written out.

    Raises BucketError on an unreadable line, unless the release ``skips`` those.
    """
    prompts: list[Entry] = []
    decodes: list[Entry] = []
    count = 0
    for line in text.split("\n"):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        columns = _columns(line, skips=skips)
        count += math.prod(map(len, columns))
        if count > _MOST_BUCKETS:
            raise hang(f"the bucket file has more than {_MOST_BUCKETS} buckets")
        for batch, query, context in itertools.product(*columns):
            entry = (int(batch), int(query), int(context))
            (decodes if entry[1] == 1 else prompts).append(entry)
    return tuple(sorted(prompts)), tuple(sorted(decodes))


def _columns(line: str, *, skips: bool) -> list[list[Any]]:
    """Return batches, queries and contexts of a line; none for a skipped one."""
    try:
        value = ast.literal_eval(_RANGE.sub(_written_out, line))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        # the last two are those of deep expressions
        value = None
    if not (isinstance(value, tuple) and len(value) == 3):
        if skips:
            return [[], [], []]
        raise broken(
            "AttributeError", "'functools._lru_cache_wrapper' object has no attribute 'warning'"
        )
    return [element if isinstance(element, list) else [element] for element in value]


def _written_out(match: re.Match[str]) -> str:
    start, stop, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step == 0:
        return match[0]
    numbers = range(start, stop, step)
    if len(numbers) > RANGE_LIMIT:
        return match[0]
    return repr(list(numbers))
