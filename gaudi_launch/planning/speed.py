"""The speed of a plan, from its model, weights, cards and engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gaudi_launch.host.accelerators import Accelerator, accelerator_of, accelerators
from gaudi_launch.models.sizing import BLOCK, KV_BYTES, WEIGHT_BYTES
from gaudi_launch.performance.balance import TYPICAL_INPUT, TYPICAL_OUTPUT
from gaudi_launch.planning.precision import runs_fp8, weight_type

if TYPE_CHECKING:
    from gaudi_launch.performance.prediction import Load, Prediction
    from gaudi_launch.performance.shape import Shape
    from gaudi_launch.performance.step_model import Setup
    from gaudi_launch.performance.step_time import StepTime
    from gaudi_launch.planning.engine import Context, Engine
    from gaudi_launch.planning.plan import Setting

# where no card is known
_ASSUMED_CARD = "gaudi2"


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
    kv_dtype = "auto"
    if dtype == "fp8" and request.quant_file is not None:
        kv_dtype = request.quant_file.kv_dtype or "auto"
    cards = len(context.placement.modules) or 1
    return step_time(model, cards, dtype, product, kv_dtype, engine.innermost.scheduling).cost


def setup_in(context: Context, engine: Engine, settings: Sequence[Setting]) -> PlannedSetup | None:
    """Return the setup of ``context`` on ``engine`` with these settings.

    Return None for an engine without cards, one that contains another, models that generate no
    text, products without published figures, and where sizes are not known.
    """
    from gaudi_launch.performance.prediction import reads_chosen_experts
    from gaudi_launch.performance.scaling import generation_of, hosts_of
    from gaudi_launch.performance.shape import shape_of
    from gaudi_launch.performance.step_model import Setup
    from gaudi_launch.planning.memory import division, type_on_card

    request, model = context.request, context.model
    product, shape = accelerator_of(context.host), shape_of(model)
    cards = len(context.placement.modules)
    if engine.inner is not None or shape is None or product is None or not cards:
        return None
    dtype = type_on_card(model, settings, engine, request.args, fp8=runs_fp8(request, model))
    if not engine.generates(model, request.args) or dtype not in WEIGHT_BYTES:
        return None
    if not product.id.startswith(("gaudi2", "gaudi3")):
        return None
    asked, _ = division(model, context.limits, settings, engine, request.args)
    kv_dtype = asked.kv_dtype
    if kv_dtype == "auto" and dtype == "fp8" and request.quant_file is not None:
        kv_dtype = request.quant_file.kv_dtype or "auto"
    mixed = engine.scheduling == "v1"
    setup = Setup(
        generation=generation_of(product),
        cards=cards,
        math="fp8" if dtype == "fp8" else "bf16",
        weight_bytes=WEIGHT_BYTES[dtype],
        kv_bytes=float(KV_BYTES.get(kv_dtype, 2)),
        engine=engine.scheduling,
        fused=reads_chosen_experts(model.model_type or model.name, True, None),
        step_tokens=context.limits.max_num_batched_tokens if mixed else 0,
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
    room = 0
    if blocks is not None:
        room = max(1, blocks // -(-(prompt + answer) // BLOCK))
    most = limits.max_num_seqs
    return Load("concurrency", prompt, answer, most, room=room if room < most else 0)


def speed_of(made: PlannedSetup, load: Load, *, measured: bool = True) -> Prediction:
    """Return the prediction, with the constants that were learned on this host."""
    from gaudi_launch.performance.prediction import knowledge_of, predict

    return predict(
        made.setup, made.shape, load, knowledge_of(made.setup.generation), measured=measured
    )
