"""The use cases of ``gaudi-launch cluster``: plan, start, inspect, end.

A cluster is one engine over several hosts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import OptionRecord, text, value
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.doctor.findings import Wants
from gaudi_launch.core.engines.doctor_facts import engine_facts
from gaudi_launch.core.engines.entries import entry
from gaudi_launch.core.host.host_config import load_config
from gaudi_launch.core.host.machine import SIMULATED, load, load_document
from gaudi_launch.core.hosts.differences import HostDifference, Seen, compare
from gaudi_launch.core.hosts.inventory import Member, parse_hosts, read_inventory
from gaudi_launch.core.hosts.layout import LayoutOptions
from gaudi_launch.core.hosts.parts import Cluster, with_own_address
from gaudi_launch.core.hosts.ssh import gather
from gaudi_launch.core.hosts.steps import SECRETS, Copy, copies
from gaudi_launch.core.launch.launch_request import to_request
from gaudi_launch.core.launch.other_hosts import DEFAULT_NAME, request_of
from gaudi_launch.core.models.config import looks_like_hub_id
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.parse import number, port
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.secret_args import with_secret_moved
from gaudi_launch.core.services.state import store
from gaudi_launch.extensions.cluster import lifecycle
from gaudi_launch.extensions.cluster.lifecycle import State
from gaudi_launch.extensions.cluster.readiness import Tell, Waits
from gaudi_launch.extensions.cluster.state import FILE_NAME, RunningCluster, remembered

# warnings that prevent any launch
_BLOCKING = ("cluster.no_quant", "cluster.made_up")
_HOSTS = "Hosts"
_size = partial(number, most=4096)


@dataclass(frozen=True)
class HostOptions(OptionRecord):
    """The hosts of a cluster and its name as typed; empty where not given."""

    hosts: str = text(
        "--hosts",
        help="Hosts for ssh, the head first; H1=SNAPSHOT reads a file.",
        panel=_HOSTS,
        metavar="H1,H2",
    )
    inventory: str | None = value(
        "--inventory", help="Hosts in a YAML file.", panel=_HOSTS, metavar="FILE"
    )
    name: str = text("--name", help="Name of this cluster.", panel=_HOSTS, metavar="NAME")
    enter: str = text(
        "--enter",
        help="Command that enters the container: 'docker exec -i NAME'.",
        panel=_HOSTS,
        metavar="COMMAND",
    )


@dataclass(frozen=True)
class ClusterOptions(HostOptions):
    """The hosts and the layout of a cluster as typed."""

    tensor: int | None = value(
        "--tensor-parallel",
        help="Tensor parallel size (default: automatic).",
        panel=_HOSTS,
        metavar="N",
        read=_size,
    )
    pipeline: int | None = value(
        "--pipeline-parallel", help="Pipeline stages.", panel=_HOSTS, metavar="N", read=_size
    )
    data: int | None = value(
        "--data-parallel", help="Number of engines.", panel=_HOSTS, metavar="N", read=_size
    )
    ray_port: int | None = value(
        "--ray-port", help="Ray's port (default 8850).", panel=_HOSTS, metavar="PORT", read=port
    )
    interface: str = text(
        "--interface", help="Interface between hosts.", panel=_HOSTS, metavar="NAME"
    )


@dataclass(frozen=True)
class ClusterCase:
    """A cluster with its facts.

    ``blockers`` prevent its launch, ``missing`` exists on no host.
    """

    cluster: Cluster
    seen: tuple[Seen, ...]
    differences: tuple[HostDifference, ...]
    copies: tuple[Copy, ...]
    missing: tuple[Message, ...]
    asked: bool

    @property
    def blockers(self) -> list[Message]:
        """Return why this cluster cannot be started."""
        found = [one.trouble for one in self.seen if one.trouble is not None]
        found += [
            message(
                "cluster.finding",
                host=one.member.name,
                check=finding.title.render(),
                message=finding.message.render(),
            )
            for one in self.seen
            for finding in one.findings
            if finding.status == "fail"
        ]
        found += [
            difference.message for difference in self.differences if difference.level == "fail"
        ]
        found += [warning for warning in self.cluster.warnings if warning.id in _BLOCKING]
        return [*found, *self.missing]


def members(words: HostOptions, python: str | None) -> tuple[Member, ...]:
    """Return the hosts. Raises LaunchError (USAGE)."""
    if bool(words.hosts) == bool(words.inventory):
        raise LaunchError("cluster.which_hosts", ExitCode.USAGE)
    if words.inventory:
        return read_inventory(Path(words.inventory), python, words.enter)
    return parse_hosts(words.hosts, python, words.enter)


def folder_of(name: str) -> Path:
    """Return the folder of a cluster's record on this machine.

    Raises LaunchError (USAGE) for a bad name.
    """
    return state_dir() / "clusters" / store.check_name(name)


def read(options: LaunchOptions, words: ClusterOptions, *, ask: bool) -> ClusterCase:
    """Return the case.

    ``ask`` connects to the hosts; otherwise their snapshots must suffice.
    """
    from gaudi_launch.core.hosts.cluster_planner import plan_cluster

    request = request_of(options)
    hosts = members(words, request.python)

    sizes = LayoutOptions(words.tensor, words.pipeline, words.data)
    name = words.name or DEFAULT_NAME
    keep = folder_of(name)
    if ask:
        store.make_private(keep)
    folders = [path for path in (request.model, request.cache_dir) if path and path.startswith("/")]
    found = gather(hosts, folders, keep, ask=ask)
    seen = [_judged(one, source, request, at, len(hosts)) for at, (one, source) in enumerate(found)]
    cluster = plan_cluster(request, seen, sizes, name, words.ray_port, words.interface or None)
    unknown = _unknown_name(request)
    cluster = replace(cluster, warnings=(*unknown, *cluster.warnings))
    if ask:
        wanted, missing = copies(cluster, seen)
    else:
        wanted, missing = [], []
    return ClusterCase(
        cluster, tuple(seen), compare(seen, request.cards), tuple(wanted), tuple(missing), ask
    )


def _unknown_name(request: Request) -> tuple[Message, ...]:
    """Return the warning for a hub ID that is not known; a folder is on the hosts."""
    from gaudi_launch.core.planning.known_model import known_model
    from gaudi_launch.core.planning.model_name import name_warning

    if not looks_like_hub_id(request.model):
        return ()
    return name_warning(request.model, known_model(request.model, must_exist=False))


def _judged(one: Seen, source: str | None, request: Request, number: int, hosts: int) -> Seen:
    """Return the host with its Host and the doctor's verdict, by its snapshot."""
    from gaudi_launch.core.doctor.runner import quick

    if source is None:
        return one
    host, config = load(source), load_config(source)
    engine = mapped(engine_facts, one.installed)
    needs_cards = not entry(request.engine).built
    wants = Wants(cards=request.cards, nodes=hosts, gaudi=needs_cards)
    # a snapshot of a simulated machine is one too
    if source.startswith(SIMULATED):
        origin = source
    else:
        origin = str(load_document(source)["host"].get("origin", ""))
    if origin.startswith(SIMULATED):
        host = with_own_address(one.member, replace(host, origin=origin), number)
    return replace(one, host=host, findings=tuple(quick(host, config, wants, engine)))


def check_ready(case: ClusterCase) -> None:
    """Raise LaunchError (MACHINE) naming everything that prevents the launch."""
    blockers = case.blockers
    if blockers:
        lines = "\n".join(f"  {blocker.render()}" for blocker in blockers)
        raise LaunchError("cluster.blocked", ExitCode.MACHINE, detail=lines, count=len(blockers))


def up(
    case: ClusterCase, options: LaunchOptions, tell: Tell, *, ready_seconds: float | None
) -> None:
    """Start the cluster, wait until it answers and leave it running.

    ``ready_seconds`` None: no timeout. Raises LaunchError as `extensions.cluster.lifecycle.up`
    does.
    """
    exported = with_secret_moved(to_request(options)).environment
    # those that the user exported for the engine on its head
    secrets = {name: exported[name] for name in SECRETS if exported.get(name)}
    folder = folder_of(case.cluster.name)
    waits = Waits(ready=ready_seconds)
    lifecycle.up(case.cluster, case.copies, secrets, folder, tell, waits)


def status(name: str) -> tuple[RunningCluster, State]:
    """Return the record and the present state of a cluster.

    Raises LaunchError for an unknown one.
    """
    running = remembered(folder_of(name or DEFAULT_NAME))
    return running, lifecycle.status(running, os.environ.get("VLLM_API_KEY"))


def to_end(words: HostOptions, python: str | None) -> tuple[str, tuple[Member, ...]]:
    """Return the name of a cluster and its hosts.

    They are the given ones, else the recorded ones. Raises LaunchError.
    """
    folder = folder_of(words.name or DEFAULT_NAME)
    if words.hosts or words.inventory:
        return folder.name, members(words, python)
    return folder.name, remembered(folder).members


def down(name: str, hosts: Sequence[Member]) -> dict[tuple[str, str], Message | None]:
    """End a cluster on its hosts, and delete its record where none of it remains."""
    ended = lifecycle.down(hosts, name)
    if all(trouble is None for trouble in ended.values()):
        (folder_of(name) / FILE_NAME).unlink(missing_ok=True)
    return ended
