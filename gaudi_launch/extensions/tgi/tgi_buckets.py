"""Shapes that TGI's Gaudi backend warms up before its port opens.

Sources: huggingface/text-generation-inference, tag v3.2.3
(backends/gaudi/server/.../models/causal_lm.py and vlm_causal_lm.py) and tags v3.3.3 to v3.3.7
(flash_causal_lm.py, flash_vlm_causal_lm.py) with the exponential ladders of
HabanaAI/vllm-hpu-extension. Block size 128.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.ladders import log2_ceiling

BLOCK = 128
POWERS = "powers"
"""Rows of the longest length, batches in powers: 3.2.3."""
PAGED = "paged"
"""A paged cache with vLLM's exponential buckets: 3.3.x."""
RUNS_PER_SHAPE = 3
"""3.3.x runs each warmed shape three times (flash_causal_lm.py ``warmup_hpu_graph``)."""


@dataclass(frozen=True)
class TgiLimits:
    """The server's limits, in tokens and requests.

    They are --max-input-tokens, --max-total-tokens, --max-batch-size, --max-batch-prefill-tokens.
    ``model_tokens``: the smaller of the tokenizer's and the model's length.
    """

    input_tokens: int
    total_tokens: int
    batch_size: int
    prefill_tokens: int
    model_tokens: int | None = None


@dataclass(frozen=True)
class TgiShapes:
    """``prefill``: [batch, tokens].

    ``decode``: [batch, blocks] (3.3.x) or [batch] (3.2.3). ``runs``: passes.
    """

    prefill: list[list[int]]
    decode: list[list[int]]
    runs: int

    @property
    def shapes(self) -> int:
        """Return the number of shapes that are warmed up."""
        return len(self.prefill) + len(self.decode)


def tgi_shapes(
    algorithm: str,
    limits: TgiLimits,
    env: Mapping[str, str],
    *,
    kv_blocks: int | None = None,
    vision: bool = False,
    mllama: bool = False,
) -> TgiShapes:
    """Return the warm-up of an image by its algorithm: `POWERS` or `PAGED`.

    `POWERS` is 3.2.3, `PAGED` is 3.3.x. ``kv_blocks``: the KV cache in blocks, which 3.3.x
    measures; None takes the most it can use. ``vision``: a model with images (``mllama`` among them
    warms up like text in 3.3.x). Raises LaunchError for an algorithm or a setting that has no model
    here.
    """
    if algorithm == POWERS:
        return _powers(limits, env, vision=vision, mllama=mllama)
    if algorithm != PAGED:
        raise LaunchError("warmup_engine.tgi_version", ExitCode.USAGE, version=algorithm)
    if env.get("VLLM_EXPONENTIAL_BUCKETING", "true").lower() != "true":
        raise LaunchError("warmup_engine.tgi_linear", ExitCode.USAGE, version=algorithm)
    return _paged(limits, env, kv_blocks, prompts=not vision or mllama)


def most_blocks(limits: TgiLimits) -> int:
    """Return the KV blocks that a full batch can use in 3.3.x."""
    return max(BLOCK, limits.batch_size * _aligned_total(limits) // BLOCK)


def _aligned_total(limits: TgiLimits) -> int:
    return math.ceil(limits.total_tokens / BLOCK) * BLOCK + math.ceil(
        BLOCK * BLOCK / limits.batch_size
    )


@dataclass(frozen=True)
class _Ladders:
    """The four dimensions of 3.3.x."""

    prompt_bs: list[int]
    prompt_seq: list[int]
    decode_bs: list[int]
    blocks: list[int]


def _ladders(limits: TgiLimits, env: Mapping[str, str], kv_blocks: int | None) -> _Ladders:
    most = cache = most_blocks(limits)
    if kv_blocks is not None:
        cache = min(most, kv_blocks)
    exact = env.get("VLLM_CONTIGUOUS_PA", "true").lower() == "true"

    def ladder(name: str, low: int, high: int, counted: int) -> list[int]:
        text = env.get(f"VLLM_{name}_BUCKET_LIMIT")
        if text is None:
            return _spaced(low, high, log2_ceiling(counted) + 1, last_exact=exact)
        return _spaced(low, high, int(text), last_exact=exact)

    batch, tokens = limits.batch_size, limits.input_tokens
    return _Ladders(
        prompt_bs=ladder("PROMPT_BS", 1, batch, batch),
        prompt_seq=ladder("PROMPT_SEQ", BLOCK, tokens, tokens),
        decode_bs=ladder("DECODE_BS", 1, batch, batch),
        blocks=ladder("DECODE_BLOCK", BLOCK, cache, most),
    )


def _paged(
    limits: TgiLimits, env: Mapping[str, str], kv_blocks: int | None, *, prompts: bool
) -> TgiShapes:
    ladders = _ladders(limits, env, kv_blocks)
    prefill: list[list[int]] = []
    if prompts:
        fits = min(limits.prefill_tokens, limits.batch_size * _aligned_total(limits))
        if limits.model_tokens is None:
            longest = limits.input_tokens
        else:
            longest = limits.model_tokens
        prefill = [
            [b, s]
            for b in ladders.prompt_bs
            for s in ladders.prompt_seq
            if b * s <= fits and s <= longest
        ]
        prefill.sort(key=lambda shape: (shape[0] * shape[1], shape[1], shape[0]))
    decode = [[b, k] for b in reversed(ladders.decode_bs) for k in ladders.blocks if b <= k]
    return TgiShapes(prefill, decode, RUNS_PER_SHAPE)


def _spaced(low: int, high: int, number: int, *, last_exact: bool) -> list[int]:
    """Return `ladders.spaced` with step ``low`` and values cut to ``high``.

    ``high`` is also a free value.
    """
    if number == 1:
        return [high]
    free = {*range(low, high + 1, low), high}
    values: set[int] = set()
    for i in range(number):
        exact = low * (high / low) ** ((1.0 / float(number - 1)) * i)
        if i == number - 1 and last_exact:
            value = high
        else:
            value = min(math.ceil(exact / low) * low, high)
        if value in values:
            left = free - values
            if not left:
                break
            value = min(left, key=lambda candidate: abs(candidate - exact))
        values.add(value)
    return sorted(values)


# tokens to which 3.2.3 pads a prompt, by whether the model reads images
_PADS = {True: 128, False: 256}


def _powers(limits: TgiLimits, env: Mapping[str, str], *, vision: bool, mllama: bool) -> TgiShapes:
    """Return the shapes of 3.2.3.

    Batches are powers of BATCH_SIZE_EXPONENT_BASE, prompts are multiples of
    PAD_SEQUENCE_TO_MULTIPLE_OF.
    """
    base = int(env.get("BATCH_SIZE_EXPONENT_BASE", 2))
    pad = int(env.get("PAD_SEQUENCE_TO_MULTIPLE_OF", _PADS[vision]))
    largest = min(math.ceil(limits.prefill_tokens / limits.input_tokens), limits.batch_size)
    if vision:
        values = [1]
        while values[-1] < largest:
            values.append(min(values[-1] * 2, largest))
        prefill_bs = values
        image = int(env.get("BASE_IMAGE_TOKENS", 2048))
        if mllama:
            image = pad
        lengths, length, step = [], image, pad
        while length < limits.input_tokens:
            lengths.append(length)
            length += step
            step *= 2
        decode_bs = list(prefill_bs)
        while decode_bs[-1] < limits.batch_size:
            decode_bs.append(min(decode_bs[-1] * 2, limits.batch_size))
    else:
        prefill_bs = _powers_to(base, largest)
        lengths = list(range(pad, limits.input_tokens, pad))
        decode_bs = _powers_to(base, limits.batch_size)
    lengths.append(limits.input_tokens)
    return TgiShapes([[b, s] for b in prefill_bs for s in lengths], [[b] for b in decode_bs], 1)


def _powers_to(base: int, most: int) -> list[int]:
    return [base**i for i in range(math.ceil(math.log(most, base)) + 1)]
