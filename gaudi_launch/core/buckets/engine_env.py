"""The inputs of the engines' bucketing: variables, and the generator's arguments.

Each engine has a parser for its variables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.engine_booleans import boolean, is_true
from gaudi_launch.core.buckets.ladders import broken

Env = Mapping[str, str]

_LINEAR = ("MIN", "STEP", "MAX")


@dataclass(frozen=True)
class Arguments:
    """The arguments of an engine's bucket generator.

    Tokens for lengths, blocks of ``block_size`` tokens.

    ``num_hpu_blocks`` is the size of the KV cache in blocks, known only after the memory profile
    (1.21 rounds it down to a multiple of the decode block step before); None is enough for
    everything but decode buckets.
    """

    max_num_seqs: int
    max_model_len: int
    block_size: int
    max_num_prefill_seqs: int
    max_num_batched_tokens: int
    num_hpu_blocks: int | None = None
    use_merged_prefill: bool = False
    prefix_caching: bool | None = None
    num_speculative_tokens: int = 0
    mamba_chunk_size: int = 0
    mamba_chunk_size_is_explicit: bool = False
    skip_decode_block_clamp: bool = False
    bucket_file: str | None = None

    @property
    def blocks(self) -> int:
        """Return the KV cache in blocks. Raises LaunchError when it is unknown."""
        if self.num_hpu_blocks is None:
            raise LaunchError("warmup_engine.blocks_unknown", ExitCode.USAGE)
        return self.num_hpu_blocks


def arguments(args: Mapping[str, Any]) -> Arguments:
    """Return `Arguments` from a mapping as recorded.

    Names it does not know are ignored. Raises LaunchError if one is missing.
    """
    values = {name: args[name] for name in Arguments.__dataclass_fields__ if name in args}
    for name in ("max_num_seqs", "max_model_len", "block_size", "max_num_batched_tokens"):
        if name not in values:
            raise LaunchError("warmup_engine.missing_argument", ExitCode.USAGE, name=name)
    if values.get("max_num_prefill_seqs") is None:
        values["max_num_prefill_seqs"] = values["max_num_seqs"]
    for name in ("num_speculative_tokens", "mamba_chunk_size"):
        values[name] = values.get(name) or 0
    return Arguments(**values)


# the variables that the bucket code of any engine reads and that a user can have exported
_READ = re.compile(
    r"^VLLM_\w*BUCKET\w*$|^PT_HPU_SDPA_(BC_FACTOR|QKV_SLICE_MODE_FWD)$|^VLLM_(CONTIGUOUS_PA|MERGED_PREFILL"
    r"|PREFIX_CACHING|PROMPT_ATTN_IMPL|HW|BRIDGE_MODE|FUSEDSDPA_SLIDE_THLD)$"
)


def exported(environment: Env) -> dict[str, str]:
    """Return the user's variables that bucket code reads.

    The engine inherits them, whether a plan names them or not.
    """
    return {name: value for name, value in environment.items() if value and _READ.match(name)}


def flag(env: Env, name: str, default: bool) -> bool:
    """Return a boolean as 1.22 and vllm-gaudi read it."""
    if name in env:
        return boolean(env[name])
    return default


def contiguous_p1(env: Env) -> bool:
    """Return contiguous paged attention as 1.21 and deepseek_r1 read it.

    It is on by default.
    """
    return is_true(env.get("VLLM_CONTIGUOUS_PA", "true"))


def settings(
    env: Env, phase: str, dimension: str, defaults: Sequence[int], names: Sequence[str] = _LINEAR
) -> list[int]:
    """Return (min, step, max...) of one dimension from its variables, or the default.

    The variables are VLLM_<PHASE>_<DIMENSION>_BUCKET_<NAME>. QUERY falls back to the older SEQ name
    (vllm-gaudi ``read_bucket_settings``).
    """
    values = []
    for name, default in zip(names, defaults, strict=True):
        older: str | int = default
        if dimension == "QUERY":
            older = env.get(f"VLLM_{phase}_SEQ_BUCKET_{name}", default)
        values.append(int(env.get(f"VLLM_{phase}_{dimension}_BUCKET_{name}", older)))
    return values


def limit_settings(env: Env, phase: str, dimension: str, defaults: Sequence[int]) -> list[float]:
    """Return (min, step, max, limit) where the extension has the padding limit.

    Digits are integers, other values floats.
    """
    values: list[float] = []
    for name, default in zip((*_LINEAR, "LIMIT"), (*defaults, 0.25), strict=True):
        text = env.get(f"VLLM_{phase}_{dimension}_BUCKET_{name}", str(default))
        values.append(int(text) if text.isdigit() else float(text))
    return values


def check_types(env: Env, names: Sequence[str], reads: Callable[[str], Any], says: str) -> None:
    """Raise the engine's error for a variable that ``reads`` cannot parse.

    ``says`` has {name} and {error}.
    """
    for name in names:
        if name in env:
            try:
                reads(env[name])
            except ValueError as error:
                raise broken("RuntimeError", says.format(name=name, error=error)) from None


def check_choice(env: Env, name: str, options: Sequence[str], says: str) -> None:
    """Raise the engine's error for a variable outside ``options``.

    ``says`` has {name} and {value}.
    """
    if name in env and env[name] not in options:
        raise broken("RuntimeError", says.format(name=name, value=env[name]))


@dataclass(frozen=True)
class SlicedAttention:
    """The sliced attention kernel, which takes long prompts in complete slices only.

    Variable: PT_HPU_SDPA_QKV_SLICE_MODE_FWD.
    """

    size: int
    threshold: int

    def allows(self, query: int) -> bool:
        """Return True if a prompt bucket of ``query`` tokens stays.

        Source: 1.22 bucketing/common.py, generate_prompt_buckets.
        """
        return query < self.threshold or query % self.size == 0

    def added_query(self, query: int) -> int | None:
        """Return the query of a bucket added for a prompt; None for a short one."""
        if query < self.threshold:
            return None
        return math.ceil(query / self.size) * self.size


def sliced_attention(env: Env) -> SlicedAttention | None:
    """Return the kernel's settings where 1.22 or vllm-gaudi has it switched on."""
    if not flag(env, "PT_HPU_SDPA_QKV_SLICE_MODE_FWD", False):
        return None
    return SlicedAttention(
        size=int(env.get("PT_HPU_SDPA_BC_FACTOR", 1024)),
        threshold=int(env.get("VLLM_FUSEDSDPA_SLIDE_THLD", 8192)),
    )
