"""Predict speed: of a launch by its plan, of a service by its record."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import switch, text
from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.host.accelerators import accelerator_of, accelerators
from gaudi_launch.core.launch.fit import check_writes, own_accelerator, planned_machine, sized_model
from gaudi_launch.core.launch.saved_plan import merged
from gaudi_launch.core.launch.traffic_options import (
    LoadOptions,
    demand_of,
    load_of,
    past_of,
    rate_of_trace,
)
from gaudi_launch.core.models.sizing import WEIGHT_BYTES
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.parse import Ranges, ranges
from gaudi_launch.core.planning.speed import load_in, setup_in, static_in
from gaudi_launch.core.predict.scaling import generation_of, speed_of
from gaudi_launch.core.predict.shape import shape_of
from gaudi_launch.core.predict.simulate import ServedSetup, simulate

if TYPE_CHECKING:
    from gaudi_launch.core.host.accelerators import Accelerator
    from gaudi_launch.core.launch.options import LaunchOptions
    from gaudi_launch.core.launch.prepared import Prepared
    from gaudi_launch.core.models.model import Model
    from gaudi_launch.core.planning.engine import Context
    from gaudi_launch.core.planning.engine import Engine as PlannedEngine
    from gaudi_launch.core.planning.parse import Ranges
    from gaudi_launch.core.planning.plan import Plan
    from gaudi_launch.core.predict.limits import EngineLimits
    from gaudi_launch.core.predict.load import Load
    from gaudi_launch.core.predict.shape import Shape
    from gaudi_launch.core.predict.simulate import Outcome, ServedSetup
    from gaudi_launch.core.predict.step_model import Setup

_log = logging.getLogger(__name__)
# the option of a recorded plan that names the tokens of a step
BATCHED_TOKENS = "--max-num-batched-tokens"

# one server; no figure includes the cost of links between servers
_SERVER_CARDS = 8
# of a service whose record does not state them
_LONGEST, _MOST = 1 << 20, 256


@dataclass(frozen=True)
class EstimateOptions(LoadOptions):
    """The load as typed; empty where not given."""

    static: bool = switch(
        "--static",
        help="One batch of -b without a server: all prompts prefilled together, then decoded.",
        panel="Load",
    )
    accelerator: str = text(
        "--accelerator",
        help="gaudi2, gaudi3... (default: this machine's, else gaudi2).",
        panel="Cards",
        metavar="NAME",
    )


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


def estimate(options: LaunchOptions, given: EstimateOptions) -> SpeedEstimate:
    """Return the speed of a launch under a load.

    Without one, that of as many clients as it serves. Raises LaunchError for an impossible one, and
    where the speed is not known.
    """
    options = merged(options)
    model = _check_load(options, given)
    notes: list[Message] = []
    machine, _ = planned_machine(options, given.accelerator, notes)
    named = sized_model(model)
    check_writes(named)
    prepared = _prepared(replace(options, machine=machine))
    lengths = ranges(options.input_range, options.output_range)
    if given.static:
        found = _static(prepared, lengths, notes)
    else:
        found = _served(prepared, _Asked(given, lengths), notes)
    if found.outcome.load.mean_output < 2:
        raise LaunchError("estimate.short", ExitCode.USAGE, found=options.output_range)
    # the plan may be for a converted folder
    return replace(found, model=named)


@dataclass(frozen=True)
class _Asked:
    """The load as typed, with the ranges of its lengths."""

    given: EstimateOptions
    lengths: Ranges


def _prepared(options: LaunchOptions) -> Prepared:
    """Return the inputs of the plan.

    Lengths that its engine has no options for are left out.
    """
    from gaudi_launch.core.launch.route import prepare

    try:
        return prepare(options)
    except LaunchError as error:
        if error.text.values.get("flag") not in ("-i", "-o"):
            raise
    return prepare(replace(options, input_range=None, output_range=None))


def _check_load(options: LaunchOptions, given: EstimateOptions) -> str:
    """Return the model; raise LaunchError (USAGE) for loads that exclude each other."""
    chosen = [given.static, given.rate, given.concurrency]
    if sum(map(bool, chosen)) > 1 or (given.static and given.trace):
        raise LaunchError("estimate.one_load", ExitCode.USAGE)
    if not options.model:
        raise LaunchError("plan.no_model", ExitCode.USAGE)
    return options.model


def of_plan(prepared: Prepared, made: Plan) -> SpeedEstimate | None:
    """Return the prediction for a plan with as many clients as it serves.

    Lengths are those of its ranges, or typical ones. Return None for an engine without cards,
    one that contains another, or pooling models, and where sizes are unknown.
    """
    setup = setup_of(prepared, made)
    if setup is None:
        return None
    return _of_outcome(prepared, made, setup, load_in(_context(prepared, made)), ())


def setup_of(prepared: Prepared, made: Plan) -> ServedSetup | None:
    """Return what a plan serves with; None where its speed is not known."""
    return setup_in(_context(prepared, made), prepared.engine, made.settings, made.num_blocks)


def _context(prepared: Prepared, made: Plan) -> Context:
    engine, model, request = prepared.engine, prepared.model, prepared.request
    limits = engine.limits(request, prepared.host, model)
    return Context(request, prepared.host, model, made.placement, limits)


def _served(prepared: Prepared, asked: _Asked, notes: list[Message]) -> SpeedEstimate:
    """Return the prediction of a plan for the given load."""
    from gaudi_launch.core.engines.conditions import Launched, concerning

    made = prepared.plan()
    context = _context(prepared, made)
    setup = setup_of(prepared, made)
    if setup is None:
        raise _not_known(prepared)
    load = _given_load(load_in(context, asked.lengths), asked.given, notes)
    notes += _product_notes(context)
    if setup.speed.shape.experts:
        notes.append(message("estimate.fused" if setup.speed.setup.fused else "estimate.unfused"))
    launched = Launched(prepared.model, mapped(lambda one: one.id, _product(context)) or "")
    exact = prepared.engine.innermost.identity.exact
    notes += [each.sentence for each in concerning(exact, launched)]
    found = _of_outcome(prepared, made, setup, load, tuple(notes))
    length = setup.limits.max_model_len
    if found is None:
        raise LaunchError("estimate.takes_none", ExitCode.USAGE, length=length)
    if found.outcome.refused:
        percent = f"{100 * found.outcome.refused:.1f}"
        refused = message("capacity.refused", percent=percent, length=length)
        return replace(found, notes=(*found.notes, refused))
    return found


def _given_load(usual: Load, given: EstimateOptions, notes: list[Message]) -> Load:
    """Return the load of the options: ``usual`` where they name none."""
    demand, found = demand_of(given), past_of(given)
    load, rate = usual, demand.rate
    if found.past is not None:
        load = load_of(found, Ranges(), notes).of_clients(usual.clients)
        if found.own_times and not demand.clients:
            rate = rate or rate_of_trace(found.past.requests, notes)
    if rate:
        return load.at_rate(rate)
    return load.of_clients(demand.clients or usual.clients)


def _static(prepared: Prepared, lengths: Ranges, notes: list[Message]) -> SpeedEstimate:
    """Return the prediction of one batch without a server, whatever memory it needs."""
    from gaudi_launch.core.planning.planner import place

    engine, model, request = prepared.engine, prepared.model, prepared.request
    placement = place(request, prepared.host, engine)
    limits = engine.limits(request, prepared.host, model)
    context = Context(request, prepared.host, model, placement, limits)
    setup = static_in(context, engine)
    if setup is None:
        raise _not_known(prepared)
    notes += _product_notes(context)
    load = replace(load_in(context, lengths), clients=0, batch=limits.max_num_seqs)
    found = _of_outcome(prepared, None, setup, load, tuple(notes))
    assert found is not None, "a batch refuses no request"
    return found


def _of_outcome(
    prepared: Prepared,
    made: Plan | None,
    setup: ServedSetup,
    load: Load,
    notes: tuple[Message, ...],
) -> SpeedEstimate | None:
    outcome = simulate(setup, load)
    product = accelerator_of(prepared.host)
    if outcome is None or product is None:
        return None
    label = prepared.engine.identity.label if made is not None else ""
    dtype = setup.dtype
    return SpeedEstimate(prepared.model, product.id, dtype, label, outcome, made, notes)


def _not_known(prepared: Prepared) -> LaunchError:
    """Return the error of a launch whose speed is not known, with the reason."""
    product = accelerator_of(prepared.host)
    if shape_of(prepared.model) is None:
        return LaunchError("fit.no_kv_facts", ExitCode.MODEL, model=prepared.model.path)
    known = ("gaudi2", "gaudi3")
    if product is None or not product.id.startswith(known):
        names = ", ".join(name for name in accelerators() if name.startswith(known))
        found = "-" if product is None else product.id
        return LaunchError("estimate.accelerator", ExitCode.USAGE, found=found, known=names)
    engine = prepared.engine.identity.label
    return LaunchError("estimate.not_known", ExitCode.USAGE, engine=engine)


def _product(context: Context) -> Accelerator | None:
    return accelerator_of(context.host)


def _product_notes(context: Context) -> list[Message]:
    product, cards = _product(context), context.placement.tensor
    assert product is not None, "its speed is known"
    notes: list[Message] = []
    generation = generation_of(product)
    if product.id != generation:
        notes.append(message("estimate.other_product", product=product.id, generation=generation))
    if cards > _SERVER_CARDS:
        notes.append(message("estimate.several_servers", cards=cards))
    return notes


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
    from gaudi_launch.core.predict.learned import read_learned

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
    from gaudi_launch.core.predict.limits import as_limits

    values = {
        str(each.get("name")): str(each.get("value"))
        for each in map(mapping, array(plan.get("settings")))
    }

    def number(name: str, usual: int) -> int:
        text = values.get(name, "")
        return int(text) if text.isdecimal() and int(text) else usual

    blocks = plan.get("num_blocks")
    length = number("--max-model-len", found.model.max_position_embeddings or _LONGEST)
    return as_limits(
        {
            "max_num_seqs": number("--max-num-seqs", _MOST),
            "max_model_len": length,
            "max_num_batched_tokens": number("--max-num-batched-tokens", length),
            "prefill_batch": 1,
            "num_blocks": blocks if isinstance(blocks, int) and blocks > 0 else None,
            "mixed_steps": found.setup.engine == "v1",
        }
    )


def setup_of_record(plan: Mapping[str, Any]) -> RecordedSetup | None:
    """Return the setup of a service of this machine.

    None where its record is incomplete.
    """
    from gaudi_launch.core.predict.experts import chosen_experts
    from gaudi_launch.core.predict.step_model import Setup

    known = _recorded_model(plan)
    if known is None:
        return None
    model, engine = known
    modules, dtype = plan.get("modules"), str(plan.get("dtype"))
    shape = shape_of(model)
    if shape is None or dtype not in WEIGHT_BYTES or engine.needs_cards != bool(modules):
        return None
    tokens = _batched_tokens(plan)
    scheduling = engine.innermost.scheduling
    fused, gather = chosen_experts(model.model_type or model.name, scheduling)
    setup = Setup(
        generation="cpu",
        cards=len(modules or (0,)),
        math="fp8" if dtype == "fp8" else "bf16",
        weight_bytes=WEIGHT_BYTES[dtype],
        kv_bytes=_kv_bytes(dtype, cards=engine.needs_cards),
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


def _recorded_model(plan: Mapping[str, Any]) -> tuple[Model, PlannedEngine] | None:
    """Return the model and the engine of a record; None where they are not known."""
    from gaudi_launch.core.planning.profiles import known_model

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


def _batched_tokens(plan: Mapping[str, Any]) -> int:
    """Return the tokens of a step in a recorded plan; 0 where it names none."""
    from gaudi_launch.core.host.files import natural_number

    for setting in map(mapping, array(plan.get("settings"))):
        if setting.get("name") == BATCHED_TOKENS:
            return natural_number(str(setting.get("value"))) or 0
    return 0


def _recorded_engine(identity: Mapping[str, Any]) -> PlannedEngine:
    """Return the engine of a record. Raises LaunchError for an unknown one."""
    from gaudi_launch.core.engines import registry

    name = str(identity.get("name"))
    try:
        return registry.find(f"{name}@{identity.get('version')}")
    except LaunchError as error:
        # an engine that has one version only is found by its name
        _log.debug("the recorded engine has no such version: %s", error)
        return registry.find(name)


def _kv_bytes(dtype: str, *, cards: bool) -> float:
    """Return the bytes of an element of the KV cache.

    An engine without cards keeps the weights' type.
    """
    if dtype == "fp8":
        return 1.0
    return 2.0 if cards else WEIGHT_BYTES[dtype]
