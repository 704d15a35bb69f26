"""Warnings about a request that can run but is probably not what was meant.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.server_address import is_loopback
from gaudi_launch.core.models.sizing import BLOCK
from gaudi_launch.core.planning.effects import unmodelled
from gaudi_launch.core.planning.engine import Context, Limits
from gaudi_launch.core.planning.memory import MemoryPlan
from gaudi_launch.core.planning.plan import Command, Setting
from gaudi_launch.core.planning.request import Request

_LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def advice(context: Context, settings: Sequence[Setting], memory: MemoryPlan) -> list[Message]:
    """Return the warnings of this request.

    They concern lengths, key-value heads, blocks, and memory that was not checked.
    """
    found = [*_lengths(context, settings), *_heads(context)]
    size = context.request.args.last("--block-size") or ""
    in_bf16 = context.request.dtype in (None, "bfloat16") and not context.model.quantization
    if in_bf16 and size.isdecimal() and int(size) < BLOCK:
        # HabanaAI/vllm-fork@95af7009:README_GAUDI.md, "Performance Tips"
        found.append(message("plan.small_blocks", size=size, usual=BLOCK))
    # without a model (a question about buckets alone) there is nothing to weigh
    weighs = context.placement.modules and context.model.name
    if memory.fits is None and weighs and not unmodelled(context.request, context.model):
        id = "plan.memory_unchecked" if context.host.cards else "plan.memory_no_card"
        found.append(message(id, model=context.model.name))
    return found


def _lengths(context: Context, settings: Sequence[Setting]) -> list[Message]:
    request, limits, longest = (
        context.request,
        context.limits,
        context.model.max_position_embeddings,
    )
    found = []
    if request.output_range:
        # the guide's rule: -l is larger than the sum of input and output
        _, inputs = request.input_range or (1, 1)
        total = inputs + request.output_range[1]
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


def hot_within(request: Request, limits: Limits) -> tuple[Request, list[Message]]:
    """Return the request with its hot range (-r) within the limits, and a warning.

    The start script takes the range as it is, and compiles nothing outside of it
    (HabanaAI/vllm-fork@277a33cd9:scripts/start_gaudi_vllm_server.sh).
    """
    if request.reduce is None:
        return request, []
    batch, length = request.reduce
    most, longest = limits.max_num_seqs, limits.max_model_len
    within = (min(batch, most), min(length, longest))
    values = {"batch": batch, "length": length, "seqs": most, "longest": longest}
    found = []
    if within != request.reduce:
        shown = ",".join(map(str, within))
        found.append(message("plan.reduce_beyond", within=shown, **values))
    if request.tuning == "reference":
        if within != (most, longest):
            found.append(message("plan.reduce_uncovered", **values))
        return request, found
    return replace(request, reduce=within), found


def _heads(context: Context) -> list[Message]:
    """Return the warning for fewer key-value heads than cards.

    They are stored several times (vllm/model_executor/layers/linear.py).
    """
    model, cards = context.model, context.placement.tensor
    if not model.kv_heads or model.mla_rank or cards <= model.kv_heads:
        return []
    return [
        message(
            "plan.kv_replicated", heads=model.kv_heads, cards=cards, times=cards // model.kv_heads
        )
    ]


_KEY = "VLLM_API_KEY"


def listening_address(command: Command) -> str:
    """Return the address that the engine, or its container, listens on ("" for all).

    An engine without ``--host`` is assumed to listen on this machine only.
    """
    container = command.container
    if container is not None and container.ports:
        return container.address
    found = command.args().last("--host")
    if found is None:
        return "127.0.0.1"
    return found


def open_warning(command: Command, environment: Mapping[str, str]) -> Message | None:
    """Return the warning for an address that is open without a key, or None.

    vLLM and our Ray applications read VLLM_API_KEY
    (HabanaAI/vllm-fork@17a7946f4:vllm/entrypoints/openai/api_server.py, ``authentication``). The
    engine that runs in a separate container, TGI, gets no key: its launcher writes all options into
    its log.
    """
    address = listening_address(command)
    if is_loopback(address):
        return None
    shown = address or "0.0.0.0"
    if command.container is not None:
        return message("plan.open_keyless", address=shown)
    if environment.get(_KEY):
        return None
    return message("plan.open_address", address=shown)
