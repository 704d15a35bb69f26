"""From the options of ``gaudi-launch cluster`` to a cluster, with everything that was found on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.errors import ExitCode, LaunchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gaudi_launch.fleet.cluster import Cluster
    from gaudi_launch.fleet.commands import Copy
    from gaudi_launch.fleet.differences import Difference, Seen
    from gaudi_launch.fleet.inventory import Member
    from gaudi_launch.fleet.layout import Layout
    from gaudi_launch.messages import Message
    from gaudi_launch.models.records import Model
    from gaudi_launch.planning.engine import Engine
    from gaudi_launch.planning.plan import Plan
    from gaudi_launch.planning.request import Request

# what this machine's user exported about its own cards says nothing about others
_OWN_MACHINE = ("HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID")
_LAYOUT_OPTIONS = ("--tensor-parallel-size", "--pipeline-parallel-size", "--host", "--port")
_QUANTISATION = ("QUANT_CONFIG", "INC_MEASUREMENT_DUMP_PATH_PREFIX")
# engines that ask Ray for HPUs. vLLM's CPU platform asks for nothing: "does not support ray" (ray_utils.py)
_RAY_ENGINES = ("vllm-fork", "vllm-gaudi")
_ENGINES = (*_RAY_ENGINES, "cpu")
# warnings with which nothing can come up
_BLOCKING = ("cluster.no_quant", "cluster.made_up")
DEFAULT_NAME = "cluster"


@dataclass(frozen=True)
class Words:
    """The options of a cluster as typed; empty where not given."""

    hosts: str
    inventory: Path | None
    name: str
    tensor: str
    pipeline: str
    data: str
    ray_port: str
    interface: str
    enter: str
    copy: bool = True


@dataclass(frozen=True)
class Case:
    """A cluster with what was found: ``blockers`` keep it from being started, ``missing`` is what nobody has."""

    cluster: Cluster
    seen: tuple[Seen, ...]
    differences: tuple[Difference, ...]
    copies: tuple[Copy, ...]
    missing: tuple[Message, ...]
    asked: bool

    @property
    def blockers(self) -> list[Message]:
        """Why this cluster cannot be started as it is."""
        from gaudi_launch.messages import message

        found = [one.trouble for one in self.seen if one.trouble is not None]
        found += [
            message("cluster.finding", host=one.member.name, check=finding.id, message=finding.message.render())
            for one in self.seen
            for finding in one.findings
            if finding.status == "fail"
        ]
        found += [difference.message for difference in self.differences if difference.level == "fail"]
        found += [warning for warning in self.cluster.warnings if warning.id in _BLOCKING]
        return [*found, *self.missing]


def members(words: Words, python: str | None) -> tuple[Member, ...]:
    """The hosts. Raises LaunchError (USAGE)."""
    from gaudi_launch.fleet.inventory import parse_hosts, read_inventory

    if bool(words.hosts) == (words.inventory is not None):
        raise LaunchError("cluster.which_hosts", ExitCode.USAGE)
    if words.inventory is not None:
        return read_inventory(words.inventory, python, words.enter)
    return parse_hosts(words.hosts, python, words.enter)


def folder_of(name: str) -> Path:
    """Where this machine keeps what it knows of a cluster. Raises LaunchError (USAGE) for a bad name."""
    from gaudi_launch.paths import state_dir
    from gaudi_launch.services.state import check_name

    return state_dir() / "clusters" / check_name(name)


def read(asked: dict[str, Any], words: Words, *, ask: bool) -> Case:
    """The case; ``ask`` connects to the hosts, otherwise their snapshots must do."""
    from gaudi_launch.cli.options import to_request
    from gaudi_launch.fleet.differences import compare
    from gaudi_launch.fleet.remote import gather
    from gaudi_launch.planning.asked import number, with_secret_moved

    for field, flag in (("modules", "-m"), ("machine", "--machine")):
        if asked.get(field) is not None:
            raise LaunchError("cluster.not_here", ExitCode.USAGE, flag=flag)
    request = with_secret_moved(to_request(asked))
    if request.tuning != "auto":
        raise LaunchError("cluster.not_here", ExitCode.USAGE, flag="--tuning reference")
    hosts = members(words, request.python)
    sizes = {
        name: number(flag, text, 1, 4096) if text else None
        for name, flag, text in (
            ("tensor", "--tensor-parallel", words.tensor),
            ("pipeline", "--pipeline-parallel", words.pipeline),
            ("data", "--data-parallel", words.data),
        )
    }
    ray_port = number("--ray-port", words.ray_port, 1, 65535) if words.ray_port else None
    environment = {name: value for name, value in request.environment.items() if name not in _OWN_MACHINE}
    request = replace(request, environment=environment)
    name = words.name or DEFAULT_NAME
    keep = folder_of(name)
    if ask:
        _make(keep)
    folders = [path for path in (request.model, request.cache_dir) if path and path.startswith("/")]
    found = gather(hosts, folders, keep, ask=ask)
    seen = [_judged(one, source, request, at, len(hosts)) for at, (one, source) in enumerate(found)]
    cluster = _cluster(request, seen, sizes, name, ray_port, words.interface or None)
    from gaudi_launch.fleet.commands import copies

    if ask and words.copy:
        wanted, missing = copies(cluster, seen)
    else:
        wanted, missing = [], []
    return Case(cluster, tuple(seen), compare(seen, request.cards), tuple(wanted), tuple(missing), ask)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("serve.state_folder", ExitCode.FAILED, path=str(folder), why=why) from None


def _judged(one: Seen, source: str | None, request: Request, number: int, hosts: int) -> Seen:
    """The host with its Host and the doctor's verdict, where a snapshot tells of it."""
    from gaudi_launch.cli.doctor import engine_facts
    from gaudi_launch.doctor import Wants, quick
    from gaudi_launch.engines.registry import on_cpu
    from gaudi_launch.fleet.cluster import with_own_address
    from gaudi_launch.host.config import load_config
    from gaudi_launch.host.machine import SIMULATED, load, load_document

    if source is None:
        return one
    host, config = load(source), load_config(source)
    engine = engine_facts(one.installed) if one.installed is not None else None
    needs_cards = not on_cpu(request.engine)
    wants = Wants(cards=request.cards, nodes=hosts, gaudi=needs_cards)
    # a snapshot of a simulated machine is one too
    origin = source if source.startswith(SIMULATED) else str(load_document(source)["host"].get("origin", ""))
    if origin.startswith(SIMULATED):
        host = with_own_address(one.member, replace(host, origin=origin), number)
    return replace(one, host=host, findings=tuple(quick(host, config, wants, engine)))


def _cluster(
    request: Request,
    seen: Sequence[Seen],
    sizes: dict[str, int | None],
    name: str,
    ray_port: int | None,
    interface: str | None,
) -> Cluster:
    from gaudi_launch.fleet.cluster import RAY_PORT, assemble
    from gaudi_launch.planning.own_words import refuse_layout, with_own_words
    from gaudi_launch.profiles import known_model

    # the hosts have the folder, this machine need not: then the name and its profile must do
    model = known_model(request.model, False)
    engine = _engine(request, model, seen)
    _check_engine(engine, request)
    refuse_layout(request.extra)
    request = with_own_words(request, engine.lacks)
    layout = _layout(request, model, engine, seen, sizes)
    if layout.ray and engine.identity.name not in _RAY_ENGINES and not request.force:
        raise LaunchError("cluster.no_ray", ExitCode.USAGE, engine=engine.identity.name, hosts=layout.hosts)
    # beside nobody's home: which folders the hosts have is not known here
    request = replace(request, files_dir=f"/tmp/gaudi-launch-{name}")
    plan = _plan(request, model, engine, layout, seen)
    own = frozenset(s.name for s in plan.settings if s.source in ("flag", "environment")) - {*_LAYOUT_OPTIONS}
    if request.quant_config is None:
        # -q alone leaves the choice of files to us
        exported = {name for name in _QUANTISATION if name in request.environment}
        own = own - {*_QUANTISATION} | exported
    cluster = assemble(
        name,
        layout,
        plan,
        seen,
        own=own,
        port=int(plan.url.rpartition(":")[2]),
        listen=request.host,
        ray_port=ray_port or RAY_PORT,
        interface=interface,
    )
    return _with_memory(cluster, request, model, engine, seen)


def _layout(
    request: Request, model: Model, engine: Engine, seen: Sequence[Seen], sizes: dict[str, int | None]
) -> Layout:
    """The layout, or why there is none: a host that lost a card is the reason, not the model's heads."""
    from gaudi_launch.fleet.layout import Asked, choose

    cards = _cards(request, seen, engine)
    try:
        return choose(model, engine.identity.version, len(seen), cards, Asked(**sizes))
    except LaunchError as error:
        counts = {one.member.name: len(one.host.modules) for one in seen if one.host is not None}
        if error.id != "cluster.heads" or request.cards is not None or len(set(counts.values())) < 2:
            raise
        shown = "; ".join(f"{name}: {count}" for name, count in counts.items())
        raise LaunchError("cluster.uneven", ExitCode.MACHINE, counts=shown, cards=cards) from None


def _with_memory(cluster: Cluster, request: Request, model: Model, engine: Engine, seen: Sequence[Seen]) -> Cluster:
    """The cluster with a card's memory under its own settings: the plan's was counted under a single host's.

    Raises LaunchError (MACHINE) when the engine could not start so, unless forced.
    """
    from gaudi_launch.fleet.layout import stage_of
    from gaudi_launch.host.records import Host
    from gaudi_launch.planning.memory import memory_for

    host = next((one.host for one in seen if one.host is not None), Host())
    product = next((card.product or card.device_type for card in host.cards), None)
    stage = stage_of(model, cluster.layout.pipeline)
    limits = engine.limits(request, host, stage)
    identity, cards = engine.identity, cluster.layout.tensor if engine.needs_cards else 0
    found = memory_for(
        stage, limits, cards, product, cluster.settings, identity.name, identity.version, request.extra
    )
    if found.fits is False and found.message is not None and not request.force:
        would = ", ".join(each.render() for each in found.remedies)
        why = found.message.render()
        raise LaunchError("fit.plan_refused", ExitCode.MACHINE, cards=cards, why=why, would=would)
    return replace(cluster, plan=replace(cluster.plan, memory=found.gib, num_blocks=found.num_blocks))


def _engine(request: Request, model: Model, seen: Sequence[Seen]) -> Engine:
    from gaudi_launch.engines import registry
    from gaudi_launch.host.records import Host

    installed = next((one.installed for one in seen if one.installed is not None and one.installed.engine), None)
    host = next((one.host for one in seen if one.host is not None), Host())
    word = registry.name_for(request.engine, installed, model, lambda: host)
    return registry.find(word, installed, request.python or seen[0].member.python)


def _check_engine(engine: Engine, request: Request) -> None:
    """Raises LaunchError (USAGE) for an engine that cannot, or was never seen to, run over several hosts."""
    name = engine.identity.name
    if name not in _ENGINES:
        raise LaunchError("cluster.no_engine", ExitCode.USAGE, engine=name, known=", ".join(_ENGINES))
    # vllm-project/vllm-gaudi@091bbadd:docs/configuration/env_variables.md
    if name == "vllm-gaudi" and not request.force:
        raise LaunchError("cluster.unvalidated", ExitCode.USAGE, engine=name)


def _cards(request: Request, seen: Sequence[Seen], engine: Engine) -> int:
    """Cards of each host: as asked, else what every host has. Raises LaunchError (MACHINE)."""
    counts = {one.member.name: len(one.host.modules) for one in seen if one.host is not None}
    if request.cards is not None:
        short = {name: count for name, count in counts.items() if engine.needs_cards and count < request.cards}
        if short:
            host, count = next(iter(short.items()))
            raise LaunchError("cluster.few_cards", ExitCode.MACHINE, host=host, found=count, wanted=request.cards)
        return request.cards
    if not engine.needs_cards:
        return 1
    if not counts:
        why = next((one.trouble for one in seen if one.trouble is not None), None)
        if why is not None:
            raise LaunchError(why.id, ExitCode.MACHINE, **dict(why.values))
    if not counts or min(counts.values()) == 0:
        host = next((name for name, count in counts.items() if not count), seen[0].member.name)
        raise LaunchError("cluster.few_cards", ExitCode.MACHINE, host=host, found=0, wanted=1)
    return min(counts.values())


def _plan(request: Request, model: Model, engine: Engine, layout: Layout, seen: Sequence[Seen]) -> Plan:
    """The plan of one engine as if all its cards stood in one machine."""
    from gaudi_launch.fleet.layout import stage_of
    from gaudi_launch.host.records import Host
    from gaudi_launch.planning.plan import Placement
    from gaudi_launch.planning.planner import make_plan

    host = next((one.host for one in seen if one.host is not None), Host())
    modules = tuple(range(layout.tensor)) if engine.needs_cards else ()
    whole = replace(request, cards=None)
    made = make_plan(whole, host, stage_of(model, layout.pipeline), engine, Placement(modules))
    made = replace(made, model={**made.model, "layers": model.layers, "parameters": model.parameters})
    return _shared_cache(request, made)


def _shared_cache(request: Request, made: Plan) -> Plan:
    """The recipe cache only where the user named its folder: another machine's home is not known here."""
    if request.cache_dir is not None:
        return made
    name = "PT_HPU_RECIPE_CACHE_CONFIG"
    env = {key: value for key, value in made.command.env.items() if key != name}
    settings = tuple(setting for setting in made.settings if setting.name != name)
    return replace(made, settings=settings, command=replace(made.command, env=env))


def secrets_of(request_environment: dict[str, str]) -> dict[str, str]:
    """The secrets that the user exported, for the engine on its head."""
    from gaudi_launch.fleet.commands import SECRETS

    return {name: request_environment[name] for name in SECRETS if request_environment.get(name)}
