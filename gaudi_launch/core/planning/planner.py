"""Make a Plan from a Request, a Host and a Model.

Pure: the same three give the same Plan on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message, text
from gaudi_launch.core.base.server_address import join, reached
from gaudi_launch.core.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.core.buckets.coverage import uncovered
from gaudi_launch.core.buckets.warmup_time import Estimate, Measured, per_graph
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import GIB
from gaudi_launch.core.models.stages import stage_of
from gaudi_launch.core.planning.advice import advice, hot_within, open_warning
from gaudi_launch.core.planning.effects import unmodelled
from gaudi_launch.core.planning.engine import Context, Engine
from gaudi_launch.core.planning.exported import inherited, overridden, skips_warmup
from gaudi_launch.core.planning.fit import remedies
from gaudi_launch.core.planning.memory import MemoryPlan, cards_in, memory_in, type_on_card
from gaudi_launch.core.planning.option_table import option_table
from gaudi_launch.core.planning.passthrough import (
    REPLICAS,
    has_parts,
    overruled_flags,
    parallel_sizes,
    refuse_layout,
    refuse_no_experts,
    refuse_parts_apart,
    with_options,
    with_user_args,
    written,
)
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Plan, Setting
from gaudi_launch.core.planning.precision import check_stored_type, runs_fp8, weight_type
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.requested_cards import for_modules
from gaudi_launch.core.planning.scale_out import with_scale_out
from gaudi_launch.core.planning.support_answer import check_support

# of the model, in a plan's document
_MODEL_FIELDS = (
    "path", "name", "source", "architecture", "model_type", "parameters", "weight_bytes", "dtype",
    "quantization", "moe", "experts", "layers", "heads", "kv_heads", "head_dim", "mla_rank",
    "max_position_embeddings", "remote_code",
)  # fmt: skip


def make_plan(
    request: Request,
    host: Host,
    model: Model,
    engine: Engine,
    placement: Placement | None = None,
    *,
    measured: Sequence[Measured] = (),
) -> Plan:
    """Decide everything for one deployment.

    ``placement`` where the cards are chosen and reserved already, ``measured`` the warm-ups that
    were measured on this machine (they improve the estimate).

    Raises LaunchError for an impossible request.
    """
    made = _decide(request, host, model, engine, placement, measured)
    exposed = open_warning(made.command, request.environment)
    if exposed is None:
        return made
    return replace(made, warnings=(*made.warnings, exposed))


def _decide(
    request: Request,
    host: Host,
    model: Model,
    engine: Engine,
    placement: Placement | None,
    measured: Sequence[Measured],
) -> Plan:
    """Return the plan of one engine, or of an engine that contains another.

    Arguments are those of `make_plan`.
    """
    inner = engine.inner
    if inner is None and (request.replicas or request.target_ongoing):
        raise LaunchError("ray.only", ExitCode.USAGE, engine=engine.identity.name)
    request = with_options(request, engine.identity)
    refuse_options(request, host, model, engine)
    if inner is not None:
        # an engine that contains another: that one is planned for one replica, then wrapped
        placement = placement or place(request, host, engine)
        one, share = engine.first(request, placement, host)
        replica = _decide(one, host, model, inner, share, measured)
        return engine.wrap(replica, request, placement, host, model)
    supported = engine.support(model, request.args, request.environment)
    unsupported = check_support(supported, force=request.force)
    # the start scripts always consent, and simulated cards run no code of the model
    needless = (supported.own_class, engine.identity.simulated, request.tuning == "reference")
    if model.remote_code and not any((request.trust_remote_code, *needless)):
        raise LaunchError("plan.remote_code", ExitCode.MODEL, model=model.name)
    drawn = draft(request, host, model, engine, placement or place(request, host, engine))
    context, settings, memory = drawn.context, drawn.settings, drawn.memory
    asked = engine.check_features(request, model)
    placement = context.placement
    warnings = [*asked, *unsupported, *drawn.warnings]
    if engine.ended is not None:
        ended = message("plan.engine_ended", engine=engine.identity.exact, date=engine.ended)
        warnings.insert(0, ended)
    found = buckets_of(engine, settings, context, warnings, memory.num_blocks)
    strategy, buckets = found or ("", None)
    command = engine.command(drawn.proposed, context)
    cold = request.skip_warmup or skips_warmup(settings, engine.identity.label)
    differences: tuple[Message, ...] = ()
    if request.tuning == "reference" and command.container is None:
        command = _bound_by_script(command, request, placement)
        differences = engine.script_differences(request, host, placement, command)
    return Plan(
        engine=engine.identity,
        model={name: getattr(model, name) for name in _MODEL_FIELDS},
        placement=_bound(placement, command.cpus),
        settings=settings,
        command=command,
        url=_url(command, engine.identity),
        buckets=buckets,
        bucket_strategy=strategy,
        memory=memory.gib,
        estimate=_estimate(context, engine, buckets, measured, cold=cold),
        warnings=tuple(warnings),
        num_blocks=memory.num_blocks,
        kv_tokens=memory.tokens,
        kv_cache=_kv_cache(memory),
        dtype=weight_type(request, model),
        reference_differences=differences,
        skips_warmup=cold,
    )


def _bound_by_script(command: Command, request: Request, placement: Placement) -> Command:
    """Return the command with the CPUs that the start scripts bind it to.

    They bind none unless the cards were named and share a NUMA node.
    """
    one_node = request.modules is not None and len(placement.numa_nodes) == 1
    if one_node and placement.cpus:
        return replace(command, cpus=placement.cpus)
    return replace(command, cpus=(), memory_node=None)


def refuse_options(request: Request, host: Host, model: Model, engine: Engine) -> None:
    """Raise LaunchError for options that this engine cannot apply.

    Also (USAGE) for options of simulated cards with real ones, and for parts of an engine that it
    does not run. An engine that contains others has separate copies.
    """
    simulated = engine.innermost.identity.simulated
    for flag, is_given in (
        ("--time-scale", request.time_scale is not None),
        ("--fault", request.faults),
    ):
        if is_given and not simulated:
            raise LaunchError(
                "simulated.only", ExitCode.USAGE, flag=flag, engine=engine.identity.label
            )
    engine.refuse(request, host, model)
    check_stored_type(request, model)
    request = with_options(request, engine.identity)
    engine.check_features(request, model)
    if engine.needs_cards:
        _refuse_parts(request, model, engine)


def _refuse_parts(request: Request, model: Model, engine: Engine) -> None:
    """Raise LaunchError for stages, copies or experts that the engine lacks."""
    if engine.inner is not None and has_parts(request.args):
        refuse_layout(request.args, REPLICAS)
    refuse_parts_apart(request)
    stages, _ = parallel_sizes(request.args)
    if request.force:
        return
    refuse_no_experts(request.args, model)
    if stages > 1 and not engine.runs_stages(model):
        raise LaunchError(
            "plan.no_stages", ExitCode.MODEL, engine=engine.identity.label, model=model.name
        )


@dataclass(frozen=True)
class Draft:
    """The decisions before there is a command: settings, and a card's memory.

    ``proposed`` are the engine's settings without those that the user wrote after ``--``.
    """

    context: Context
    settings: tuple[Setting, ...]
    memory: MemoryPlan
    warnings: tuple[Message, ...]
    proposed: tuple[Setting, ...]


def draft(
    request: Request, host: Host, model: Model, engine: Engine, placement: Placement
) -> Draft:
    """Return the settings of one engine (without an inner one) on these cards.

    Raises LaunchError for an impossible request.
    """
    if engine.needs_cards:
        stages, copies = parallel_sizes(request.args)
        model, placement = stage_of(model, stages), replace(placement, parts=stages * copies)
    request = replace(request, unmodelled=engine.unmodelled(request))
    limits = engine.limits(request, host, model)
    request, beyond = hot_within(request, limits)
    context = Context(request, host, model, placement, limits)
    proposal = engine.propose(context)
    if engine.needs_cards:
        proposal = with_scale_out(proposal, context, engine.identity.label)
    warnings: list[Message] = [*placement.warnings, *beyond, *proposal.warnings]
    overruled = (*request.overruled, *overruled_flags(proposal.settings, request))
    if overruled:
        warnings.append(message("plan.overruled", flags=", ".join(overruled)))
    if request.unread_file:
        warnings.append(message("plan.config_unknown", path=request.unread_file))
    warnings += overridden(proposal.settings)
    own = inherited(request.environment, engine.identity.variables, proposal.settings)
    known = engine.settled(context, (*proposal.settings, *own))
    proposed = tuple(known.settings)
    settings = with_user_args(proposed, request.args)
    warnings += known.warnings
    unknown = unmodelled(request, model)
    if unknown:
        warnings.append(message("plan.not_modelled", options=", ".join(unknown)))
    if model.draft is not None and model.draft.source == "assumed":
        warnings.append(message("plan.draft_assumed", model=model.name))
    memory = _memory(engine, settings, context, warnings)
    fitting = engine.fitting(limits, memory.num_blocks)
    if fitting is not engine:
        return draft(request, host, model, fitting, placement)
    if engine.needs_cards:
        warnings += advice(context, settings, memory)
    return Draft(context, settings, memory, tuple(warnings), proposed)


def place(request: Request, host: Host, engine: Engine) -> Placement:
    """Return the cards of this request on this host.

    An engine without cards places nothing.
    """
    if not engine.needs_cards:
        return Placement(modules=())
    placement = engine.place(with_options(request, engine.identity), host)
    if request.chosen is None or request.chosen[1] is None:
        return placement
    return replace(placement, reasons=(request.chosen[1], *placement.reasons))


def _memory(
    engine: Engine, settings: Sequence[Setting], context: Context, warnings: list[Message]
) -> MemoryPlan:
    """Return a card's memory.

    Auto tuning refuses what cannot start, and suggests what would.
    """
    request, model = context.request, context.model
    found = memory_in(context, settings, engine)
    if found.fits is False and found.message is not None:
        if request.tuning == "auto" and not request.force:
            dtype = type_on_card(
                model, settings, engine, request.args, fp8=runs_fp8(request, model)
            )
            ways = remedies(engine, request, cards_in(context), model, dtype, found)
            changes = text("common.between").join(each.render() for each in ways)
            raise LaunchError(
                "fit.plan_refused",
                ExitCode.MACHINE,
                cards=context.placement.tensor,
                why=found.message.render(),
                would=for_modules(request, changes),
            )
        warnings.append(found.message)
    elif found.tight is not None:
        warnings.append(found.tight)
    return found


def _kv_cache(memory: MemoryPlan) -> Message | None:
    """Return the KV cache in blocks, with the loss by cutting it to decode steps.

    Return None where it is unknown.
    """
    if memory.num_blocks is None:
        return None
    if not memory.lost_blocks:
        return message("plan.kv_blocks", blocks=memory.num_blocks, tokens=memory.tokens)
    return message(
        "plan.kv_rounded",
        blocks=memory.num_blocks,
        tokens=memory.tokens,
        lost=memory.lost_blocks,
        gib=f"{memory.lost_blocks * memory.block_bytes / GIB:.1f}",
        step=memory.blocks_step,
    )


def buckets_of(
    engine: Engine,
    settings: Sequence[Setting],
    context: Context,
    warnings: list[Message],
    num_blocks: int | None,
) -> tuple[str, Buckets] | None:
    """Return the strategy and the buckets of these settings.

    None where an option that is not modelled changes them. Shapes without a bucket are a warning,
    but not those of a start script. Settings that the engine itself fails on raise LaunchError
    (USAGE); in reference tuning they are a warning.
    """
    if unmodelled(context.request, context.model):
        return None
    try:
        found = engine.buckets(settings, context, num_blocks)
    except BucketError as error:
        limits = context.limits
        for flag, tokens in (("-l", limits.max_model_len), ("-t", limits.max_num_batched_tokens)):
            if tokens < limits.least_length:
                raise LaunchError(
                    "plan.length_below_block",
                    ExitCode.USAGE,
                    length=tokens,
                    block=limits.least_length,
                    option=written(context.request.args, flag),
                ) from None
        exported = filter(lambda name: "_BUCKET_" in name, context.request.environment)
        names = ", ".join(sorted(exported))
        if context.request.tuning == "auto":
            raise LaunchError(
                "plan.buckets_fail",
                ExitCode.USAGE,
                why=str(error),
                names=names or "VLLM_*_BUCKET_*",
            ) from None
        id = "plan.buckets_fail_script"
        if names:
            id = "plan.buckets_fail"
        warnings.append(message(id, why=str(error), names=names))
        return None
    asked = engine.question(settings, context, num_blocks)
    # an engine without a family promises less than its limits
    if found and asked and asked.family and context.request.tuning == "auto":
        holes = uncovered(found[1], asked.limits)
        if holes.shapes:
            warnings.append(message("plan.uncovered", shapes=holes.shapes))
    return found


def _estimate(
    context: Context,
    engine: Engine,
    buckets: Buckets | None,
    measured: Sequence[Measured],
    *,
    cold: bool,
) -> Estimate | None:
    """Return the duration of the warm-up of these buckets.

    Return None without a list of buckets, and without a warm-up (``cold``).
    """
    if buckets is None or cold:
        return None
    identity, cards, request = engine.identity, context.placement.tensor, context.request
    one = per_graph(
        weight_type(request, context.model),
        False,
        measured,
        engine=identity.exact,
        model=context.model,
        cards=cards,
    )
    return one.of_graphs(buckets.graphs)


def _url(command: Command, identity: EngineIdentity) -> str:
    """Return the address for requests.

    That is the address of the final options, or what a container publishes; for an address of all
    interfaces it is 127.0.0.1.
    """
    if command.container is not None and command.container.ports:
        host, port = command.container.address, str(command.container.ports[0][0])
    else:
        args = command.args(option_table(identity.options))
        host, port = args.last("--host") or "127.0.0.1", args.last("--port") or "8000"
    return f"http://{join(reached(host), port)}"


def _bound(placement: Placement, cpus: tuple[int, ...]) -> Placement:
    """Return the placement with the CPUs that the engine is bound to.

    Unbound, it has no reason for them.
    """
    if cpus:
        return replace(placement, cpus=cpus)
    reasons = tuple(reason for reason in placement.reasons if reason.id != "placement.cpus")
    return replace(placement, cpus=(), reasons=reasons)
