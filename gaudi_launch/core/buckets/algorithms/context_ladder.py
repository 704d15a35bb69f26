"""Make prompt buckets whose contexts have a separate ladder.

Exponential, linear and padding-aware, as in vllm-gaudi. Source: vllm-project/vllm-gaudi, tags
v0.11.2 to v0.26.0 and 091bbadd:vllm_gaudi/extension/bucketing/{common,exponential,linear,
padding_aware}.py, features.py, environment.py, config.py; what differs between them is in
`LadderRules`. A prompt bucket has a context dimension: the KV blocks that prefix caching or earlier
chunks have filled.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from gaudi_launch.core.buckets import engine_env
from gaudi_launch.core.buckets.bucket_list import Bucket
from gaudi_launch.core.buckets.engine_booleans import boolean
from gaudi_launch.core.buckets.engine_env import Arguments, Env, SlicedAttention, flag, settings
from gaudi_launch.core.buckets.engine_model import EngineModel
from gaudi_launch.core.buckets.grid import Grid, Row
from gaudi_launch.core.buckets.ladder_rules import LadderRules
from gaudi_launch.core.buckets.ladders import (
    broken,
    linear_from_zero,
    log2_ceiling,
    padded,
    spaced_once,
)
from gaudi_launch.core.buckets.lookup import ByList, FallbackRule, Raw

LONG_CONTEXT = 8192
"""From this model length on, the largest prompt context follows the query: query + context fill
the model."""

_LINEAR = ("MIN", "STEP", "MAX")
_PADDED = (*_LINEAR, "PAD_MAX", "PAD_PERCENT")
_DIMENSIONS = ("PROMPT_BS", "PROMPT_QUERY", "PROMPT_SEQ", "PROMPT_CTX", "DECODE_BS", "DECODE_BLOCK")
_SLICED = ("PT_HPU_SDPA_BC_FACTOR", "VLLM_FUSEDSDPA_SLIDE_THLD")
_WHOLE_SAYS = "{name}: failed to process environment variable"
_STRATEGY_SAYS = "bucketing_strategy: {value} is not in allowed options: [exp, lin, pad]!"

_NEWEST = LadderRules()

Ladders = tuple[list[int], list[int], list[int]]
"""Batches, queries and contexts of the prompt phase, ascending."""


class PluginFlags:
    """The flags that shape buckets, as the plugin resolves them.

    Source: the extension's ``get_config``.
    """

    def __init__(self, env: Env, args: Arguments, rules: LadderRules) -> None:
        self.rules = rules
        names: tuple[str, ...] = _LINEAR
        if rules.pad:
            names = _PADDED
            strategies = ("exp", "lin", "pad")
            engine_env.check_choice(env, "VLLM_BUCKETING_STRATEGY", strategies, _STRATEGY_SAYS)
        whole = [f"VLLM_{dimension}_BUCKET_{name}" for dimension in _DIMENSIONS for name in names]
        engine_env.check_types(env, (*whole, *_SLICED), int, _WHOLE_SAYS)
        checked = rules.chunks in ("stated", "checked") and args.mamba_chunk_size > 0
        if checked and args.max_num_batched_tokens % args.mamba_chunk_size != 0:
            raise broken(
                "ValueError",
                f"max_num_batched_tokens ({args.max_num_batched_tokens}) must be divisible by "
                f"mamba_chunk_size ({args.mamba_chunk_size})",
            )
        # Prefix caching counts as on unless contiguous attention was requested (environment.py,
        # _get_prefix).
        caching = not boolean(env.get("VLLM_CONTIGUOUS_PA", "false"))
        self.prefix_caching = flag(env, "VLLM_PREFIX_CACHING", caching)
        self.contiguous = flag(env, "VLLM_CONTIGUOUS_PA", not self.prefix_caching)
        self.merged_prefill = flag(env, "VLLM_MERGED_PREFILL", False)
        self.bucketing = flag(env, "VLLM_ENABLE_BUCKETING", True)
        self.slices: SlicedAttention | None = engine_env.sliced_attention(env)
        self.context_max: int | None = None
        if "VLLM_PROMPT_CTX_BUCKET_MAX" in env:
            self.context_max = int(env["VLLM_PROMPT_CTX_BUCKET_MAX"])


def exponential_model(env: Env, args: Arguments, rules: LadderRules = _NEWEST) -> EngineModel:
    """Return ``exp``, the default: a logarithmic number of buckets.

    MIN, STEP and MAX are overwritten, except VLLM_PROMPT_QUERY_BUCKET_MIN=1.
    """
    flags = PluginFlags(env, args, rules)
    ladder = partial(spaced_once, last_exact=flags.contiguous, form=rules.ladder)
    prefills, budget, block = (
        args.max_num_prefill_seqs,
        args.max_num_batched_tokens,
        args.block_size,
    )
    query_min = block
    if rules.one_token and int(env.get("VLLM_PROMPT_QUERY_BUCKET_MIN", 0)) == 1:
        query_min = 1
    prompt_bs = (1, 2, prefills, log2_ceiling(prefills) + 1)
    query = (query_min, block, budget, log2_ceiling(budget))
    reserved = query_min
    if rules.long_contexts != "none" and args.max_model_len >= LONG_CONTEXT:
        reserved = budget
    most_context = max(1, (args.max_model_len - reserved) // block)
    # no context and the longest one at least
    context = (0, 1, most_context, max(2, log2_ceiling(most_context) + 1))
    if flags.merged_prefill:
        prompt_bs = (1, 1, 1, 1)
        query = (query_min, block * 4, budget, query[3])
        context = (0, 4, most_context * prefills, context[3])

    def decode() -> tuple[list[int], list[int]]:
        most = _decode_top(flags, args)
        cut = args.blocks * rules.cut
        number = log2_ceiling(args.blocks if rules.decode_steps == "cache" else most) + 1
        if rules.decode_steps == "dense" and not flags.contiguous and 0 < cut < most:
            number += log2_ceiling(most / cut) + 1
        batches = ladder(1, 2, args.max_num_seqs, log2_ceiling(args.max_num_seqs) + 1)
        return batches, ladder(1, args.max_num_seqs, most, number)

    return _model(flags, args, (ladder(*prompt_bs), ladder(*query), ladder(*context)), decode)


def _decode_top(flags: PluginFlags, args: Arguments) -> int:
    """Return the largest count of decode blocks of ``exp``.

    Source: exponential.py ``get_decode_cfgs`` of each release.
    """
    top, blocks, seqs = flags.rules.decode_top, args.blocks, args.max_num_seqs
    worst = math.ceil(args.max_model_len / args.block_size) * seqs
    shortened = args.max_model_len // args.block_size * seqs
    cut = blocks * flags.rules.cut
    if flags.contiguous:
        return min(blocks, worst) if top in ("cut", "sequences") else blocks
    if top == "cut" and not args.skip_decode_block_clamp:
        return min(worst, cut)
    if top in ("cut", "sequences"):
        return worst
    if top == "share":
        return max(min(worst, blocks * seqs // 3), cut)
    if top == "cache":
        return cut
    return min(shortened, blocks * seqs // 4 if top == "quarter" else blocks)


def linear_model(env: Env, args: Arguments, rules: LadderRules = _NEWEST) -> EngineModel:
    """Return ``lin``: doubling to a step, then multiples of the step, per dimension."""
    flags = PluginFlags(env, args, rules)
    prefills, budget, block = (
        args.max_num_prefill_seqs,
        args.max_num_batched_tokens,
        args.block_size,
    )
    prompt_bs = settings(env, "PROMPT", "BS", (1, 1, prefills))
    query = settings(env, "PROMPT", "QUERY", (block, block, budget))
    most_context = (args.max_model_len - query[0]) // block
    context = settings(env, "PROMPT", "CTX", (0, 1, most_context))
    if flags.merged_prefill:
        prompt_bs, query = [1, 1, 1], [query[0], query[1] * 4, budget]
        context = settings(env, "PROMPT", "CTX", (0, 4, most_context * prefills))

    def decode() -> tuple[list[int], list[int]]:
        most = max(args.max_model_len * args.max_num_seqs // block, block)
        if flags.contiguous:
            most = args.blocks
        blocks = settings(env, "DECODE", "BLOCK", (1, block, most))
        cut = flags.contiguous or rules.linear_cache
        # older code looks at the minimum only where it has cut the maximum
        looks = not rules.linear_cache or blocks[2] > args.blocks
        if cut:
            blocks[2] = min(blocks[2], args.blocks)
        if looks and blocks[0] > blocks[2]:
            blocks[0] = max(1, blocks[2] - blocks[1])
        batches = settings(env, "DECODE", "BS", (1, 32, args.max_num_seqs))
        return linear_from_zero(*batches), linear_from_zero(*blocks)

    ladders = (linear_from_zero(*prompt_bs), linear_from_zero(*query), linear_from_zero(*context))
    return _model(flags, args, ladders, decode)


def padded_model(env: Env, args: Arguments, rules: LadderRules = _NEWEST) -> EngineModel:
    """Return ``pad``: linear steps, thinned under two padding limits.

    The limits are a fraction and an absolute number.
    """
    flags = PluginFlags(env, args, rules)
    prefills, budget, block = (
        args.max_num_prefill_seqs,
        args.max_num_batched_tokens,
        args.block_size,
    )

    def read(phase: str, dimension: str, *defaults: int) -> list[int]:
        return settings(env, phase, dimension, (*defaults, 25), _PADDED)

    prompt_bs = read("PROMPT", "BS", 1, 1, prefills, math.ceil(prefills / 4))
    query = read("PROMPT", "QUERY", block, block, budget, math.ceil(budget / 4))
    most_context = math.ceil((args.max_model_len - query[0]) / block)
    context_pad = math.ceil(budget / block)
    context = read("PROMPT", "CTX", 0, 2, most_context, context_pad)
    if flags.merged_prefill:
        prompt_bs = [1, 1, 1, *prompt_bs[3:]]
        query = [query[0], query[1] * 4, budget, *query[3:]]
        context = read("PROMPT", "CTX", 0, 4, most_context * prefills, context_pad)

    def decode() -> tuple[list[int], list[int]]:
        seqs = args.max_num_seqs
        most = max(math.ceil(args.max_model_len * seqs / block), block)
        if flags.contiguous:
            most = args.blocks
        blocks = read("DECODE", "BLOCK", block, block, most, math.ceil(most / 4))
        if flags.contiguous:
            blocks[2] = min(blocks[2], args.blocks)
        if blocks[0] > args.blocks:
            blocks[0] = max(1, args.blocks - blocks[1])
        batches = read("DECODE", "BS", 1, 2, seqs, math.ceil(seqs / 4))
        return padded(*batches), padded(*blocks)

    ladders = (padded(*prompt_bs), padded(*query), padded(*context))
    return _model(flags, args, ladders, decode)


def _model(
    flags: PluginFlags,
    args: Arguments,
    prompt: Ladders,
    decode: Callable[[], tuple[list[int], list[int]]],
) -> EngineModel:
    def decode_rows() -> list[Row]:
        batches, blocks = decode()
        batches, blocks = sorted(set(batches)), sorted(set(blocks))
        if flags.contiguous and blocks[-1] < args.blocks:
            blocks.append(args.blocks)
        if not batches:
            raise broken("ValueError", "max() arg is an empty sequence")
        return _decode_rows(flags, args, batches, blocks)

    # Cutting a ladder's top to its maximum can repeat a value; the engine puts pairs into a set.
    batches, queries, contexts = (sorted(set(ladder)) for ladder in prompt)
    return assemble(flags, args, _prompt_rows(flags, args, batches, queries, contexts), decode_rows)


def _prompt_rows(
    flags: PluginFlags, args: Arguments, batches: list[int], queries: list[int], contexts: list[int]
) -> list[Row]:
    """Return every possible batch, context and query.

    Source: common.py ``generate_buckets``.
    """
    if not batches or not contexts:
        raise broken("ValueError", "max() arg is an empty sequence")
    queries = _in_chunks(flags.rules, args, queries)
    cells: list[tuple[int, Sequence[int]]] = []
    largest = _largest_contexts(flags, args, queries, contexts[-1])
    *shorter, _ = contexts
    for query, last in zip(queries, largest, strict=True):
        most = longest_context(flags, args, query)
        kept = shorter[: bisect_right(shorter, most)]
        if last <= most and last not in kept:
            insort(kept, last)
        if kept:
            cells.append((query, kept))
    cells = _merged_equal_queries(cells)
    if flags.merged_prefill:
        return [(batch, cells) for batch in batches]
    budget = args.max_num_batched_tokens
    return [(batch, [cell for cell in cells if batch * cell[0] <= budget]) for batch in batches]


def _in_chunks(rules: LadderRules, args: Arguments, queries: list[int]) -> list[int]:
    """Return the queries in complete chunks of a state, where the release rounds."""
    chunk, rounds = args.mamba_chunk_size, rules.chunks in ("any", "checked")
    if rules.chunks == "stated":
        rounds = args.mamba_chunk_size_is_explicit
    if chunk <= 0 or not rounds:
        return queries
    return [math.ceil(query / chunk) * chunk for query in queries]


def _largest_contexts(
    flags: PluginFlags, args: Arguments, queries: list[int], largest: int
) -> list[int]:
    """Return the largest context of each query.

    It is ``largest`` where no rule of the release replaces it.
    """
    rules = flags.rules
    if rules.long_contexts == "none" or args.max_model_len < LONG_CONTEXT:
        return [largest] * len(queries)
    bound = flags.context_max if rules.long_contexts == "bounded" else None
    found = []
    for query in queries:
        # A refused replacement keeps the one of the query before: the engine overwrites its
        # loop variable.
        filling = (args.max_model_len - query) // args.block_size
        if filling >= 0 and (bound is None or filling < bound):
            largest = filling
        found.append(largest)
    return found


def _merged_equal_queries(
    cells: list[tuple[int, Sequence[int]]],
) -> list[tuple[int, Sequence[int]]]:
    by_query: dict[int, set[int]] = {}
    for query, contexts in cells:
        by_query.setdefault(query, set()).update(contexts)
    return [(query, sorted(contexts)) for query, contexts in by_query.items()]


def longest_context(flags: PluginFlags, args: Arguments, query: int) -> float:
    """Return the blocks of the longest context behind which a query can occur.

    Minus infinity where none can. The token budget is not considered.
    """
    if flags.merged_prefill:
        prefills = args.max_num_prefill_seqs
        return prefills * ((args.max_model_len - math.floor(query / prefills)) // args.block_size)
    if flags.rules.prompt_fits == "sum":
        return (args.max_model_len - query) // args.block_size
    if query > args.max_model_len:
        return -math.inf
    return math.ceil((args.max_model_len - 1) / args.block_size)


def most_blocks(flags: PluginFlags, args: Arguments, batch: int) -> int:
    """Return the KV blocks that ``batch`` requests of the model's length fill."""
    if _rounds_down(flags, args):
        return batch * (args.max_model_len // args.block_size)
    return batch * math.ceil(args.max_model_len / args.block_size)


def _rounds_down(flags: PluginFlags, args: Arguments) -> bool:
    return flags.rules.chunks in ("any", "checked") and args.mamba_chunk_size > 0


def _decode_rows(
    flags: PluginFlags, args: Arguments, batches: Sequence[int], blocks: Sequence[int]
) -> list[Row]:
    """Return every batch and block count.

    Without contiguous attention, blocks range from the batch to the most that it can fill. Releases
    that round for states cut there with it, too (v0.17.1: common.py get_corrector).
    """
    if flags.contiguous and not _rounds_down(flags, args):
        return [(batch, [(1, blocks)]) for batch in batches]
    rows: list[Row] = []
    for batch in batches:
        cap = most_blocks(flags, args, batch)
        start = 0 if flags.contiguous else bisect_left(blocks, batch)
        end = bisect_left(blocks, cap)
        row = list(blocks[start:end])
        if max(start, end) < len(blocks):
            row.append(cap)
        rows.append((batch, [(1, row)]))
    return rows


def rows_of(buckets: Iterable[tuple[int, int, int]]) -> list[Row]:
    """Return the rows of a set of buckets, sorted."""
    table: dict[int, dict[int, list[int]]] = {}
    for batch, query, context in sorted(set(buckets)):
        table.setdefault(batch, {}).setdefault(query, []).append(context)
    return [(batch, list(queries.items())) for batch, queries in table.items()]


def assemble(
    flags: PluginFlags,
    args: Arguments,
    prompt_rows: list[Row],
    decode_rows: Callable[[], list[Row]],
) -> EngineModel:
    """Return the model of the remaining rows.

    With sliced attention, speculative decoding and look-up. A phase without buckets is the engine's
    error.
    """
    if not flags.bucketing:
        none = Grid([])
        return EngineModel(none, lambda: none, lambda *_: Raw())
    prompt = Grid(prompt_rows)
    if not prompt.count():
        raise _zero("prompt")
    if flags.slices:
        prompt = Grid([(batch, _sliced(flags.slices, queries)) for batch, queries in prompt.rows])

    def decode() -> Grid:
        grid = Grid(decode_rows())
        if not grid.count():
            raise _zero("decode")
        if args.num_speculative_tokens and flags.rules.speculation:
            return _with_speculation(flags, args, grid)
        return grid

    return EngineModel(
        prompt=prompt,
        make_decode=decode,
        make_lookups=lambda prompts, decodes, remember: _lookups(
            flags, args, prompts, decodes, remember
        ),
    )


def _zero(phase: str) -> Exception:
    return broken(
        "RuntimeError",
        (
            f"Generated 0 {phase} buckets. Please adjust the bucketing configuration according to "
            "README"
        ),
    )


def _sliced(
    slices: SlicedAttention, queries: Iterable[tuple[int, Sequence[int]]]
) -> list[tuple[int, Sequence[int]]]:
    kept = []
    for query, contexts in queries:
        if not slices.allows(query):
            contexts = [context for context in contexts if context != 0]
        kept.append((query, contexts))
    return kept


def _with_speculation(flags: PluginFlags, args: Arguments, seeds: Grid) -> Grid:
    """Return the seed buckets and those of batch * (1 + drafted tokens).

    Source: ``generate_spec_decode_buckets``.
    """
    tokens = 1 + args.num_speculative_tokens
    found: set[tuple[int, int, int]] = set()
    for batch, queries in seeds.rows:
        wide = batch * tokens
        cap = math.inf
        if not flags.contiguous:
            cap = wide * math.ceil(args.max_model_len / args.block_size)
        for query, contexts in queries:
            for blocks in contexts:
                found.add((batch, query, blocks))
                found.add((wide, query, int(min(blocks * tokens, cap))))
                if wide <= blocks:
                    found.add((wide, query, int(min(blocks, cap))))
    return Grid(rows_of(found))


def _lookups(
    flags: PluginFlags,
    args: Arguments,
    prompts: Sequence[Bucket],
    decodes: Sequence[Bucket],
    remember: bool,
) -> ByList:
    largest = max((bucket[2] for bucket in decodes), default=0)
    slices, added = flags.slices, flags.rules.added
    prompt_cap = decode_cap = args.num_hpu_blocks or 0
    if added != "cache":
        prompt_cap = decode_cap = largest
    if added == "model":
        prompt_cap = math.ceil((args.max_model_len - 1) / args.block_size)

    rule = FallbackRule(
        query_step=max(32, args.mamba_chunk_size) if added != "cache" else 32,
        query_cap=args.max_num_batched_tokens,
        batch_cap=args.max_num_seqs if flags.rules.ladder == "exact" else None,
        prompt_context_cap=prompt_cap,
        decode_context_cap=decode_cap,
        slices=slices,
        append_twice=added != "model",
    )
    clip = largest if added == "model" else 0
    return ByList(prompts, decodes, rule, decode_clip=clip, remember=remember)
