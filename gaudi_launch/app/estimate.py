"""Predict speed from the options of ``gaudi-launch estimate``."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from gaudi_launch.app.fields import switch, text
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.json_values import array, mapping
from gaudi_launch.messages import Message, message
from gaudi_launch.planning.parse import if_given

if TYPE_CHECKING:
    from gaudi_launch.app.prepare import Prepared
    from gaudi_launch.host.accelerators import Accelerator
    from gaudi_launch.models.model import Model
    from gaudi_launch.performance.prediction import Load, Prediction
    from gaudi_launch.performance.shape import Shape
    from gaudi_launch.performance.step_model import Engine as Scheduling
    from gaudi_launch.performance.step_model import Setup
    from gaudi_launch.planning.engine import Engine as PlannedEngine
    from gaudi_launch.planning.plan import Plan

_log = logging.getLogger(__name__)

DEFAULT_INPUT, DEFAULT_OUTPUT, DEFAULT_BATCH = 1024, 256, 32
# with a rate, -b is only a limit
DEFAULT_MOST = 256
_MOST_TOKENS = 1 << 24
_MOST_CARDS = 1024
# one server; no figure includes the cost of links between servers
_SERVER_CARDS = 8
_RELEASE = re.compile(r"v?(\d{1,2})\.(\d{1,3})(\.\d{1,4})*(-\d+)?")

_LOAD, _SETUP = "Load", "Model and cards"


@dataclass(frozen=True)
class EstimateOptions:
    """The options as typed; empty where not given."""

    cards: str = text("-n", "--cards", help="Number of cards.", panel=_SETUP, metavar="N")
    dtype: str = text("-d", "--dtype", help="bf16, fp8, awq, gptq.", panel=_SETUP, metavar="TYPE")
    accelerator: str = text(
        "--accelerator",
        help="gaudi2, gaudi3... (default: this machine's, else gaudi2).",
        panel=_SETUP,
        metavar="NAME",
    )
    engine: str = text("--engine", help="Engine, as in 'fit'.", panel=_SETUP, metavar="ENGINE")
    software: str = text(
        "--software", help="Gaudi software release: 1.18, 1.24.1.", panel=_SETUP, metavar="RELEASE"
    )
    moe: str = text(
        "--moe",
        help="Experts that a step reads: the selected ones, or all.",
        panel=_SETUP,
        metavar="fused|unfused",
    )
    inputs: str = text(
        "-i", "--input", help="Input tokens (default 1024).", panel=_LOAD, metavar="N"
    )
    outputs: str = text(
        "-o", "--output", help="Output tokens (default 256).", panel=_LOAD, metavar="N"
    )
    batch: str = text(
        "-b",
        "--max-num-seqs",
        help="Concurrent sequences over all cards (default 32; 256 with --rate).",
        panel=_LOAD,
        metavar="N",
    )
    static: bool = switch(
        "--static",
        help="One batch without a server: all prompts prefilled together, then decoded.",
        panel=_LOAD,
    )
    rate: str = text(
        "--rate", help="Requests that arrive at random: 5/s, 300/m.", panel=_LOAD, metavar="RATE"
    )
    concurrency: str = text(
        "--concurrency",
        help="Clients that each wait for an answer before the next request.",
        panel=_LOAD,
        metavar="N",
    )


@dataclass(frozen=True)
class EstimateCase:
    """The estimated load. ``experts`` is "fused", "unfused" or "" for a dense model."""

    model: Model
    shape: Shape
    accelerator: Accelerator | None
    setup: Setup
    load: Load
    dtype: str
    engine: str
    software: str
    old: bool
    measured: bool
    experts: str
    notes: tuple[Message, ...]

    @property
    def hardware(self) -> str:
        """Return the name of the product, or "cpu"."""
        if self.accelerator is not None:
            return self.accelerator.id
        return self.setup.generation


@dataclass(frozen=True)
class SpeedEstimate:
    """A case and its prediction."""

    case: EstimateCase
    prediction: Prediction


def read(path: str, options: EstimateOptions) -> EstimateCase:
    """Return the case of these options. Raises LaunchError for an impossible one."""
    from gaudi_launch.app.fit import data_types, engine_for
    from gaudi_launch.engines.conditions import Launched, concerning
    from gaudi_launch.models.sizing import WEIGHT_BYTES, divides
    from gaudi_launch.performance.experts import chosen_experts
    from gaudi_launch.performance.prediction import FITTED_FROM
    from gaudi_launch.performance.scaling import generation_of, hosts_of
    from gaudi_launch.performance.step_model import Setup
    from gaudi_launch.planning.parse import if_given, number

    if options.moe not in ("", "fused", "unfused"):
        raise LaunchError("estimate.moe", ExitCode.USAGE, found=options.moe)
    product = _accelerator(options.accelerator)
    release = _release(options.software)
    cards = if_given(number, "-n", options.cards, 1, _MOST_CARDS) or 1
    load = _load(options)
    model, shape = _model(path)
    if not divides(model, cards):
        raise LaunchError("estimate.uneven", ExitCode.USAGE, cards=cards, heads=model.heads)
    engine = None
    if not options.static:
        engine = engine_for(options.engine, model, product.id)
    dtype = data_types(model, options.dtype, engine)[0]
    if dtype not in WEIGHT_BYTES:
        raise LaunchError("estimate.no_type", ExitCode.MODEL, model=model.path, dtype=dtype)
    notes = _product_notes(product, cards)
    scheduling: Scheduling = "static"
    if engine is not None:
        scheduling = engine.innermost.scheduling
    fused, gather = chosen_experts(model.model_type or model.name, scheduling, release)
    if options.moe:
        fused, gather = options.moe == "fused", 0
    experts = ""
    if shape.experts:
        experts = "fused" if fused else "unfused"
        notes.append(message(f"estimate.{experts}"))
    old = release is not None and release < FITTED_FROM
    if old:
        notes.append(message("estimate.old", release=options.software))
    setup = Setup(
        generation=generation_of(product),
        cards=cards,
        math=_math_of(dtype),
        weight_bytes=WEIGHT_BYTES[dtype],
        kv_bytes=_kv_bytes(dtype, cards=True),
        engine=scheduling,
        fused=fused,
        gather=gather,
        hosts=hosts_of(cards, product),
    )
    label = ""
    if engine is None:
        notes += _memory_notes(model, setup, load, product)
    else:
        label = engine.identity.label
        question = _ServedQuestion(model, engine, product, dtype)
        setup, load, said = _in_memory(question, setup, load)
        launched, exact = Launched(model, product.id), engine.innermost.identity.exact
        notes += [*said, *(each.sentence for each in concerning(exact, launched))]
    return EstimateCase(
        model=model,
        shape=shape,
        accelerator=product,
        setup=setup,
        load=load,
        dtype=dtype,
        engine=label,
        software=options.software,
        old=old,
        measured=not _product_notes(product, cards),
        experts=experts,
        notes=tuple(notes),
    )


def _math_of(dtype: str) -> Literal["bf16", "fp8"]:
    """Return the type of the multiplications for weights of this type."""
    if dtype == "fp8":
        return "fp8"
    return "bf16"


def solve(case: EstimateCase) -> SpeedEstimate:
    """Return the prediction of a case, from the shipped constants and figures."""
    from gaudi_launch.performance.prediction import knowledge_of, predict

    known = knowledge_of(case.setup.generation)
    found = predict(case.setup, case.shape, case.load, known, old=case.old, measured=case.measured)
    return SpeedEstimate(case, found)


def _load(options: EstimateOptions) -> Load:
    from gaudi_launch.app.traffic_options import read_rate
    from gaudi_launch.performance.prediction import Load
    from gaudi_launch.planning.parse import MOST_SEQS, number

    chosen = [name for name in ("static", "rate", "concurrency") if getattr(options, name)]
    if len(chosen) > 1 or (options.concurrency and options.batch):
        raise LaunchError("estimate.one_load", ExitCode.USAGE)
    given = if_given(number, "-b", options.batch, 1, MOST_SEQS)
    prompt = _tokens("-i", options.inputs, DEFAULT_INPUT)
    answer = _tokens("-o", options.outputs, DEFAULT_OUTPUT)
    if answer < 2:
        raise LaunchError("estimate.short", ExitCode.USAGE, found=answer)
    if options.rate:
        return Load("rate", prompt, answer, given or DEFAULT_MOST, read_rate(options.rate))
    if options.concurrency:
        return Load(
            "concurrency",
            prompt,
            answer,
            number("--concurrency", options.concurrency, 1, MOST_SEQS),
        )
    if options.static:
        return Load("static", prompt, answer, given or DEFAULT_BATCH)
    return Load("concurrency", prompt, answer, given or DEFAULT_BATCH)


def _tokens(flag: str, text: str, default: int) -> int:
    from gaudi_launch.planning.parse import tokens

    if text:
        return tokens(flag, text, most=_MOST_TOKENS)
    return default


def _model(path: str) -> tuple[Model, Shape]:
    from gaudi_launch.app.fit import check_writes, sized_model
    from gaudi_launch.performance.shape import shape_of

    found = sized_model(path)
    check_writes(found)
    shape = shape_of(found)
    if shape is None:
        raise LaunchError("fit.no_kv_facts", ExitCode.MODEL, model=path)
    return found, shape


def _accelerator(asked: str) -> Accelerator:
    from gaudi_launch.app.fit import find_product, own_accelerator
    from gaudi_launch.host.accelerators import accelerators

    product = find_product(asked)
    if product is None or not product.id.startswith(("gaudi2", "gaudi3")):
        fit = ", ".join(name for name in accelerators() if name.startswith(("gaudi2", "gaudi3")))
        raise LaunchError(
            "estimate.accelerator", ExitCode.USAGE, found=asked or own_accelerator(), known=fit
        )
    return product


def _product_notes(product: Accelerator, cards: int) -> list[Message]:
    from gaudi_launch.performance.scaling import generation_of

    notes: list[Message] = []
    generation = generation_of(product)
    if product.id != generation:
        notes.append(message("estimate.other_product", product=product.id, generation=generation))
    if cards > _SERVER_CARDS:
        notes.append(message("estimate.several_servers", cards=cards))
    return notes


def _release(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    match = _RELEASE.fullmatch(text.strip())
    if match is None:
        raise LaunchError("estimate.release", ExitCode.USAGE, found=text)
    return int(match.group(1)), int(match.group(2))


@dataclass(frozen=True)
class _ServedQuestion:
    """A model in one data type, on an engine and a product."""

    model: Model
    engine: PlannedEngine
    product: Accelerator
    dtype: str


def _in_memory(
    asked: _ServedQuestion, setup: Setup, load: Load
) -> tuple[Setup, Load, list[Message]]:
    """Return setup and load as the card's memory decides them, with notes.

    The division is that of ``fit``, ``capacity`` and ``plan``, for requests of the load's lengths.
    """
    from gaudi_launch.app.fit import ServedLengths, request_for
    from gaudi_launch.models.sizing import KV_BYTES
    from gaudi_launch.planning.fit import card_row, drawn_up, limits_of

    lengths = ServedLengths("", str(load.most), str(load.input), str(load.output))
    request = request_for(asked.model, lengths)
    limits_of(asked.engine, request, asked.model)
    try:
        drawn = drawn_up(
            asked.engine, request, asked.product, asked.model, cards=setup.cards, dtype=asked.dtype
        )
    except LaunchError as error:
        if error.exit_code == ExitCode.USAGE:
            raise
        return setup, load, [error.text]
    row = card_row(drawn, asked.model, asked.product, setup.cards, asked.dtype)
    kv_dtype = drawn.demand.kv_dtype
    setup = replace(
        setup,
        kv_bytes=float(KV_BYTES.get(kv_dtype, 2)),
        step_tokens=_step_tokens(asked.engine, drawn.context.limits.max_num_batched_tokens),
    )
    if not row.fits:
        return setup, load, [row.reason]
    each = -(-(load.input + load.output) // drawn.context.limits.block_size)
    room = (row.kv_blocks or 0) // each
    if load.kind == "rate" or not row.kv_bytes_per_token or room >= load.most:
        return setup, load, []
    note = message("estimate.batch_too_large", batch=load.most, fit=room)
    return setup, replace(load, room=max(1, room)), [note]


def _memory_notes(model: Model, setup: Setup, load: Load, product: Accelerator) -> list[Message]:
    """Return the notes for a batch without a server: weights and cache by themselves."""
    from gaudi_launch.models.sizing import BLOCK, GIB, block_bytes, weight_bytes_per_card

    usable = float(product.usable_bytes)
    dtype = "fp8" if setup.math == "fp8" else "bfloat16"
    weights = weight_bytes_per_card(model, setup.cards, dtype) or 0.0
    if weights > usable:
        return [
            message(
                "estimate.weights_too_large",
                weights=f"{weights / GIB:.0f}",
                usable=f"{usable / GIB:.0f}",
            )
        ]
    each = (
        (block_bytes(model, setup.cards, int(setup.kv_bytes)) or 0)
        * (load.input + load.output)
        / BLOCK
    )
    fit = int((usable - weights) // each) if each else load.most
    if load.kind != "rate" and fit < load.most:
        return [message("estimate.batch_too_large", batch=load.most, fit=fit)]
    return []


def _step_tokens(engine: PlannedEngine, budget: int) -> int:
    """Return the token budget of a step that mixes prompts and decoding, else 0."""
    if engine.innermost.scheduling != "v1":
        return 0
    return budget


def of_plan(prepared: Prepared, made: Plan) -> SpeedEstimate | None:
    """Return the prediction for a plan with its maximum of clients.

    Lengths are the middle of its ranges, or typical ones. Return None for an engine without cards,
    one that contains another, or pooling models, and where sizes are unknown.
    """
    from gaudi_launch.planning.engine import Context
    from gaudi_launch.planning.speed import load_in, setup_in

    engine, model, request = prepared.engine, prepared.model, prepared.request
    limits = engine.limits(request, prepared.host, model)
    context = Context(request, prepared.host, model, made.placement, limits)
    found = setup_in(context, engine, made.settings)
    if found is None:
        return None
    load = load_in(context, made.num_blocks)
    label = engine.identity.label
    return _of_setup(
        RecordedSetup(model, found.shape, found.accelerator, found.setup, found.dtype, label), load
    )


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
    from gaudi_launch.performance.learned import read_learned

    found = setup_of_record(plan)
    if found is None:
        return None
    learned = read_learned()
    measured = learned is not None and found.setup.generation in learned.generations
    if found.setup.generation == "cpu" and not measured:
        return None
    return _of_setup(found, load)


def setup_of_record(plan: Mapping[str, Any]) -> RecordedSetup | None:
    """Return the setup of a service of this machine.

    None where its record is incomplete.
    """
    from gaudi_launch.app.fit import own_accelerator
    from gaudi_launch.host.accelerators import accelerators
    from gaudi_launch.models.sizing import WEIGHT_BYTES
    from gaudi_launch.performance.experts import chosen_experts
    from gaudi_launch.performance.scaling import generation_of
    from gaudi_launch.performance.shape import shape_of
    from gaudi_launch.performance.step_model import Setup

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
        math=_math_of(dtype),
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
            step_tokens=_step_tokens(engine, tokens),
        )
    return RecordedSetup(model, shape, product, setup, dtype, engine.identity.label)


def _recorded_model(plan: Mapping[str, Any]) -> tuple[Model, PlannedEngine] | None:
    """Return the model and the engine of a record; None where they are not known."""
    from gaudi_launch.profiles import known_model

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
    from gaudi_launch.bench.run_file import BATCHED_TOKENS
    from gaudi_launch.host.files import natural_number

    for setting in map(mapping, array(plan.get("settings"))):
        if setting.get("name") == BATCHED_TOKENS:
            return natural_number(str(setting.get("value"))) or 0
    return 0


def _recorded_engine(identity: Mapping[str, Any]) -> PlannedEngine:
    """Return the engine of a record. Raises LaunchError for an unknown one."""
    from gaudi_launch.engines import registry

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
    from gaudi_launch.models.sizing import WEIGHT_BYTES

    if dtype == "fp8":
        return 1.0
    return 2.0 if cards else WEIGHT_BYTES[dtype]


def _of_setup(found: RecordedSetup, load: Load) -> SpeedEstimate:
    product, cards = found.accelerator, found.setup.cards
    case = EstimateCase(
        model=found.model,
        shape=found.shape,
        accelerator=product,
        setup=found.setup,
        load=load,
        dtype=found.dtype,
        engine=found.engine,
        software="",
        old=False,
        measured=product is None or not _product_notes(product, cards),
        experts="",
        notes=(),
    )
    return solve(case)
