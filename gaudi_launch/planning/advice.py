"""Warnings about a request that can run but is probably not what was meant.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from gaudi_launch.messages import Message, message
from gaudi_launch.planning.engine import Context
from gaudi_launch.planning.memory import MemoryPlan
from gaudi_launch.planning.plan import Setting

_LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def advice(context: Context, settings: Sequence[Setting], memory: MemoryPlan) -> list[Message]:
    """Return the warnings of this request.

    They concern lengths, the hot part, key-value heads, and memory that was not checked.
    """
    found = [*_lengths(context, settings), *_hot(context), *_heads(context)]
    # without a model (a question about buckets alone) there is nothing to weigh
    if memory.fits is None and context.placement.modules and context.model.name:
        found.append(message("plan.memory_unchecked", model=context.model.name))
    return found


def _lengths(context: Context, settings: Sequence[Setting]) -> list[Message]:
    request, limits, longest = (
        context.request,
        context.limits,
        context.model.max_position_embeddings,
    )
    found = []
    if request.input_range and request.output_range:
        # the guide's rule: -l is larger than the sum of input and output
        total = request.input_range[1] + request.output_range[1]
        if total > limits.max_model_len:
            found.append(message("plan.length_rule", total=total, length=limits.max_model_len))
    allowed = request.environment.get(_LONGER) or next(
        (s.value for s in settings if s.name == _LONGER), None
    )
    over = longest is not None and limits.max_model_len > longest
    if request.tuning == "reference" and over and allowed not in ("1", "true"):
        found.append(
            message("plan.reference_too_long", found=limits.max_model_len, longest=longest)
        )
    return found


def _hot(context: Context) -> list[Message]:
    """Return the warning for a hot part beyond the limits."""
    reduce, limits = context.request.reduce, context.limits
    if reduce is None:
        return []
    batch, length = reduce
    if batch <= limits.max_num_seqs and length <= limits.max_model_len:
        return []
    return [
        message(
            "plan.reduce_beyond",
            batch=batch,
            length=length,
            seqs=limits.max_num_seqs,
            longest=limits.max_model_len,
        )
    ]


def _heads(context: Context) -> list[Message]:
    """Return the warning for fewer key-value heads than cards.

    They are stored several times (vllm/model_executor/layers/linear.py).
    """
    model, cards = context.model, len(context.placement.modules)
    if not model.kv_heads or model.mla_rank or cards <= model.kv_heads:
        return []
    return [
        message(
            "plan.kv_replicated", heads=model.kv_heads, cards=cards, times=cards // model.kv_heads
        )
    ]
