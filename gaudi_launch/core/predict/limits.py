"""The limits of an engine, as far as they decide which shapes it can form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError

_DEFAULT_BLOCK = 128


@dataclass(frozen=True)
class EngineLimits:
    """The limits of an engine's batches.

    Lengths are tokens; ``num_blocks`` counts KV blocks of ``block_size`` tokens.

    ``contiguous_pa``: the engine indexes decode blocks by the highest block ID (vllm-fork's
    default), so that any batch can need up to ``num_blocks``. Otherwise a decode shape is the sum
    of its sequences' blocks. ``cache_blocks`` is the size of the cache by which the engine builds
    its list, where that is not ``num_blocks``: a cache larger than all sequences at their longest,
    or blocks that several sequences use. ``prefix_caching``: prefix caching is on; 1.22 then has
    prompt buckets for every context. ``mixed_steps``: the engine schedules as V1 does
    (`gaudi_launch.core.predict.mixed_steps`): a step takes prompts, or parts of them, together with
    the sequences that decode. ``ahead``: it plans one step while another one runs.
    """

    max_num_seqs: int
    max_num_prefill_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_blocks: int
    input_min: int
    input_max: int
    output_min: int
    output_max: int
    block_size: int = _DEFAULT_BLOCK
    contiguous_pa: bool = False
    cache_blocks: int | None = None
    prefix_caching: bool = False
    mixed_steps: bool = False
    ahead: bool = True

    def __post_init__(self) -> None:
        for name in (
            "max_num_seqs",
            "max_num_prefill_seqs",
            "max_num_batched_tokens",
            "max_model_len",
            "num_blocks",
            "block_size",
            "input_min",
            "output_min",
        ):
            if getattr(self, name) < 1:
                raise LaunchError(
                    "warmup.limit_too_small", ExitCode.USAGE, name=name, found=getattr(self, name)
                )
        for low, high in (("input_min", "input_max"), ("output_min", "output_max")):
            if getattr(self, low) > getattr(self, high):
                raise LaunchError(
                    "warmup.range_backwards",
                    ExitCode.USAGE,
                    name=low.removesuffix("_min"),
                    low=getattr(self, low),
                    high=getattr(self, high),
                )

    @property
    def blocks_per_sequence(self) -> int:
        """Return the number of blocks of a sequence at its longest."""
        return -(-self.max_model_len // self.block_size)

    @property
    def longest_query(self) -> int:
        """Return the longest useful prompt bucket.

        That is the model's length in complete blocks, within the token budget.
        """
        return min(self.blocks_per_sequence * self.block_size, self.max_num_batched_tokens)

    @property
    def physical_blocks(self) -> int:
        """Return blocks in the cache; sequences that share a prefix may name more."""
        return min(self.num_blocks, self.cache_blocks or self.num_blocks)

    @property
    def prefix_tokens(self) -> int:
        """Return the tokens that the prefix cache keeps at most; 0 without one."""
        return self.prefix_caching * self.physical_blocks * self.block_size

    @property
    def named_blocks(self) -> int:
        """Return the most blocks that a decode step can name.

        By ID, or where no sequence shares a block, those of the cache.
        """
        if self.contiguous_pa or (self.mixed_steps and not self.prefix_caching):
            return self.physical_blocks
        return self.num_blocks

    @property
    def most_context(self) -> int:
        """Return blocks of the longest context of a prompt.

        All of the model's length but one token.
        """
        return -(-(self.max_model_len - 1) // self.block_size)

    def query_behind(self, context: int) -> int:
        """Return the longest query behind ``context`` blocks, the last one not full."""
        left = self.max_model_len - (context - 1) * self.block_size - 1
        return min(self.longest_query, left)

    @property
    def prefill_rows(self) -> int:
        """Return the largest prompt batch that can be formed."""
        shortest = min(self.block_size, self.longest_query)
        rows = min(self.max_num_prefill_seqs, self.max_num_seqs)
        return max(1, min(rows, self.max_num_batched_tokens // shortest))

    def query_top(self, batch: int) -> int:
        """Return the longest padded prompt that fits ``batch`` times into the budget.

        Return 0 when none does. The budget is in tokens. The result is in complete blocks, except
        where the budget itself is the limit.
        """
        room = min(self.max_num_batched_tokens // batch, self.longest_query)
        if room == self.longest_query:
            return room
        return room // self.block_size * self.block_size

    def block_top(self, batch: int) -> int:
        """Return the most blocks that ``batch`` decoding sequences can use."""
        if self.contiguous_pa:
            return self.num_blocks
        return max(batch, min(self.num_blocks, batch * self.blocks_per_sequence))


@dataclass(frozen=True)
class CoverageQuestion:
    """A question to the planner about one deployment.

    ``family`` is an `Engine.bucket_family`, "" for an engine that builds its list itself;
    ``with_limit``: the installed extension supports the padding limit, and the user gave none.
    ``package``: the Python package of an installed engine that makes its buckets.
    """

    family: str
    limits: EngineLimits
    with_limit: bool = False
    package: str = ""


def as_limits(given: Mapping[str, Any]) -> EngineLimits:
    """Return `EngineLimits` from its fields by name; other names are left out.

    What is missing or None: prefill batch = max_num_seqs (the engines' default), token budget =
    max_model_len, KV blocks for max_num_seqs sequences of max_model_len, any length that the model
    takes. Raises LaunchError (USAGE).
    """
    known = {each.name for each in fields(EngineLimits)}
    found = {name: each for name, each in given.items() if name in known and each is not None}
    seqs, length = found["max_num_seqs"], found["max_model_len"]
    blocks = -(-length // found.get("block_size", _DEFAULT_BLOCK))
    usual = {
        "max_num_prefill_seqs": seqs,
        "max_num_batched_tokens": length,
        "num_blocks": seqs * blocks,
        "input_min": 1,
        "output_min": 1,
        "input_max": length,
        "output_max": length,
    }
    found = {**usual, **found}
    for name in ("input_max", "output_max"):
        # no length is longer than the model's
        found[name] = min(found[name], length)
    return EngineLimits(**found)
