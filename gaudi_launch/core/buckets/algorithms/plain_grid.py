"""Make buckets of batch and size, without contexts: linear and exponential.

As in the vLLM fork on aice/v1.21.0. Source:
HabanaAI/vllm-hpu-extension@aice/v1.21.0:vllm_hpu_extension/bucketing/{linear,exponential}.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from gaudi_launch.core.buckets.engine_env import Arguments, Env, contiguous_p1, settings
from gaudi_launch.core.buckets.engine_model import EngineModel
from gaudi_launch.core.buckets.grid import Grid, Row, decode_rows
from gaudi_launch.core.buckets.ladders import by_step, linear, log2_ceiling, nothing_left, spaced
from gaudi_launch.core.buckets.lookup import ByDimension, next_of


def linear_model(env: Env, args: Arguments) -> EngineModel:
    """Return the default algorithm of 1.21.

    Each dimension doubles up to a step, then continues in multiples of the step.
    """
    block = args.block_size
    most_blocks = max(block, args.max_num_seqs * args.max_model_len // block)
    prompt_bs = settings(env, "PROMPT", "BS", (1, 32, args.max_num_prefill_seqs))
    decode_bs = settings(env, "DECODE", "BS", (1, 32, args.max_num_seqs))
    prompt_seq = settings(env, "PROMPT", "SEQ", (block, block, args.max_model_len))
    decode_block = settings(env, "DECODE", "BLOCK", (block, block, most_blocks))
    if args.use_merged_prefill:
        longest = min(prompt_bs[2] * prompt_seq[2], args.max_num_batched_tokens)
        prompt_bs, prompt_seq = [1, 1, 1], [*prompt_seq[:2], longest]
    batches, queries = linear(*prompt_bs), linear(*prompt_seq)
    if not batches or not queries:
        raise nothing_left(
            *((tuple(c) if args.use_merged_prefill else c) for c in (prompt_bs, prompt_seq))
        )
    budget = args.max_num_batched_tokens
    prompt = Grid(prompt_rows(batches, queries, budget, budget), by_area=True)

    def decode() -> Grid:
        return Grid(
            decode_rows(linear(*decode_bs), linear(*decode_block), args.blocks), by_area=True
        )

    return EngineModel(
        prompt=prompt,
        make_decode=decode,
        make_lookups=lambda prompts, decodes, remember: ByDimension(
            prompt_batch=lambda value: by_step(value, prompt_bs),
            prompt_query=lambda value: by_step(value, prompt_seq),
            decode_batch=lambda value: by_step(value, decode_bs),
            decode_blocks=lambda value: by_step(value, decode_block),
            cache=args.blocks,
            prompt_buckets=prompts,
            decode_buckets=decodes,
        ),
    )


def exponential_model(env: Env, args: Arguments) -> EngineModel:
    """Return the algorithm for VLLM_EXPONENTIAL_BUCKETING=true.

    A number of buckets (…_LIMIT) at equal ratios; MIN, STEP and MAX are not read. A request above
    the largest bucket of a dimension stops the worker in a debugger.
    """
    block = args.block_size
    most_blocks = max(block, args.max_num_seqs * args.max_model_len // block)

    def config(phase: str, dimension: str, low: int, high: int) -> list[int]:
        number = log2_ceiling(high) + 1
        return [low, low, high, *settings(env, phase, dimension, (number,), ("LIMIT",))]

    prompt_bs = config("PROMPT", "BS", 1, args.max_num_prefill_seqs)
    decode_bs = config("DECODE", "BS", 1, args.max_num_seqs)
    prompt_seq = config("PROMPT", "SEQ", block, args.max_model_len)
    decode_block = config("DECODE", "BLOCK", block, most_blocks)
    exact = contiguous_p1(env)
    prompt = Grid(
        prompt_rows(
            spaced(*prompt_bs, last_exact=exact),
            spaced(*prompt_seq, last_exact=exact),
            args.max_num_batched_tokens,
            args.max_model_len,
        ),
        by_area=True,
    )

    def decode() -> Grid:
        # With prefix caching the runner switches contiguous attention off after the prompt buckets
        # are made.
        exact_decode = exact and not (args.prefix_caching and "VLLM_CONTIGUOUS_PA" not in env)
        batches = spaced(*decode_bs, last_exact=exact_decode)
        blocks = spaced(block, block, args.blocks, decode_block[3], last_exact=exact_decode)
        return Grid([(batch, [(1, blocks)]) for batch in batches], by_area=True)

    return EngineModel(
        prompt=prompt,
        make_decode=decode,
        make_lookups=lambda prompts, decodes, remember: ByDimension(
            prompt_batch=next_of((b[0] for b in prompts), above="hang"),
            prompt_query=next_of((b[1] for b in prompts), above="hang"),
            decode_batch=next_of((b[0] for b in decodes), above="hang"),
            decode_blocks=next_of((b[2] for b in decodes), above="hang"),
            cache=args.blocks,
            prompt_buckets=prompts,
            decode_buckets=decodes,
        ),
    )


def prompt_rows(
    batches: Sequence[int], queries: Sequence[int], budget: int, longest: int
) -> list[Row]:
    """Return prompt rows without a context, with queries up to ``longest``.

    batch * query is within the token ``budget``. If nothing fits, the engine keeps all rows and
    logs it.
    """
    kept: list[Row] = []
    for batch in batches:
        most = longest
        if batch > 0:
            most = min(budget // batch, longest)
        fitting = queries[: bisect_right(queries, most)]
        if fitting:
            kept.append((batch, [(query, (0,)) for query in fitting]))
    return kept or [(batch, [(query, (0,)) for query in queries]) for batch in batches]
