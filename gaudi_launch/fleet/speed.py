"""Step times of a model that nobody has measured, from the two assumed sets of the warm-up planner.

The nearer set (`warmup.cost.step_time_for`) belongs to a known model on known cards: Llama-3.1-8B on one Gaudi2, or
QwQ-32B on eight. Its constants are scaled by what bounds each of them: arithmetic (a token's weights, the peak of
the data type), attention (layers x heads), KV reads (bytes of a block, memory bandwidth) and, in decode, reading
the weights once a step. **Assumed**, all of it: no card measured either set, and the links between nodes are not
in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gaudi_launch.host.accelerators import Accelerator, accelerators
from gaudi_launch.messages import Message, message
from gaudi_launch.models import sizing
from gaudi_launch.models.records import Model
from gaudi_launch.warmup.cost import EIGHT_CARDS_32B, ONE_CARD_8B, StepTime, step_time_for

# what the two sets were made for; sizes as in profiles/models/llama-3.1-8b.yaml and qwq-32b.yaml
_ANCHORS: dict[StepTime, tuple[Model, int]] = {
    ONE_CARD_8B: (
        Model("m", "m", parameters=8_030_261_248, layers=32, heads=32, kv_heads=8, head_dim=128, moe=False), 1
    ),
    EIGHT_CARDS_32B: (
        Model("m", "m", parameters=32_763_876_352, layers=64, heads=40, kv_heads=8, head_dim=128, moe=False), 8
    ),
}  # fmt: skip
_ANCHOR_CARD = "gaudi2"


@dataclass(frozen=True)
class Speed:
    """Step times with what had to be assumed for them."""

    cost: StepTime
    notes: Sequence[Message] = ()


@dataclass(frozen=True)
class _Needs:
    """What one step costs one card: operations a token, attention width, bytes of a KV block and of the weights."""

    token: float
    width: float
    block: float
    weights: float


def step_time(model: Model, cards: int, dtype: str, accelerator: Accelerator, kv_dtype: str = "auto") -> Speed:
    """Milliseconds of a step of ``model`` in ``dtype`` over ``cards`` of one product."""
    base = step_time_for(model.parameters, cards)
    anchor, anchor_cards = _ANCHORS[base]
    notes: list[Message] = []
    old = _needs(anchor, anchor_cards, "bfloat16", "auto")
    new = _needs(model, cards, dtype, kv_dtype)
    reference = accelerators()[_ANCHOR_CARD]
    if accelerator.bandwidth_gb_s is None or accelerator.peak_tflops_bf16 is None:
        notes.append(message("capacity.assume_card", card=accelerator.id, other=_nearest(accelerator).id))
    peak = _peak(reference, "bfloat16") / _peak(accelerator, dtype)
    bandwidth = _bandwidth(reference) / _bandwidth(accelerator)
    # milliseconds to read the weights once: bytes / (GB/s * 1e6)
    read_then = old.weights / _bandwidth(reference) / 1e6
    read_now = new.weights / _bandwidth(accelerator) / 1e6
    arithmetic = new.token / old.token * peak
    cost = replace(
        base,
        # no step is quicker than one reading of the weights, which in a mixture are all the experts
        prefill_fixed=max(base.prefill_fixed, read_now),
        prefill_token=base.prefill_token * arithmetic,
        prefill_attention=base.prefill_attention * new.width / old.width * peak,
        decode_fixed=base.decode_fixed - read_then + read_now,
        decode_sequence=base.decode_sequence * arithmetic,
        decode_block=base.decode_block * new.block / old.block * bandwidth,
    )
    return Speed(cost, tuple(notes))


def active_parameters(model: Model) -> float:
    """Weights that one token passes: all of a dense model; of a mixture its attention, its experts and the head.

    >>> round(active_parameters(Model("m", "m", parameters=46_702_792_704, moe=True, layers=32, hidden_size=4096,
    ...     intermediate_size=28672, heads=32, kv_heads=8, head_dim=128, vocab_size=32000)) / 1e9, 1)
    12.7
    """
    total = float(model.parameters or _ANCHORS[ONE_CARD_8B][0].parameters or 1)
    if not model.moe or not (model.layers and model.hidden_size and model.intermediate_size):
        return total
    hidden = model.hidden_size
    heads, kv, size = model.heads or 0, model.kv_heads or 0, model.head_dim or 0
    attention = 2 * hidden * size * (heads + (0 if model.mla_rank else kv)) + hidden * (model.mla_rank or 0)
    layer = attention + 3 * hidden * model.intermediate_size
    return min(total, float(model.layers * layer + hidden * (model.vocab_size or 0)))


def _needs(model: Model, cards: int, dtype: str, kv_dtype: str) -> _Needs:
    anchor = _ANCHORS[ONE_CARD_8B][0]
    width = (model.layers or 0) * (model.heads or 0) * (model.head_dim or 0)
    assert anchor.layers and anchor.heads and anchor.head_dim
    return _Needs(
        token=active_parameters(model) / cards,
        width=(width or anchor.layers * anchor.heads * anchor.head_dim) / cards,
        block=float(sizing.block_bytes(model, cards, sizing.KV_BYTES.get(kv_dtype, 2)) or 0),
        # a batch of decoding sequences touches every expert
        weights=sizing.weight_bytes_per_card(model, cards, dtype) or 0.0,
    )


def _nearest(accelerator: Accelerator) -> Accelerator:
    """The product of the same generation whose figures are public."""
    known = accelerators()
    return known.get(accelerator.id[: len("gaudi2")], known[_ANCHOR_CARD])


def _bandwidth(accelerator: Accelerator) -> float:
    return accelerator.bandwidth_gb_s or _nearest(accelerator).bandwidth_gb_s or 1.0


def _peak(accelerator: Accelerator, dtype: str) -> float:
    known = accelerator if accelerator.peak_tflops_bf16 else _nearest(accelerator)
    if dtype == "fp8" and known.peak_tflops_fp8:
        return known.peak_tflops_fp8
    return known.peak_tflops_bf16 or 1.0
