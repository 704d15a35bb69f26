"""Make prompt buckets with every context that fits with a length.

Linear, linear with a padding limit, and exponential, as in the vLLM fork on aice/v1.22.0.
Sources:
HabanaAI/vllm-hpu-extension@aice/v1.22.0:vllm_hpu_extension/bucketing/{common,linear,exponential}.py,
features.py, config.py (f5f9ecb); ``linear-limit`` is the branch after extension pull 371, which
also types the …_LIMIT variables as floats.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from gaudi_launch.core.buckets import engine_env
from gaudi_launch.core.buckets.engine_env import Arguments, Env, SlicedAttention, flag
from gaudi_launch.core.buckets.engine_model import EngineModel
from gaudi_launch.core.buckets.grid import Grid, Row, decode_rows
from gaudi_launch.core.buckets.ladders import (
    broken,
    limited,
    linear,
    log2_ceiling,
    nothing_left,
    spaced,
)
from gaudi_launch.core.buckets.lookup import ByList, FallbackRule

_DIMENSIONS = ("PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK")
_WHOLE = (
    *(
        f"VLLM_{dimension}_BUCKET_{name}"
        for dimension in _DIMENSIONS
        for name in ("MIN", "STEP", "MAX")
    ),
    "PT_HPU_SDPA_BC_FACTOR",
    "VLLM_FUSEDSDPA_SLIDE_THLD",
)
_LIMITS = tuple(f"VLLM_{dimension}_BUCKET_LIMIT" for dimension in _DIMENSIONS)
_CHOICES = {
    "VLLM_BUCKETING_STRATEGY": ("exponential_bucketing", "linear_bucketing"),
    "VLLM_PROMPT_ATTN_IMPL": ("flex_impl", "fsdpa_impl", "naive_impl"),
    "VLLM_HW": ("cpu", "gaudi", "gaudi2", "gaudi3"),
    "VLLM_BRIDGE_MODE": ("eager", "lazy"),
}
_SAYS = "{name}: exception during construction: {error}"


def linear_model(env: Env, args: Arguments) -> EngineModel:
    """Return the extension without the padding limit.

    …_LIMIT is an int there; 0.25 stops the engine.
    """
    return _linear(env, args, with_limit=False)


def linear_limit_model(env: Env, args: Arguments) -> EngineModel:
    """Return the extension with the padding limit. Merged prefill crashes in it."""
    return _linear(env, args, with_limit=True)


def _linear(env: Env, args: Arguments, *, with_limit: bool) -> EngineModel:
    config = _Config(env, args, float if with_limit else int)
    read = engine_env.limit_settings if with_limit else engine_env.settings
    ladder: Callable[..., list[int]] = limited if with_limit else linear
    block = args.block_size
    prompt_bs = list(read(env, "PROMPT", "BS", (1, 32, args.max_num_prefill_seqs)))
    prompt_seq = list(read(env, "PROMPT", "SEQ", (block, block, args.max_model_len)))
    if config.merged_prefill:
        if with_limit:
            raise broken("ValueError", "too many values to unpack (expected 3)")
        longest = min(prompt_bs[2] * prompt_seq[2], args.max_num_batched_tokens)
        prompt_bs, prompt_seq = [1, 1, 1], [*prompt_seq[:2], longest]
    longest_prompt = prompt_seq[2]

    def contexts(query: int) -> Sequence[int]:
        if config.prefix_caching:
            return range(int((longest_prompt - query) // block) + 2)
        return (0,)

    batches, lengths = ladder(*prompt_bs), ladder(*prompt_seq)
    if not batches or not lengths:
        raise nothing_left(prompt_bs, lengths)
    prompt = config.prompt_grid(
        batches, [(length, contexts(length)) for length in lengths], longest=None
    )

    def decode() -> Grid:
        decode_bs = read(env, "DECODE", "BS", (1, 32, args.max_num_seqs))
        decode_block = list(read(env, "DECODE", "BLOCK", (block, block, args.blocks)))
        to_cache = config.contiguous and "VLLM_DECODE_BLOCK_BUCKET_MAX" not in env
        rows = ladder(*decode_bs)
        if to_cache:
            decode_block[2] = args.blocks
        blocks = ladder(*decode_block)
        if to_cache and args.blocks not in blocks:
            blocks.append(args.blocks)
        return Grid(decode_rows(rows, blocks, args.blocks))

    return config.model(prompt, decode)


def exponential_model(env: Env, args: Arguments) -> EngineModel:
    """Return the default: a logarithmic number of buckets at equal ratios.

    MIN, STEP, MAX and LIMIT are overwritten.
    """
    config = _Config(env, args, float)
    block, longest = args.block_size, args.max_model_len
    exact = config.contiguous
    prompt_bs = (1, 2, args.max_num_prefill_seqs, log2_ceiling(args.max_num_prefill_seqs) + 1)
    prompt_seq = (block, block, longest, log2_ceiling(longest) + 1)
    batches = spaced(*prompt_bs, last_exact=exact)
    lengths = spaced(*prompt_seq, last_exact=exact, long_context=longest >= 8192)

    def contexts(query: int) -> list[int]:
        most = (longest - query) // block
        if not config.prefix_caching or most == 0:
            return [0]
        number = log2_ceiling(most) + 1
        return [0, *(math.ceil(most ** ((1 / float(number)) * i)) for i in range(1, number + 1))]

    prompt = config.prompt_grid(
        batches, [(query, contexts(query)) for query in lengths], longest=longest
    )

    def decode() -> Grid:
        decode_bs = (1, 2, args.max_num_seqs, log2_ceiling(args.max_num_seqs) + 1)
        decode_block = (block, block, args.blocks, log2_ceiling(args.blocks) + 1)
        blocks = spaced(*decode_block, last_exact=exact)
        return Grid([(batch, [(1, blocks)]) for batch in spaced(*decode_bs, last_exact=exact)])

    return config.model(prompt, decode)


class _Config:
    """The flags of ``get_config()`` that shape buckets, checked as the engine does.

    The engine checks all of them together.
    """

    def __init__(self, env: Env, args: Arguments, limit_type: Callable[[str], float]) -> None:
        engine_env.check_types(env, _WHOLE, int, _SAYS)
        engine_env.check_types(env, _LIMITS, limit_type, _SAYS)
        for name, options in _CHOICES.items():
            says = _SAYS.replace(
                "{error}", "{value} is not in allowed options: " + str(options) + "!"
            )
            engine_env.check_choice(env, name, options, says)
        self.args = args
        self.prefix_caching = flag(env, "VLLM_PREFIX_CACHING", bool(args.prefix_caching))
        self.contiguous = flag(env, "VLLM_CONTIGUOUS_PA", not self.prefix_caching)
        self.merged_prefill = flag(env, "VLLM_MERGED_PREFILL", False)
        self.slices: SlicedAttention | None = engine_env.sliced_attention(env)

    def prompt_grid(
        self,
        batches: Sequence[int],
        queries: Sequence[tuple[int, Sequence[int]]],
        *,
        longest: int | None,
    ) -> Grid:
        """Return batch * (query + context) within the token budget, or all if none fits.

        Queries go up to ``longest``.
        """
        budget, block = self.args.max_num_batched_tokens, self.args.block_size

        def fitting(batch: int, query: int, contexts: Sequence[int]) -> Sequence[int]:
            if longest is not None and query > longest:
                return ()
            if batch <= 0:
                return contexts
            return contexts[: bisect_right(contexts, (budget // batch - query) // block)]

        kept: list[Row] = []
        for batch in batches:
            row = [
                (query, some)
                for query, contexts in queries
                if (some := fitting(batch, query, contexts))
            ]
            if row:
                kept.append((batch, row))
        rows = kept or [(batch, list(queries)) for batch in batches]
        if self.slices:
            rows = [
                (batch, [cell for cell in row if self.slices.allows(cell[0])])
                for batch, row in rows
            ]
        return Grid(rows)

    def model(self, prompt: Grid, decode: Callable[[], Grid]) -> EngineModel:
        args, slices = self.args, self.slices

        def rule() -> FallbackRule:
            return FallbackRule(
                query_step=32,
                query_cap=min(args.max_num_batched_tokens, args.max_model_len),
                batch_cap=None,
                prompt_context_cap=args.blocks,
                decode_context_cap=args.blocks,
                slices=slices,
            )

        return EngineModel(
            prompt=prompt,
            make_decode=decode,
            make_lookups=lambda prompts, decodes, remember: ByList(
                prompts, decodes, rule(), remember=remember
            ),
        )
