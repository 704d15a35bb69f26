"""Make buckets of batch and size up to fixed lengths.

Without and with the padding limit, as in the vLLM fork on deepseek_r1. Source:
HabanaAI/vllm-hpu-extension@deepseek_r1:vllm_hpu_extension/bucketing.py (0bc6b42) and its later text
with ``warmup_range_with_limit``. The generator does not know the model's length: prompts default to
1024 tokens and decode to 2048 tokens per sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gaudi_launch.core.buckets.algorithms.plain_grid import prompt_rows
from gaudi_launch.core.buckets.engine_env import (
    Arguments,
    Env,
    contiguous_p1,
    limit_settings,
    settings,
)
from gaudi_launch.core.buckets.engine_model import EngineModel
from gaudi_launch.core.buckets.grid import Grid, decode_rows
from gaudi_launch.core.buckets.ladders import by_step, limited, linear, nothing_left
from gaudi_launch.core.buckets.lookup import ByDimension, Sizer, next_of

PROMPT_TOKENS = 1024
DECODE_TOKENS = 2048


def linear_model(env: Env, args: Arguments) -> EngineModel:
    """Return the model before the padding limit.

    Look-up is by step; above the maximum, shapes are not warmed up.
    """
    return _model(env, args, settings, linear, lambda config: lambda value: by_step(value, config))


def linear_limit_model(env: Env, args: Arguments) -> EngineModel:
    """Return the model with the padding limit.

    Look-up is in the ladder; above it the value itself is used.
    """
    return _model(
        env, args, limit_settings, limited, lambda config: next_of(limited(*config), above="raw")
    )


def _model(
    env: Env,
    args: Arguments,
    read: Callable[..., list[Any]],
    ladder: Callable[..., list[int]],
    sizer: Callable[[list[Any]], Sizer],
) -> EngineModel:
    block = args.block_size
    most_blocks = max(block, args.max_num_seqs * DECODE_TOKENS // block)
    prompt_bs = read(env, "PROMPT", "BS", (1, 32, args.max_num_prefill_seqs))
    decode_bs = read(env, "DECODE", "BS", (1, 32, args.max_num_seqs))
    prompt_seq = read(env, "PROMPT", "SEQ", (block, block, PROMPT_TOKENS))
    decode_block = read(env, "DECODE", "BLOCK", (block, block, most_blocks))
    to_cache = contiguous_p1(env) and "VLLM_DECODE_BLOCK_BUCKET_MAX" not in env
    budget = args.max_num_batched_tokens
    batches, queries = ladder(*prompt_bs), ladder(*prompt_seq)
    if not batches or not queries:
        raise nothing_left(prompt_bs, prompt_seq)
    prompt = Grid(prompt_rows(batches, queries, budget, budget), by_area=True)

    def block_config() -> list[Any]:
        if to_cache:
            return [*decode_block[:2], args.blocks, *decode_block[3:]]
        return decode_block

    def decode() -> Grid:
        most = decode_bs[2] * (args.num_speculative_tokens + 1)
        rows = ladder(*decode_bs[:2], most, *decode_bs[3:])
        blocks = ladder(*block_config())
        if to_cache and args.blocks not in blocks:
            blocks.append(args.blocks)
        return Grid(decode_rows(rows, blocks, args.blocks), by_area=True)

    return EngineModel(
        prompt=prompt,
        make_decode=decode,
        make_lookups=lambda prompts, decodes, remember: ByDimension(
            prompt_batch=sizer(prompt_bs),
            prompt_query=sizer(prompt_seq),
            decode_batch=sizer(decode_bs),
            decode_blocks=sizer(block_config()),
            cache=args.blocks,
            prompt_buckets=prompts,
            decode_buckets=decodes,
        ),
    )
