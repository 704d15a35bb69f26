"""Join hosts, a layout and a plan to a cluster: each host's part. Pure.

The service is on the first host of the user's list, the head. Every variable of the engine is set
before ``ray start`` on every host, because Ray's workers inherit the raylet's environment and the
fork passes on only some names
(HabanaAI/vllm-fork@aice/v1.22.0:vllm/executor/ray_distributed_executor.py). Three differ by host:
VLLM_HOST_IP, GLOO_SOCKET_IFNAME and HCCL_SOCKET_IFNAME (set_worker_node.sh in scripts/quickstart of
HabanaAI/vllm-fork@deepseek_r1).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.server_address import join
from gaudi_launch.core.host.hardware import Host, Interface
from gaudi_launch.core.host.machine import SIMULATED
from gaudi_launch.core.hosts.differences import Seen
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.layout import GAUDI_README, Layout
from gaudi_launch.core.planning.engine import Engine as PlannedEngine
from gaudi_launch.core.planning.engine import Spread
from gaudi_launch.core.planning.passthrough import over
from gaudi_launch.core.planning.placement import choose
from gaudi_launch.core.planning.plan import Command, Kind, Plan, Setting

PER_HOST = ("VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "HABANA_VISIBLE_MODULES")
RAY_PORT = 8850
# set by -q whatever file exists (scripts/quickstart/set_head_node.sh)
_INC = "VLLM_REQUANT_FP8_INC"
# names of interfaces that do not leave the host (assumed: docker, libvirt, Kubernetes network
# plug-ins)
_INSIDE = ("docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "cilium", "kube")


@dataclass(frozen=True)
class Node:
    """One host's part: its address for the others, its cards, its variables."""

    member: Member
    address: str
    interface: str
    modules: tuple[int, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class ClusterEngine:
    """One engine over some hosts; the service runs on the first, its head."""

    nodes: tuple[Node, ...]
    command: Command
    url: str

    @property
    def head(self) -> Node:
        return self.nodes[0]


@dataclass(frozen=True)
class Cluster:
    """The complete cluster.

    ``settings`` are the plan's with what several hosts change; ``model`` and ``recipes`` are the
    folders that every host needs (``recipes`` None: no recipe cache).
    """

    name: str
    layout: Layout
    engines: tuple[ClusterEngine, ...]
    settings: tuple[Setting, ...]
    plan: Plan
    model: str
    recipes: str | None
    ray_port: int
    warnings: tuple[Message, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for engine in self.engines for node in engine.nodes)

    def ray_address(self, engine: ClusterEngine) -> str:
        return join(engine.head.address, self.ray_port)


def reach(member: Member, host: Host | None, interface: str | None = None) -> tuple[str, str]:
    """Return (address, interface) by which the others reach a host.

    From the inventory, else the address that ssh connects to if the host has it, else the interface
    with the default route, else the only one that is up. Raises LaunchError (USAGE) when it is
    unknown.
    """
    known = _usable(host)
    wanted = member.interface or interface
    shown = ", ".join(i.name for i in known) or "-"
    unreached = LaunchError("cluster.unreached", ExitCode.USAGE, host=member.name, known=shown)
    if member.address is not None:
        name = wanted or next((i.name for i in known if member.address in i.addresses), None)
        if name is None:
            raise unreached
        return member.address, name
    chosen = next((i for i in known if i.name == wanted), None)
    if chosen is None and wanted is not None and host is not None and host.interfaces:
        raise LaunchError(
            "cluster.no_interface", ExitCode.USAGE, host=member.name, found=wanted, known=shown
        )
    chosen = chosen or _likely(known, member)
    if chosen is None:
        raise unreached
    address = _addresses(chosen)[0]
    if member.target in chosen.addresses:
        address = member.target
    return address, wanted or chosen.name


def _usable(host: Host | None) -> list[Interface]:
    """Return the interfaces of a host by which others can reach it."""
    if host is None:
        return []
    usable = [i for i in host.interfaces if i.up and _addresses(i)]
    return [i for i in usable if not i.name.startswith(_INSIDE)]


def _likely(known: Sequence[Interface], member: Member) -> Interface | None:
    """Return the interface that ssh connects to, the default one, or the only one."""
    by_target = [interface for interface in known if member.target in interface.addresses]
    by_route = [interface for interface in known if interface.default_route]
    found = [*by_target, *by_route]
    if len(known) == 1:
        found += known
    return next(iter(found), None)


def with_own_address(member: Member, host: Host, number: int) -> Host:
    """Return a simulated machine with an address different from the others'.

    All machines of a kind have the same placeholder. It is replaced by the user's address for the
    host, else by the one that ssh connects to, else by the placeholder plus ``number``.
    """
    try:
        spoken = str(ipaddress.ip_address(member.address or member.target))
    except ValueError:
        spoken = None

    def with_address(interface: Interface) -> Interface:
        if not _addresses(interface):
            return interface
        if spoken and interface.default_route:
            return replace(interface, addresses=(spoken,))
        moved = (str(ipaddress.ip_address(text) + number) for text in interface.addresses)
        return replace(interface, addresses=tuple(moved))

    return replace(host, interfaces=tuple(map(with_address, host.interfaces)))


def _addresses(interface: Interface) -> list[str]:
    """Return addresses that other hosts can use, IPv4 first."""
    found = []
    for text in interface.addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if not (address.is_loopback or address.is_link_local):
            found.append((address.version, text))
    return [text for _, text in sorted(found, key=lambda pair: pair[0])]


@dataclass(frozen=True)
class PlannedWhole:
    """A plan for the cards of all hosts together.

    ``own`` are names that the user decided; they stay. ``measured``: the plan has read the
    QUANT_CONFIG, and its KV cache type is the one for it.
    """

    plan: Plan
    engine: PlannedEngine
    own: frozenset[str] = frozenset()
    measured: bool = False


@dataclass(frozen=True)
class Addresses:
    """The ports, the address and the interface that the hosts listen on."""

    port: int
    listen: str | None = None
    ray_port: int = RAY_PORT
    interface: str | None = None


def changes(
    layout: Layout,
    whole: PlannedWhole,
    *,
    ray_address: str | None = None,
    source: str | None = None,
) -> tuple[Setting, ...]:
    """Return what several hosts change in a plan's settings.

    An option that the user wrote after ``--`` stays: `merged` lists what it overrode.
    ``ray_address`` and ``source`` (the engine's checkout on the hosts) where they are known.
    """
    args = whole.plan.args
    written = {argument.name for argument in args.user}
    decided = {args.canonical(name) for name in whole.own} - written
    proposed: list[Setting] = []

    def add(
        kind: Kind, name: str, value: str | None, id: str, origin: str, **values: object
    ) -> None:
        proposed.append(Setting(name, value, kind, "computed", message(id, **values), origin))

    add("option", "--tensor-parallel-size", str(layout.tensor), "cluster.why_layout", layout.origin)
    stages = layout.pipeline
    if stages > 1:
        add("option", "--pipeline-parallel-size", str(stages), "cluster.why_layout", layout.origin)
        add(
            "env", "PT_HPUGRAPH_DISABLE_TENSOR_CACHE", "0", "cluster.why_tensor_cache", GAUDI_README
        )
        seqs = args.last("--max-num-seqs")
        if seqs is not None and seqs.isdigit():
            less = str(max(1, int(seqs) // stages))
            add("option", "--max-num-seqs", less, "cluster.why_seqs", GAUDI_README, stages=stages)
    spread = Spread(
        whole.plan.settings, layout.tensor, layout.ray, whole.own, source, whole.measured
    )
    if layout.ray:
        add("option", "--distributed-executor-backend", "ray", "cluster.why_ray", layout.origin)
    if layout.ray and ray_address is not None:
        source = "docs: ray.init, RAY_ADDRESS"
        add("env", "RAY_ADDRESS", ray_address, "cluster.why_ray_address", source)
    proposed += whole.engine.spread(spread)
    return tuple(each for each in proposed if args.canonical(each.name) not in decided)


def _value(settings: Sequence[Setting], name: str) -> str | None:
    return next((setting.value for setting in settings if setting.name == name), None)


def merged(plan: Plan, changed: Sequence[Setting]) -> tuple[Setting, ...]:
    """Return a plan's settings with these changes, new ones last.

    Those of a single host are removed.
    """
    args = plan.args
    written = {argument.name for argument in args.user}
    by_name = {args.canonical(setting.name): setting for setting in changed}
    kept = []
    for setting in plan.settings:
        if setting.name in PER_HOST:
            continue
        fresh = by_name.pop(args.canonical(setting.name), None)
        if fresh is None:
            kept.append(setting)
        elif setting.kind == "option" and args.canonical(setting.name) in written:
            kept.append(over(setting, fresh))
        else:
            # a plan shows an option under one name
            kept.append(replace(fresh, name=setting.name))
    return (*kept, *by_name.values())


def changed_command(plan: Plan, changed: Sequence[Setting]) -> Command:
    """Return a plan's command with these options and variables replaced.

    The user's are never replaced.
    """
    args = plan.args
    env = {name: value for name, value in plan.command.env.items() if name not in PER_HOST}
    for setting in changed:
        if setting.kind == "env":
            env[setting.name] = setting.value or ""
        else:
            args = args.with_option(setting.name, setting.value)
    return replace(plan.command, argv=args.to_argv(), env=env, cpus=(), memory_node=None)


def assemble(
    name: str, layout: Layout, whole: PlannedWhole, seen: Sequence[Seen], addresses: Addresses
) -> Cluster:
    """Return every host's part.

    Raises LaunchError (USAGE) when a host's address is unknown or two have the same, and for one
    port that Ray and the service would both listen on.
    """
    plan, port = whole.plan, addresses.port
    if layout.ray and port == addresses.ray_port:
        raise LaunchError("cluster.one_port", ExitCode.USAGE, port=port)
    each = layout.hosts // layout.data
    parts: list[ClusterEngine] = []
    with_cards = bool(plan.placement.modules)
    nodes = [_node(one, layout, addresses.interface, with_cards) for one in seen]
    given = [node.address for node in nodes]
    twice = next((address for address in given if given.count(address) > 1), None)
    if twice is not None:
        raise LaunchError("cluster.twice", ExitCode.USAGE, field="address", found=twice)
    settings: tuple[Setting, ...] = ()
    for start in range(0, len(nodes), each):
        group = tuple(nodes[start : start + each])
        head = group[0]
        ray_address = join(head.address, addresses.ray_port)
        changed = changes(layout, whole, ray_address=ray_address, source=_checkout(seen))
        address = addresses.listen or head.address
        command = _spoken(
            plan, changed, {"--host": address, "--port": str(port)}, head.member.python
        )
        group = tuple(replace(node, env={**command.env, **node.env}) for node in group)
        command = replace(command, env={**command.env, **group[0].env})
        reached = address
        if address in ("0.0.0.0", "::"):
            reached = head.address
        parts.append(ClusterEngine(group, command, f"http://{join(reached, port)}"))
        settings = settings or merged(plan, changed)
    return Cluster(
        name=name,
        layout=layout,
        engines=tuple(parts),
        settings=settings,
        plan=plan,
        model=str(plan.model["path"]),
        recipes=_recipes(plan),
        ray_port=addresses.ray_port,
        warnings=(*layout.warnings, *_made_up(seen), *_warnings(layout, settings)),
    )


def _warnings(layout: Layout, settings: Sequence[Setting]) -> list[Message]:
    """Return the warnings of Ray's open port, and of files that hosts may lack."""
    found = []
    if layout.ray:
        found.append(message("cluster.open_ray"))
    for each in filter(_relative, settings):
        found.append(message("cluster.relative", name=each.name, path=each.value))
    if _value(settings, _INC) == "1" and _value(settings, "QUANT_CONFIG") is None:
        found.append(message("cluster.no_quant"))
    return found


def _made_up(seen: Sequence[Seen]) -> tuple[Message, ...]:
    """Return the hosts with placeholder addresses of simulated machines."""
    hosts = [
        one.member.name
        for one in seen
        if one.member.address is None
        and one.host is not None
        and one.host.origin.startswith(SIMULATED)
        and not any(one.member.target in i.addresses for i in one.host.interfaces)
    ]
    if not hosts:
        return ()
    return (message("cluster.made_up", hosts=", ".join(hosts)),)


def _checkout(seen: Sequence[Seen]) -> str | None:
    """Return the engine's checkout, if it is the same on every host.

    It must contain the quantisation's files.
    """
    found = {one.installed.facts.get("source", "") for one in seen if one.installed is not None}
    path = next(iter(found), "")
    if len(found) > 1 or not path.startswith("/") or "site-packages" in path:
        return None
    return path


def _relative(setting: Setting) -> bool:
    """Return the relative paths, which other hosts cannot resolve."""
    paths = ("QUANT_CONFIG", "INC_MEASUREMENT_DUMP_PATH_PREFIX", "VLLM_BUCKETING_FROM_FILE")
    return setting.name in paths and bool(setting.value) and not str(setting.value).startswith("/")


def _node(one: Seen, layout: Layout, interface: str | None, needs_cards: bool) -> Node:
    try:
        address, name = reach(one.member, one.host, interface)
    except LaunchError:
        if one.trouble is None:
            raise
        # unknown, because it could not be queried
        raise LaunchError(one.trouble.id, ExitCode.MACHINE, **dict(one.trouble.values)) from None
    modules = tuple(range(layout.cards_per_host))
    if needs_cards and one.host is not None:
        try:
            modules = choose(one.host, layout.cards_per_host).modules
        except LaunchError as error:
            why = str(error)
            raise LaunchError(
                "cluster.no_place", ExitCode.MACHINE, host=one.member.name, why=why
            ) from None
    env = {"VLLM_HOST_IP": address, "GLOO_SOCKET_IFNAME": name, "HCCL_SOCKET_IFNAME": name}
    visible = ",".join(str(module) for module in modules)
    return Node(one.member, address, name, modules, {**env, "HABANA_VISIBLE_MODULES": visible})


def _spoken(
    plan: Plan, changed: Sequence[Setting], options: Mapping[str, str], python: str
) -> Command:
    """Return the plan's command with these changes, options and interpreter."""
    command = changed_command(plan, changed)
    args = command.args(plan.args.table)
    for name, value in options.items():
        args = args.with_option(name, value)
    return replace(command, argv=(python, *args.to_argv()[1:]))


def _recipes(plan: Plan) -> str | None:
    value = plan.command.env.get("PT_HPU_RECIPE_CACHE_CONFIG", "")
    folder = value.partition(",")[0]
    if not folder.startswith("/"):
        return None
    return folder
