"""The speed of a plan, from its model, weights, cards and engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from gaudi_launch.core.host.accelerators import accelerator_of, accelerators
from gaudi_launch.core.models.sizing import WEIGHT_BYTES
from gaudi_launch.core.planning.effects import speculative_options, unmodelled
from gaudi_launch.core.planning.engine import Context, Engine
from gaudi_launch.core.planning.memory import division, type_on_card
from gaudi_launch.core.planning.parse_ranges import Ranges
from gaudi_launch.core.planning.plan import Setting
from gaudi_launch.core.planning.precision import runs_fp8, weight_type
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.predict.balance import TYPICAL_INPUT, TYPICAL_OUTPUT
from gaudi_launch.core.predict.limits import EngineLimits, as_limits
from gaudi_launch.core.predict.load import Load, from_ranges
from gaudi_launch.core.predict.scaling import step_time
from gaudi_launch.core.predict.shape import shape_of
from gaudi_launch.core.predict.simulate import ServedSetup
from gaudi_launch.core.predict.step_time import StepTime

NO_RANGES = Ranges()
# where no card is known
_ASSUMED_CARD = "gaudi2"


def step_time_in(context: Context, engine: Engine) -> StepTime:
    """Return the step times of ``context`` on ``engine``."""
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


def setup_in(
    context: Context, engine: Engine, settings: Sequence[Setting], blocks: int | None
) -> ServedSetup | None:
    """Return the setup of these settings and KV blocks.

    Return None for an engine without cards, one that contains another, models that generate no
    text, products without published figures, and where sizes, or what an option changes, are not
    known.
    """
    request, model = context.request, context.model
    product, cards = accelerator_of(context.host), context.placement.tensor
    if engine.inner is not None or shape_of(model) is None or product is None or not cards:
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
    speed = step_time(model, cards, dtype, product, kv_dtype, engine.scheduling)
    return ServedSetup(scheduled_in(context, engine, settings, blocks), speed, dtype)


def static_in(context: Context, engine: Engine) -> ServedSetup | None:
    """Return the setup of ``context`` without a server.

    None where `setup_in` has none. The cache of fp8 weights is in fp8, too, as in the published
    batches.
    """
    found = setup_in(context, engine, (), None)
    product = accelerator_of(context.host)
    if found is None or product is None:
        return None
    kv_dtype = "fp8_inc" if found.dtype == "fp8" else "auto"
    cards = context.placement.tensor
    speed = step_time(context.model, cards, found.dtype, product, kv_dtype, "static")
    return replace(found, speed=speed)


def scheduled_in(
    context: Context, engine: Engine, settings: Sequence[Setting], blocks: int | None
) -> EngineLimits:
    """Return what the engine schedules within, with these settings and KV blocks."""
    question = engine.question(settings, context, blocks) if settings else None
    if question is not None:
        # the cache itself, not what the buckets must cover
        cache = blocks or question.limits.num_blocks
        return replace(question.limits, num_blocks=cache, cache_blocks=None)
    mixed = engine.scheduling == "v1"
    limits = asdict(context.limits)
    if not mixed:
        # an engine without chunked prefill reads a prompt in one step
        budget = max(limits["max_num_batched_tokens"], limits["max_model_len"])
        limits["max_num_batched_tokens"] = budget
    return as_limits({**limits, "num_blocks": blocks, "mixed_steps": mixed})


def load_in(context: Context, lengths: Ranges = NO_RANGES) -> Load:
    """Return the load of a plan: as many clients as it serves at once.

    Their lengths are within the ranges of the request, else within ``lengths``, else typical.
    """
    request, limits = context.request, context.limits
    # TGI refuses prompts above its longest
    typical = min(TYPICAL_INPUT, limits.input_max)
    inputs, outputs = lengths.input or (typical, typical), lengths.output
    if request.input_range is not None:
        inputs = (limits.input_min, limits.input_max)
    if request.output_range is not None:
        outputs = (limits.output_min, limits.output_max)
    return within(inputs, outputs, limits.max_model_len).of_clients(limits.max_num_seqs)


def within(inputs: tuple[int, int] | None, outputs: tuple[int, int] | None, length: int) -> Load:
    """Return requests within these ranges that fit ``length`` tokens.

    None: a typical length.
    """
    given_inputs = inputs or (TYPICAL_INPUT, TYPICAL_INPUT)
    given_outputs = outputs or (TYPICAL_OUTPUT, TYPICAL_OUTPUT)
    most_output = max(1, min(given_outputs[1], length - 1))
    most_input = max(1, min(given_inputs[1], length - most_output))
    return from_ranges(
        (min(given_inputs[0], most_input), most_input),
        (min(given_outputs[0], most_output), most_output),
    )
