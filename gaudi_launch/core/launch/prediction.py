"""Predict speed: of a launch by its plan, of a service by its record."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.engines import registry
from gaudi_launch.core.host.accelerators import Accelerator, accelerator_of, accelerators
from gaudi_launch.core.host.files import natural_number
from gaudi_launch.core.launch.machine import own_accelerator
from gaudi_launch.core.launch.prepared import Prepared
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import WEIGHT_BYTES
from gaudi_launch.core.planning.engine import Context, Engine
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.speed import load_in, setup_in
from gaudi_launch.core.predict.experts import chosen_experts
from gaudi_launch.core.predict.learned import read_learned
from gaudi_launch.core.predict.limits import EngineLimits, as_limits
from gaudi_launch.core.predict.load import Load
from gaudi_launch.core.predict.scaling import generation_of, speed_of
from gaudi_launch.core.predict.shape import Shape, shape_of
from gaudi_launch.core.predict.simulate import Outcome, ServedSetup, simulate
from gaudi_launch.core.predict.step_model import Setup

_log = logging.getLogger(__name__)
# the option of a recorded plan that names the tokens of a step
BATCHED_TOKENS = "--max-num-batched-tokens"

# of a service whose record does not state them
_LONGEST, _MOST = 1 << 20, 256
# the settings of vLLM, of its fork and plugin, and of TGI that limit a step
_SEQS = ("--max-num-seqs", "--max-batch-size")
_PROMPTS = ("VLLM_PROMPT_BS_BUCKET_MAX", "--max-num-prefill-seqs", "--max-batch-size")
_LENGTHS = ("--max-model-len", "--max-total-tokens")
_TOKENS = (BATCHED_TOKENS, "--max-batch-prefill-tokens")


@dataclass(frozen=True)
class SpeedEstimate:
    """Speed of a launch under a load.

    ``hardware`` is the product, or "cpu". ``engine`` is "" for a batch without a server, ``plan``
    None for a service and for a batch.
    """

    model: Model
    hardware: str
    dtype: str
    engine: str
    outcome: Outcome
    plan: Plan | None = None
    notes: tuple[Message, ...] = ()


def of_plan(prepared: Prepared, made: Plan) -> SpeedEstimate | None:
    """Return the prediction for a plan with as many clients as it serves.

    Lengths are those of its ranges, or typical ones. Return None for an engine without cards,
    one that contains another, or pooling models, and where sizes are unknown.
    """
    setup = setup_of(prepared, made)
    if setup is None:
        return None
    return outcome_of(prepared, made, setup, load_in(context_of(prepared, made)), ())


def setup_of(prepared: Prepared, made: Plan) -> ServedSetup | None:
    """Return what a plan serves with; None where its speed is not known."""
    return setup_in(context_of(prepared, made), prepared.engine, made.settings, made.num_blocks)


def context_of(prepared: Prepared, made: Plan) -> Context:
    """Return the context of a plan's rules."""
    engine, model, request = prepared.engine, prepared.model, prepared.request
    limits = engine.limits(request, prepared.host, model)
    return Context(request, prepared.host, model, made.placement, limits)


def outcome_of(
    prepared: Prepared,
    made: Plan | None,
    setup: ServedSetup,
    load: Load,
    notes: tuple[Message, ...],
) -> SpeedEstimate | None:
    """Return the speed under a load; ``made`` None for a batch without a server."""
    outcome = simulate(setup, load)
    product = accelerator_of(prepared.host)
    if outcome is None or product is None:
        return None
    label = prepared.engine.identity.label if made is not None else ""
    dtype = setup.dtype
    return SpeedEstimate(prepared.model, product.id, dtype, label, outcome, made, notes)


@dataclass(frozen=True)
class RecordedSetup:
    """The hardware and the model of a service, by its recorded plan."""

    model: Model
    shape: Shape
    accelerator: Accelerator | None
    setup: Setup
    dtype: str
    engine: str


def of_record(plan: Mapping[str, Any], load: Load) -> SpeedEstimate | None:
    """Return the prediction of ``load`` for a service, by its recorded plan.

    The record is that of ``plan --json``. Return None where it is incomplete, and for an engine
    without cards whose speed was not learned.
    """
    found = setup_of_record(plan)
    if found is None:
        return None
    learned = read_learned()
    measured = learned is not None and found.setup.generation in learned.generations
    if found.setup.generation == "cpu" and not measured:
        return None
    setup = ServedSetup(
        _recorded_limits(plan, found), speed_of(found.setup, found.shape), found.dtype
    )
    outcome = simulate(setup, load)
    if outcome is None:
        return None
    hardware = mapped(lambda one: one.id, found.accelerator) or "cpu"
    return SpeedEstimate(found.model, hardware, found.dtype, found.engine, outcome)


def _recorded_limits(plan: Mapping[str, Any], found: RecordedSetup) -> EngineLimits:
    """Return the limits of a service; those that its record lacks are wide."""
    values = _settings(plan)

    def number(names: tuple[str, ...], usual: int) -> int:
        stated = (values.get(name, "") for name in names)
        return next((int(text) for text in stated if text.isdecimal() and int(text)), usual)

    blocks = plan.get("num_blocks")
    length = number(_LENGTHS, found.model.max_position_embeddings or _LONGEST)
    return as_limits(
        {
            "max_num_seqs": number(_SEQS, _MOST),
            "max_model_len": length,
            "max_num_batched_tokens": number(_TOKENS, length),
            "max_num_prefill_seqs": number(_PROMPTS, 1),
            "num_blocks": blocks if isinstance(blocks, int) and blocks > 0 else None,
            "mixed_steps": found.setup.engine == "v1",
        }
    )


def setup_of_record(plan: Mapping[str, Any]) -> RecordedSetup | None:
    """Return the setup of a service of this machine.

    None where its record is incomplete.
    """
    known = _recorded_model(plan)
    if known is None:
        return None
    model, engine = known
    modules, dtype = plan.get("modules"), str(plan.get("dtype"))
    shape = shape_of(model)
    if shape is None or dtype not in WEIGHT_BYTES or engine.needs_cards != bool(modules):
        return None
    settings = _settings(plan)
    tokens = natural_number(settings.get(BATCHED_TOKENS, "")) or 0
    scheduling = engine.innermost.scheduling
    fused, gather = chosen_experts(model.model_type or model.name, scheduling)
    setup = Setup(
        generation="cpu",
        cards=len(modules or (0,)),
        math="fp8" if dtype == "fp8" else "bf16",
        weight_bytes=WEIGHT_BYTES[dtype],
        kv_bytes=_kv_bytes(dtype, settings, cards=engine.needs_cards),
        engine=scheduling,
        fused=fused,
        gather=gather,
        prompt_tokens=tokens,
    )
    product = None
    if engine.needs_cards:
        product = accelerators()[own_accelerator()]
        if not product.id.startswith(("gaudi2", "gaudi3")):
            return None
        setup = replace(
            setup,
            generation=generation_of(product),
            prompt_tokens=0,
        )
    return RecordedSetup(model, shape, product, setup, dtype, engine.identity.label)


def _recorded_model(plan: Mapping[str, Any]) -> tuple[Model, Engine] | None:
    """Return the model and the engine of a record; None where they are not known."""
    identity, facts = plan.get("engine"), plan.get("model")
    if not (isinstance(identity, Mapping) and isinstance(facts, Mapping)):
        return None
    if identity.get("simulated"):
        # its speed is the model's own: neither a measurement nor of this machine's cards
        return None
    try:
        return known_model(str(facts.get("path")), must_exist=False), _recorded_engine(identity)
    except LaunchError as error:
        _log.debug("no prediction for the recorded model: %s", error)
        return None


def _recorded_engine(identity: Mapping[str, Any]) -> Engine:
    """Return the engine of a record. Raises LaunchError for an unknown one."""
    name = str(identity.get("name"))
    try:
        return registry.find(f"{name}@{identity.get('version')}")
    except LaunchError as error:
        # an engine that has one version only is found by its name
        _log.debug("the recorded engine has no such version: %s", error)
        return registry.find(name)


def _kv_bytes(dtype: str, settings: Mapping[str, str], *, cards: bool) -> float:
    """Return the bytes of an element of the KV cache.

    An engine without cards keeps the weights' type. A file of measurements may name another one.
    """
    is_wide = settings.get("--kv-cache-dtype") == "auto" and "QUANT_CONFIG" not in settings
    if dtype == "fp8" and not is_wide:
        return 1.0
    return 2.0 if cards else WEIGHT_BYTES[dtype]


def _settings(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a recorded plan by name."""
    return {
        str(each.get("name")): str(each.get("value"))
        for each in map(mapping, array(plan.get("settings")))
    }
