"""Request, Host and Model in, Plan out. Pure: the same three give the same Plan on any machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.records import Host
from gaudi_launch.messages import Message, message
from gaudi_launch.models.records import Model
from gaudi_launch.planning.engine import Context, Engine
from gaudi_launch.planning.memory import MemoryPlan, memory_in
from gaudi_launch.planning.own_words import refuse_more_cards
from gaudi_launch.planning.placement import choose, parse_visible
from gaudi_launch.planning.plan import Command, Estimate, Placement, Plan, Setting
from gaudi_launch.planning.precision import weight_type
from gaudi_launch.planning.request import Request
from gaudi_launch.warmup.buckets import BucketError, Buckets
from gaudi_launch.warmup.estimate import Measured, per_graph, times


def make_plan(
    request: Request,
    host: Host,
    model: Model,
    engine: Engine,
    placement: Placement | None = None,
    *,
    measured: Sequence[Measured] = (),
) -> Plan:
    """Decide everything for one deployment; ``placement`` where the cards are chosen and held already,
    ``measured`` the warm-ups that this machine has seen (they make the estimate better).

    Raises LaunchError for what cannot be.
    """
    around = getattr(engine, "wrap", None)
    if around is None and (request.replicas or request.target_ongoing):
        raise LaunchError("ray.only", ExitCode.USAGE, engine=engine.identity.name)
    engine.refuse(request, host, model)
    if around is not None:
        # an engine around another: that one is planned for one replica, then wrapped
        placement = placement or place(request, host, engine)
        one, share = engine.first(request, placement, host)  # type: ignore[attr-defined]
        inside = make_plan(one, host, model, engine.inner, share, measured=measured)  # type: ignore[attr-defined]
        whole: Plan = around(inside, request, placement, host, model)
        return whole
    drawn = draft(request, host, model, engine, placement or place(request, host, engine))
    context, settings, memory = drawn.context, drawn.settings, drawn.memory
    placement, warnings = context.placement, list(drawn.warnings)
    found = buckets_of(engine, settings, context, warnings, memory.num_blocks)
    strategy, buckets = found if found is not None else ("", None)
    command = engine.command(settings, context)
    if request.tuning == "reference" and command.container is None:
        # the scripts leave the CPUs alone unless the cards were named and share a NUMA node
        cpus = placement.cpus if request.modules is not None and len(placement.numa_nodes) == 1 else ()
        command = replace(command, cpus=cpus, memory_node=command.memory_node if cpus else None)
    return Plan(
        engine=engine.identity,
        model=model_json(model),
        placement=replace(placement, cpus=command.cpus),
        settings=settings,
        command=command,
        url=_url(command),
        buckets=buckets,
        bucket_strategy=strategy,
        memory=memory.gib,
        estimate=None if request.skip_warmup else _estimate(context, engine, buckets, measured),
        warnings=tuple(warnings),
        num_blocks=memory.num_blocks,
        dtype=weight_type(request, model),
    )


@dataclass(frozen=True)
class Draft:
    """What is decided before there is a command: settings and what they do to a card's memory."""

    context: Context
    settings: tuple[Setting, ...]
    memory: MemoryPlan
    warnings: tuple[Message, ...]


def draft(request: Request, host: Host, model: Model, engine: Engine, placement: Placement) -> Draft:
    """The settings of one engine (not one around another) on these cards. Raises LaunchError for what cannot be."""
    context = Context(request, host, model, placement, engine.limits(request, host, model))
    proposal = engine.propose(context)
    warnings: list[Message] = [*placement.warnings, *proposal.warnings]
    if request.overruled:
        warnings.append(message("plan.overruled", flags=", ".join(request.overruled)))
    memory = _memory(engine, proposal.settings, context, warnings)
    return Draft(context, tuple(proposal.settings), memory, tuple(warnings))


def place(request: Request, host: Host, engine: Engine) -> Placement:
    """The cards of this request on this host. An engine without cards places nothing."""
    if not engine.needs_cards:
        return Placement(modules=())
    refuse_more_cards(request.extra)
    own = getattr(engine, "place", None)
    if own is not None:
        chosen: Placement = own(request, host)
        return chosen
    text = request.environment.get("HABANA_VISIBLE_MODULES")
    visible = parse_visible(text)
    if request.tuning == "reference" and visible is not None and request.modules is None:
        # the scripts refuse a list that names a busy card, even when enough others are free
        busy = [module for module in visible if module not in host.free_modules]
        if busy:
            raise LaunchError("plan.visible_busy", ExitCode.MACHINE, found=text, busy=_words(busy))
    cards = engine.cards(request)
    return choose(host, cards, request.modules, visible)


def _memory(engine: Engine, settings: Sequence[Setting], context: Context, warnings: list[Message]) -> MemoryPlan:
    """A card's memory; auto tuning refuses what cannot start, and says what would."""
    request, cards = context.request, len(context.placement.modules)
    found = memory_in(context, settings, engine.identity)
    if found.fits is False and found.message is not None:
        would = _list(found.remedies)
        if request.tuning == "auto" and not request.force:
            raise LaunchError(
                "fit.plan_refused", ExitCode.MACHINE, cards=cards, why=found.message.render(), would=would
            )
        warnings.append(found.message)
    elif found.tight is not None:
        warnings.append(found.tight)
    return found


def _list(messages: Sequence[Message]) -> str:
    return ", ".join(each.render() for each in messages)


def buckets_of(
    engine: Engine,
    settings: Sequence[Setting],
    context: Context,
    warnings: list[Message],
    num_blocks: int | None,
) -> tuple[str, Buckets] | None:
    """The strategy and the buckets of these settings. Settings that the engine itself fails on raise LaunchError
    (USAGE), in reference tuning they are a warning."""
    try:
        return engine.buckets(settings, context, num_blocks)
    except BucketError as error:
        if context.request.tuning == "auto":
            raise LaunchError("plan.buckets_fail", ExitCode.USAGE, why=str(error)) from None
        warnings.append(message("plan.buckets_fail", why=str(error)))
        return None


def _estimate(
    context: Context, engine: Engine, buckets: Buckets | None, measured: Sequence[Measured]
) -> Estimate | None:
    """How long the warm-up of these buckets takes; nothing without a list of buckets."""
    if buckets is None:
        return None
    identity, cards, request = engine.identity, len(context.placement.modules), context.request
    one = per_graph(
        weight_type(request, context.model),
        False,
        measured,
        engine=identity.exact,
        model=context.model.name,
        cards=cards,
    )
    span = times(one, buckets.graphs)
    return Estimate(span.low, span.high, span.basis)


def model_json(model: Model) -> Mapping[str, Any]:
    """The ``model`` object of a plan."""
    names = ("path", "name", "source", "architecture", "model_type", "parameters", "weight_bytes", "dtype")
    more = ("quantization", "moe", "experts", "layers", "heads", "kv_heads", "head_dim", "mla_rank")
    last = ("max_position_embeddings", "remote_code")
    return {name: getattr(model, name) for name in (*names, *more, *last)}


def _words(numbers: Sequence[int]) -> str:
    return ",".join(str(number) for number in numbers)


def _url(command: Command) -> str:
    """Where to ask: the last --host and --port of the final words, or what a container publishes; an address for
    all interfaces is asked here."""
    host, port, argv = "127.0.0.1", "8000", command.argv
    if command.container is not None and command.container.ports:
        host, port, argv = command.container.address, str(command.container.ports[0][0]), ()
    for word, following in zip(argv, [*argv[1:], ""][: len(argv)], strict=True):
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name == "--host":
            host = value if equals else following
        elif name == "--port":
            port = value if equals else following
    if host in ("0.0.0.0", "::", "[::]", ""):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
