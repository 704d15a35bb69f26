"""From the options of ``gaudi-launch cluster`` to a cluster, with everything that was found on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.errors import ExitCode, LaunchError

if TYPE_CHECKING:
    from gaudi_launch.fleet.cluster import Cluster
    from gaudi_launch.fleet.commands import Copy
    from gaudi_launch.fleet.differences import Difference, Seen
    from gaudi_launch.fleet.inventory import Member
    from gaudi_launch.messages import Message
    from gaudi_launch.planning.request import Request

# what this machine's user exported about its own cards says nothing about others
_OWN_MACHINE = ("HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "HLS_MODULE_ID")
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
    from gaudi_launch.fleet.commands import copies
    from gaudi_launch.fleet.differences import compare
    from gaudi_launch.fleet.layout import Asked
    from gaudi_launch.fleet.planned import plan_cluster
    from gaudi_launch.fleet.remote import gather
    from gaudi_launch.planning.asked import number, with_secret_moved

    for field, flag in (("modules", "-m"), ("machine", "--machine")):
        if asked.get(field) is not None:
            raise LaunchError("cluster.not_here", ExitCode.USAGE, flag=flag)
    request = with_secret_moved(to_request(asked))
    if request.tuning != "auto":
        raise LaunchError("cluster.not_here", ExitCode.USAGE, flag="--tuning reference")
    hosts = members(words, request.python)
    sizes = Asked(
        *(
            number(flag, text, 1, 4096) if text else None
            for flag, text in (
                ("--tensor-parallel", words.tensor),
                ("--pipeline-parallel", words.pipeline),
                ("--data-parallel", words.data),
            )
        )
    )
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
    cluster = plan_cluster(request, seen, sizes, name, ray_port, words.interface or None)
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


def secrets_of(request_environment: dict[str, str]) -> dict[str, str]:
    """The secrets that the user exported, for the engine on its head."""
    from gaudi_launch.fleet.commands import SECRETS

    return {name: request_environment[name] for name in SECRETS if request_environment.get(name)}
