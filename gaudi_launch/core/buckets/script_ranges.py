"""The bucket ranges that public start scripts compute from a deployment's limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gaudi_launch.core.predict.limits import EngineLimits

Ranges = dict[str, tuple[int, int, int]]
"""(min, step, max) by dimension: PROMPT_BS, PROMPT_SEQ, DECODE_BS, DECODE_BLOCK."""
RangesOf = Callable[[EngineLimits], Ranges]


def from_requests(limits: EngineLimits) -> Ranges:
    """Return ranges around the lengths that requests have.

    Source: HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh (set_bucketing).
    """
    block, seqs = limits.block_size, limits.max_num_seqs
    step = min(-(-seqs // 16), 16)
    rows = _up(seqs, step)
    fewest_blocks = -(-limits.input_min // block)
    most_blocks = -(-(limits.input_max + limits.output_max) // block) + 1
    return {
        "PROMPT_BS": (1, 1, max(1, min(limits.max_num_batched_tokens // limits.input_min, seqs))),
        "PROMPT_SEQ": (_up(limits.input_min, block), block, _up(limits.input_max, block) + block),
        "DECODE_BS": (1, step, rows),
        "DECODE_BLOCK": (_up(fewest_blocks, block), block, _up(most_blocks * rows, block)),
    }


def to_model_length(batch_step: int) -> RangesOf:
    """Return the rule for ranges up to the model's length.

    Decode batches grow by ``batch_step``. Sources: HabanaAI/vllm-fork@aice/v1.22.0:scripts/utils.sh
    (set_bucketing), HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/start_vllm.sh.
    """
    return partial(_to_model_length, batch_step)


def _to_model_length(batch_step: int, limits: EngineLimits) -> Ranges:
    block = limits.block_size
    rows = _up(limits.max_num_seqs, batch_step)
    return {
        "PROMPT_BS": (1, 1, limits.max_num_prefill_seqs),
        "PROMPT_SEQ": (block, block, limits.max_model_len),
        "DECODE_BS": (1, batch_step, rows),
        "DECODE_BLOCK": (block, block, _up(limits.blocks_per_sequence * rows, block)),
    }


def reduced(ranges: Ranges, limits: EngineLimits, reduce: tuple[int, int]) -> Ranges:
    """Return these ranges up to a batch and a length, as the scripts' -r does.

    Source: HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh (set_partial_warmup).
    """
    batch, length = reduce
    block = limits.block_size
    most_blocks = _up(-(-(length + limits.output_max) * batch // block), block)
    tops = {"PROMPT_SEQ": length, "DECODE_BS": batch, "DECODE_BLOCK": most_blocks}
    return {name: (low, step, tops.get(name, high)) for name, (low, step, high) in ranges.items()}


def variables(ranges: Mapping[str, tuple[float, ...]]) -> dict[str, str]:
    """Return ``{"PROMPT_BS": (min, step, max[, limit])}`` as environment variables."""
    words = ("MIN", "STEP", "MAX", "LIMIT")
    return {
        f"VLLM_{name}_BUCKET_{word}": f"{value:g}" if isinstance(value, float) else str(value)
        for name, values in ranges.items()
        for word, value in zip(words, values, strict=False)
    }


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
