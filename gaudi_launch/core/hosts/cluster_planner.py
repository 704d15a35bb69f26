"""Plan a cluster from a request and the facts of its hosts. Pure.

Engine, layout, plan, and every host's part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines import registry
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.hosts.differences import Seen
from gaudi_launch.core.hosts.layout import Layout, LayoutOptions, choose
from gaudi_launch.core.hosts.parts import RAY_PORT, Addresses, Cluster, PlannedWhole, assemble
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.stages import stage_of
from gaudi_launch.core.planning.effects import with_overrides
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.fit import remedies
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.memory import CardSet, ChosenSettings, memory_for, type_on_card
from gaudi_launch.core.planning.passthrough import (
    HOSTS,
    refuse_layout,
    with_options,
    with_own_words,
)
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request

_LAYOUT_OPTIONS = ("--tensor-parallel-size", "--pipeline-parallel-size", "--host", "--port")
_QUANTISATION = ("QUANT_CONFIG", "INC_MEASUREMENT_DUMP_PATH_PREFIX")


def plan_cluster(
    request: Request,
    seen: Sequence[Seen],
    sizes: LayoutOptions,
    name: str,
    ray_port: int | None,
    interface: str | None,
) -> Cluster:
    """Return one engine, or several in parallel, over these hosts, the head first.

    Raises LaunchError: USAGE for an impossible engine, size or argument, MACHINE for hosts with too
    few cards or too little memory, MODEL for a model that cannot be divided so.
    """
    # the hosts have the folder, this machine need not: then the name and its profile are used
    model = known_model(request.model, False)
    installed = next((one.installed for one in seen if one.software.engine), None)
    word = registry.name_over_hosts(request, installed, model, lambda: _host(seen))
    engine = registry.find(word, installed, request.python or seen[0].member.python)
    _check_engine(engine, request)
    refuse_layout(with_options(request, engine.identity).args, HOSTS)
    request = with_own_words(request, engine.identity, engine.lacks)
    layout = _layout(request, model, engine, seen, sizes)
    over = engine.over_hosts
    if layout.ray and not (over is not None and over.ray) and not request.force:
        raise LaunchError(
            "cluster.no_ray", ExitCode.USAGE, engine=engine.identity.name, hosts=layout.hosts
        )
    # not near a home folder: the folders of the hosts are unknown here
    request = replace(request, files_dir=f"/tmp/gaudi-launch-{name}")
    plan = _shared_cache(request, plan_whole(request, _host(seen), model, engine, layout))
    own = frozenset(s.name for s in plan.settings if s.source in ("flag", "environment")) - {
        *_LAYOUT_OPTIONS
    }
    if request.quant_config is None:
        # -q alone leaves the choice of files to us
        exported = {name for name in _QUANTISATION if name in request.environment}
        own = own - {*_QUANTISATION} | exported
    addresses = Addresses(
        port=int(plan.url.rpartition(":")[2]),
        listen=request.host,
        ray_port=ray_port or RAY_PORT,
        interface=interface,
    )
    cluster = assemble(name, layout, PlannedWhole(plan, engine, own), seen, addresses)
    return _with_memory(cluster, request, model, engine, seen)


def _layout(
    request: Request, model: Model, engine: Engine, seen: Sequence[Seen], sizes: LayoutOptions
) -> Layout:
    """Return the layout, or the reason why there is none.

    A host that lost a card is the reason, not the model's heads.
    """
    cards = _cards(request, seen, engine)
    try:
        return choose(model, engine, len(seen), cards, sizes)
    except LaunchError as error:
        counts = {one.member.name: len(one.host.modules) for one in seen if one.host is not None}
        uneven = len(set(counts.values())) > 1
        if error.id != "cluster.heads" or request.cards is not None or not uneven:
            raise
        shown = "; ".join(f"{name}: {count}" for name, count in counts.items())
        raise LaunchError("cluster.uneven", ExitCode.MACHINE, counts=shown, cards=cards) from None


def _with_memory(
    cluster: Cluster, request: Request, model: Model, engine: Engine, seen: Sequence[Seen]
) -> Cluster:
    """Return the cluster with a card's memory, computed with its settings.

    The plan's was computed with those of a single host. Raises LaunchError (MACHINE) when the
    engine could not start so, unless forced.
    """
    host = _host(seen)
    product = next((card.product or card.device_type for card in host.cards), None)
    stage = stage_of(with_overrides(model, request.args), cluster.layout.pipeline)
    limits = engine.limits(request, host, stage)
    cards = len(_modules(cluster.layout, engine))
    chosen, card_set = ChosenSettings(cluster.settings, request.args), CardSet(cards, product)
    found = memory_for(stage, limits, card_set, engine, chosen)
    if found.fits is False and found.message is not None and not request.force:
        dtype = type_on_card(stage, cluster.settings, engine, request.args)
        ways = remedies(engine, request, card_set, stage, dtype, found)
        would = ", ".join(each.render() for each in ways)
        why = found.message.render()
        raise LaunchError("fit.plan_refused", ExitCode.MACHINE, cards=cards, why=why, would=would)
    return replace(
        cluster, plan=replace(cluster.plan, memory=found.gib, num_blocks=found.num_blocks)
    )


def _check_engine(engine: Engine, request: Request) -> None:
    """Raise LaunchError (USAGE) for an engine not known to run over several hosts."""
    name, over = engine.identity.name, engine.over_hosts
    if over is None:
        known = ", ".join(registry.families(lambda one: one.over_hosts is not None))
        raise LaunchError("cluster.no_engine", ExitCode.USAGE, engine=name, known=known)
    if not over.validated and not request.force:
        raise LaunchError("cluster.unvalidated", ExitCode.USAGE, engine=name)


def _cards(request: Request, seen: Sequence[Seen], engine: Engine) -> int:
    """Return the cards of each host: as requested, else what every host has.

    Raises LaunchError (MACHINE).
    """
    counts = {one.member.name: len(one.host.modules) for one in seen if one.host is not None}
    if not engine.needs_cards:
        return request.cards or 1
    why = next((one.trouble for one in seen if one.trouble is not None), None)
    if request.cards is None and not counts and why is not None:
        raise LaunchError(why.id, ExitCode.MACHINE, **dict(why.values))
    if request.cards is None and not counts:
        counts = {seen[0].member.name: 0}
    wanted = request.cards or 1
    for host, count in counts.items():
        if count < wanted:
            raise LaunchError(
                "cluster.few_cards", ExitCode.MACHINE, host=host, found=count, wanted=wanted
            )
    return request.cards or min(counts.values())


def plan_whole(request: Request, host: Host, model: Model, engine: Engine, layout: Layout) -> Plan:
    """Return the plan of one engine as if all its cards were in one machine.

    The machine is like ``host``; the plan is for the largest stage.
    """
    placement = Placement(_modules(layout, engine))
    request = replace(request, cards=None, modules=None)
    made = make_plan(request, host, stage_of(model, layout.pipeline), engine, placement)
    return replace(
        made, model={**made.model, "layers": model.layers, "parameters": model.parameters}
    )


def _modules(layout: Layout, engine: Engine) -> tuple[int, ...]:
    """Return the cards of one stage, as if they were in one machine."""
    if not engine.needs_cards:
        return ()
    return tuple(range(layout.tensor))


def _host(seen: Sequence[Seen]) -> Host:
    """Return the first host with facts; differences are reported separately."""
    return next((one.host for one in seen if one.host is not None), Host())


def _shared_cache(request: Request, made: Plan) -> Plan:
    """Return the recipe cache only where the user named its folder.

    The default folder on another machine is unknown here.
    """
    if request.cache_dir is not None:
        return made
    name = "PT_HPU_RECIPE_CACHE_CONFIG"
    env = {key: value for key, value in made.command.env.items() if key != name}
    settings = tuple(setting for setting in made.settings if setting.name != name)
    return replace(made, settings=settings, command=replace(made.command, env=env))
