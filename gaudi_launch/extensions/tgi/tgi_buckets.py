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
from typing import Literal

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.ladders import log2_ceiling
from gaudi_launch.extensions.tgi.tokens import Tokens

BLOCK = 128
Images = Literal["", "prompt", "mllama"]
POWERS = "powers"
"""Rows of the longest length, batches in powers: 3.2.3."""
PAGED = "paged"
"""A paged cache with vLLM's exponential buckets: 3.3.x."""
RUNS_PER_SHAPE = 3
"""3.3.x runs each warmed shape three times (flash_causal_lm.py ``warmup_hpu_graph``)."""


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
    tokens: Tokens,
    env: Mapping[str, str],
    *,
    kv_blocks: int | None = None,
    longest: int | None = None,
    images: Images = "",
) -> TgiShapes:
    """Return the warm-up of an image by its algorithm: `POWERS` or `PAGED`.

    `POWERS` is 3.2.3, `PAGED` is 3.3.x. ``kv_blocks``: the KV cache in blocks, which 3.3.x
    measures; None takes the most it can use. ``longest``: the smaller of the tokenizer's and the
    model's length. ``images``: "" for a model without, "prompt" where they are tokens of it,
    "mllama" for its kind, which 3.3.x warms up like text. Raises LaunchError for an algorithm or a
    setting that has no model here.
    """
    if algorithm == POWERS:
        return _powers(tokens, env, images)
    if algorithm != PAGED:
        raise LaunchError("warmup_engine.tgi_version", ExitCode.USAGE, version=algorithm)
    if env.get("VLLM_EXPONENTIAL_BUCKETING", "true").lower() != "true":
        raise LaunchError("warmup_engine.tgi_linear", ExitCode.USAGE, version=algorithm)
    if images == "prompt":
        # its prompts are not warmed up
        longest = 0
    return _paged(tokens, env, kv_blocks, longest)


def most_blocks(tokens: Tokens) -> int:
    """Return the KV blocks that a full batch can use in 3.3.x."""
    return max(BLOCK, tokens.batch * _aligned_total(tokens) // BLOCK)


def _aligned_total(tokens: Tokens) -> int:
    return math.ceil(tokens.total / BLOCK) * BLOCK + math.ceil(BLOCK * BLOCK / tokens.batch)


def _paged(
    tokens: Tokens, env: Mapping[str, str], kv_blocks: int | None, longest: int | None
) -> TgiShapes:
    """Return the shapes of 3.3.x; no prompt is longer than ``longest``."""
    most = cache = most_blocks(tokens)
    if kv_blocks is not None:
        cache = min(most, kv_blocks)
    exact = env.get("VLLM_CONTIGUOUS_PA", "true").lower() == "true"

    def ladder(name: str, low: int, high: int, counted: int) -> list[int]:
        text = env.get(f"VLLM_{name}_BUCKET_LIMIT")
        if text is None:
            return _spaced(low, high, log2_ceiling(counted) + 1, last_exact=exact)
        return _spaced(low, high, int(text), last_exact=exact)

    batch, most_input = tokens.batch, tokens.input
    lengths = ladder("PROMPT_SEQ", BLOCK, most_input, most_input)
    fits = min(tokens.prefill, batch * _aligned_total(tokens))
    top = most_input if longest is None else longest
    prefill = [
        [rows, length]
        for rows in ladder("PROMPT_BS", 1, batch, batch)
        for length in lengths
        if rows * length <= fits and length <= top
    ]
    prefill.sort(key=lambda shape: (shape[0] * shape[1], shape[1], shape[0]))
    blocks = ladder("DECODE_BLOCK", BLOCK, cache, most)
    decode = [
        [rows, count]
        for rows in reversed(ladder("DECODE_BS", 1, batch, batch))
        for count in blocks
        if rows <= count
    ]
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


def _powers(tokens: Tokens, env: Mapping[str, str], images: Images) -> TgiShapes:
    """Return the shapes of 3.2.3.

    Batches are powers of BATCH_SIZE_EXPONENT_BASE, prompts are multiples of
    PAD_SEQUENCE_TO_MULTIPLE_OF.
    """
    base = int(env.get("BATCH_SIZE_EXPONENT_BASE", 2))
    pad = int(env.get("PAD_SEQUENCE_TO_MULTIPLE_OF", _PADS[bool(images)]))
    largest = min(math.ceil(tokens.prefill / tokens.input), tokens.batch)
    if images:
        values = [1]
        while values[-1] < largest:
            values.append(min(values[-1] * 2, largest))
        prefill_bs = values
        image = int(env.get("BASE_IMAGE_TOKENS", 2048))
        if images == "mllama":
            image = pad
        lengths, length, step = [], image, pad
        while length < tokens.input:
            lengths.append(length)
            length += step
            step *= 2
        decode_bs = list(prefill_bs)
        while decode_bs[-1] < tokens.batch:
            decode_bs.append(min(decode_bs[-1] * 2, tokens.batch))
    else:
        prefill_bs = _powers_to(base, largest)
        lengths = list(range(pad, tokens.input, pad))
        decode_bs = _powers_to(base, tokens.batch)
    lengths.append(tokens.input)
    return TgiShapes([[b, s] for b in prefill_bs for s in lengths], [[b] for b in decode_bs], 1)


def _powers_to(base: int, most: int) -> list[int]:
    return [base**i for i in range(math.ceil(math.log(most, base)) + 1)]
