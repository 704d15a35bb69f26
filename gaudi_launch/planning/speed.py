"""The speed of a plan, from its model, weights, cards and engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from gaudi_launch.host.accelerators import Accelerator, accelerator_of, accelerators
from gaudi_launch.models.sizing import KV_BYTES, WEIGHT_BYTES
from gaudi_launch.performance.balance import TYPICAL_INPUT, TYPICAL_OUTPUT
from gaudi_launch.planning.effects import speculative_options, unmodelled
from gaudi_launch.planning.precision import runs_fp8, weight_type

if TYPE_CHECKING:
    from gaudi_launch.performance.prediction import Load, Prediction
    from gaudi_launch.performance.shape import Shape
    from gaudi_launch.performance.step_model import Setup
    from gaudi_launch.performance.step_time import StepTime
    from gaudi_launch.planning.engine import Context, Engine
    from gaudi_launch.planning.plan import Setting
    from gaudi_launch.planning.request import Request

# where no card is known
_ASSUMED_CARD = "gaudi2"
# the arithmetic for a type of weights; bf16 for every other type
_MATH: Mapping[str, Literal["fp8"]] = {"fp8": "fp8"}


@dataclass(frozen=True)
class PlannedSetup:
    """A model on cards as a plan runs it; ``dtype``: its weights on the card."""

    setup: Setup
    shape: Shape
    accelerator: Accelerator
    dtype: str


def step_time_in(context: Context, engine: Engine) -> StepTime:
    """Return the step times of ``context`` on ``engine``."""
    from gaudi_launch.performance.scaling import step_time

    request, model = context.request, context.model
    product = accelerator_of(context.host) or accelerators()[_ASSUMED_CARD]
    dtype = weight_type(request, model)
    kv_dtype = _measured_kv_dtype(request, dtype)
    cards = context.placement.tensor or 1
    return step_time(model, cards, dtype, product, kv_dtype, engine.innermost.scheduling).cost


def _measured_kv_dtype(request: Request, dtype: str) -> str:
    """Return the KV cache type by the file of fp8 weights, else ``auto``."""
    if dtype != "fp8" or request.quant_file is None:
        return "auto"
    return request.quant_file.kv_dtype or "auto"


def setup_in(context: Context, engine: Engine, settings: Sequence[Setting]) -> PlannedSetup | None:
    """Return the setup of ``context`` on ``engine`` with these settings.

    Return None for an engine without cards, one that contains another, models that generate no
    text, products without published figures, and where sizes, or what an option changes, are not
    known.
    """
    from gaudi_launch.performance.experts import chosen_experts
    from gaudi_launch.performance.scaling import generation_of, hosts_of
    from gaudi_launch.performance.shape import shape_of
    from gaudi_launch.performance.step_model import Setup
    from gaudi_launch.planning.memory import division, type_on_card

    request, model = context.request, context.model
    product, shape = accelerator_of(context.host), shape_of(model)
    cards = context.placement.tensor
    if engine.inner is not None or shape is None or product is None or not cards:
        return None
    # no published figure is of stages or copies
    if context.placement.parts > 1:
        return None
    # how many drafted tokens are accepted is not known
    unknown = (*unmodelled(request, model), *engine.unmodelled(request))
    if unknown or speculative_options(request.args):
        return None
    dtype = type_on_card(model, settings, engine, request.args, fp8=runs_fp8(request, model))
    if not engine.generates(model, request.args) or dtype not in WEIGHT_BYTES:
        return None
    if not product.id.startswith(("gaudi2", "gaudi3")):
        return None
    asked, _ = division(model, context.limits, settings, engine, request.args)
    kv_dtype = asked.kv_dtype
    if kv_dtype == "auto":
        kv_dtype = _measured_kv_dtype(request, dtype)
    step_tokens = 0
    if engine.scheduling == "v1":
        step_tokens = context.limits.max_num_batched_tokens
    fused, gather = chosen_experts(model.model_type or model.name, engine.scheduling)
    setup = Setup(
        generation=generation_of(product),
        cards=cards,
        math=_MATH.get(dtype, "bf16"),
        weight_bytes=WEIGHT_BYTES[dtype],
        kv_bytes=float(KV_BYTES.get(kv_dtype, 2)),
        engine=engine.scheduling,
        fused=fused,
        gather=gather,
        step_tokens=step_tokens,
        hosts=hosts_of(cards, product),
    )
    return PlannedSetup(setup, shape, product, dtype)


def load_in(context: Context, blocks: int | None) -> Load:
    """Return the load of a plan: as many clients as it serves at once.

    Lengths are the middle of the given ranges, else typical ones. ``blocks`` of the KV cache: those
    for which it has no room wait.
    """
    from gaudi_launch.performance.prediction import Load

    request, limits = context.request, context.limits
    prompt, answer = TYPICAL_INPUT, TYPICAL_OUTPUT
    if request.input_range is not None:
        prompt = (limits.input_min + limits.input_max) // 2
    if request.output_range is not None:
        answer = (limits.output_min + limits.output_max) // 2
    answer = max(2, min(answer, limits.max_model_len - 1))
    prompt = max(1, min(prompt, limits.max_model_len - answer))
    most = limits.max_num_seqs
    load = Load("concurrency", prompt, answer, most)
    if blocks is None:
        return load
    room = max(1, blocks // -(-(prompt + answer) // limits.block_size))
    if room >= most:
        return load
    return replace(load, room=room)


def speed_of(made: PlannedSetup, load: Load) -> Prediction:
    """Return the prediction, with the constants that were learned on this host."""
    from gaudi_launch.performance.prediction import knowledge_of, predict

    return predict(made.setup, made.shape, load, knowledge_of(made.setup.generation))
