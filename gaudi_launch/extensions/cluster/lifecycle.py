"""Start a cluster, show its state, stop it.

Started processes are recorded on their hosts.
"""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.hosts import ssh
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.parts import Cluster, ClusterEngine
from gaudi_launch.core.hosts.ssh import RemoteError
from gaudi_launch.core.hosts.steps import Copy, HostStep, ray_steps, service_step
from gaudi_launch.extensions.cluster.readiness import (
    Tell,
    Waits,
    host_state,
    log_of,
    readiness,
    wait_ready,
)
from gaudi_launch.extensions.cluster.state import (
    FILE_NAME,
    Part,
    RunningCluster,
    kept_in,
    remember,
    remembered,
    running_of,
)

_log = logging.getLogger(__name__)


# of a process that ended at once, by its name; an engine's by default
_ENDED = {"ray": ExitCode.MACHINE}


@dataclass(frozen=True)
class HostState:
    """One host of a running cluster: its processes' IDs (None: not running).

    ``trouble`` is the reason why it cannot be queried.
    """

    name: str
    alive: Mapping[str, int | None]
    trouble: Message | None = None


@dataclass(frozen=True)
class State:
    """The state of a running cluster.

    ``ray`` is Ray's list of nodes of each engine, None where there is none.
    """

    hosts: tuple[HostState, ...]
    ray: tuple[tuple[dict[str, Any], ...] | None, ...]
    ready: tuple[bool, ...]
    details: tuple[str, ...]

    @property
    def whole(self) -> bool:
        asked = all(host.trouble is None and all(host.alive.values()) for host in self.hosts)
        return (
            asked
            and all(self.ready)
            and all(nodes is None or all(n["alive"] for n in nodes) for nodes in self.ray)
        )


def up(
    cluster: Cluster,
    copies: Sequence[Copy],
    secrets: Mapping[str, str],
    folder: Path,
    tell: Tell,
    waits: Waits | None = None,
) -> None:
    """Copy, start Ray, start the engines, wait until they answer.

    All of it is ended again on any failure, on Ctrl-C and on SIGTERM and SIGHUP; a host that is
    lost, or loses this program, ends it itself after ``waits.lease``. ``folder``: where this
    machine stores the state of the cluster.

    Raises LaunchError: MACHINE for a host or Ray, ENGINE for an engine that died (its log is in
    ``folder``).
    """
    waits = waits or Waits()
    running = running_of(cluster)
    begun: list[Member] = []
    with interrupt.deferred(signal.SIGTERM, signal.SIGHUP):
        _check_free(running, folder, waits)
        logs = remember(folder, running)
        try:
            for copy in copies:
                tell(copy.step.why)
                try:
                    ssh.do(copy.step, waits.copy)
                except RemoteError as error:
                    raise error.failure() from None
            for engine, part in zip(cluster.engines, running.parts, strict=True):
                if cluster.layout.ray:
                    _start_ray(cluster, engine, part, begun, tell, waits)
                _renew(running, begun, waits)
                step = service_step(engine, tuple(secrets))
                _begin(cluster, step, secrets, begun, tell, waits)
            wait_ready(running, logs, secrets.get("VLLM_API_KEY"), tell, waits)

            # without a lease the cluster continues without this program
            def one(member: Member) -> None:
                request = {"do": "release", "folder": kept_in(running.name, member)}
                ssh.ask(member, request, waits.ask)

            for answer in ssh.each(running.members, one):
                if isinstance(answer, RemoteError):
                    raise answer.failure()
        except BaseException:
            # no process may remain on unattended hosts: a second Ctrl-C does not stop this
            with _signals(
                dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.SIG_IGN)
            ):
                interrupt.forget()
                _take_down(running, begun, folder, tell, waits)
            raise


@contextlib.contextmanager
def _signals(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Install these handlers within the ``with`` block.

    A signal that is ignored (nohup) stays ignored.
    """
    kept = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        if kept[number] is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _take_down(
    running: RunningCluster, begun: Sequence[Member], folder: Path, tell: Tell, waits: Waits
) -> None:
    """End what this launch began, and no more.

    Another launch may have come before it on a host.
    """

    def say(what: Message) -> None:
        # a terminal that was closed accepts no output, and a broken pipe would end the program
        # (rich's Console.on_broken_pipe); the hosts must be cleaned nevertheless
        with best_effort(_log, "report the end of the cluster", OSError, SystemExit):
            tell(what)

    mine = [member for member in running.members if member in begun]
    if mine:
        say(message("cluster.taking_down"))
    ended = down(mine, running.name, waits)
    troubles = {host: trouble for (host, _), trouble in ended.items() if trouble is not None}
    for trouble in troubles.values():
        say(trouble)
    if troubles:
        minutes = f"{waits.lease / 60:.0f}"
        say(message("cluster.left", hosts=", ".join(troubles), minutes=minutes))
    else:
        (folder / FILE_NAME).unlink(missing_ok=True)


def _check_free(running: RunningCluster, folder: Path, waits: Waits) -> None:
    """Check that no process of this name runs on the hosts.

    They are this machine and the hosts of an earlier launch.

    What another launch started is not ended here. Raises LaunchError.
    """

    def one(member: Member) -> dict[str, Any]:
        return host_state(running, member, ["service", "ray"], waits.ask)

    members = running.members
    if (folder / FILE_NAME).exists():
        now = {(member.name, member.ssh) for member in members}
        members += tuple(m for m in remembered(folder).members if (m.name, m.ssh) not in now)
    for member, answer in zip(members, ssh.each(members, one), strict=True):
        if isinstance(answer, RemoteError):
            if member in running.members:
                raise answer.failure()
            why = answer.why.render()
            raise LaunchError(
                "cluster.former",
                ExitCode.MACHINE,
                name=running.name,
                host=member.name,
                ssh=member.ssh,
                why=why,
            )
        for what, pid in answer["alive"].items():
            if pid:
                raise LaunchError(
                    "cluster.runs_already", ExitCode.MACHINE, host=member.name, what=what, pid=pid
                )


def _renew(running: RunningCluster, begun: Sequence[Member], waits: Waits) -> None:
    """Renew the lease of what was begun, while other hosts are started."""

    def one(member: Member) -> None:
        host_state(running, member, [], waits.ask)

    ssh.each([member for member in running.members if member in begun], one)


def _begin(
    cluster: Cluster,
    step: HostStep,
    secrets: Mapping[str, str],
    begun: list[Member],
    tell: Tell,
    waits: Waits,
) -> None:
    tell(step.why)
    first = step.member not in begun
    begun.append(step.member)
    try:
        folder = kept_in(cluster.name, step.member)
        answer = ssh.begin(step, folder, secrets, lease=waits.lease)
        if answer.get("exit") is not None:
            text = log_of(cluster.name, step.member, step.name)
            raise LaunchError(
                "cluster.ended_at_once",
                _ENDED.get(step.name, ExitCode.ENGINE),
                detail="\n".join(text.splitlines()[-30:]),
                host=step.member.name,
                what=step.name,
                status=answer["exit"],
            )
    except RemoteError as error:
        if first and error.why.id == "cluster.runs_already":
            begun.remove(step.member)
        raise error.failure() from None


def _start_ray(
    cluster: Cluster,
    engine: ClusterEngine,
    part: Part,
    begun: list[Member],
    tell: Tell,
    waits: Waits,
) -> None:
    head = engine.head
    _renew(running_of(cluster), begun, waits)
    _begin(cluster, ray_steps(cluster, engine, True)[0], {}, begun, tell, waits)
    try:
        request = {
            "do": "listening",
            "host": head.address,
            "port": cluster.ray_port,
            "seconds": waits.ray,
        }
        found = ssh.ask(head.member, request, waits.ray + 30)
        if not found.get("open"):
            raise LaunchError(
                "cluster.ray_silent",
                ExitCode.MACHINE,
                detail="\n".join(log_of(cluster.name, head.member, "ray").splitlines()[-30:]),
                host=head.member.name,
                address=cluster.ray_address(engine),
                why=found.get("why", "-"),
            )
        for step in ray_steps(cluster, engine, False):
            _renew(running_of(cluster), begun, waits)
            _begin(cluster, step, {}, begun, tell, waits)
        _renew(running_of(cluster), begun, waits)
        tell(message("cluster.joining", nodes=len(engine.nodes)))
        nodes = _ray_nodes(running_of(cluster), part, waits.ray)
    except RemoteError as error:
        raise error.failure() from None
    _check_joined(cluster, engine, nodes)


def _check_joined(
    cluster: Cluster, engine: ClusterEngine, nodes: Sequence[Mapping[str, Any]]
) -> None:
    """Raise LaunchError (MACHINE) where Ray has fewer cards than the engine needs."""
    cards = sum(int(node["hpu"]) for node in nodes if node["alive"])
    if cards < cluster.layout.world:
        there = {str(node["address"]) for node in nodes if node["alive"]}
        absent = [node for node in engine.nodes if node.address not in there]
        logs = [f"{node.member.name}: {line}" for node in absent
                for line in log_of(cluster.name, node.member,
                                   "ray").strip().splitlines()[-10:]]  # fmt: skip
        raise LaunchError(
            "cluster.ray_short",
            ExitCode.MACHINE,
            detail="\n".join(logs) or None,
            found=cards,
            needed=cluster.layout.world,
            absent=", ".join(node.member.name for node in absent) or "-",
        )


def _ray_nodes(running: RunningCluster, part: Part, seconds: float) -> list[dict[str, Any]]:
    request = {
        "do": "nodes",
        "address": running.ray_address(part),
        "ip": part.head.address,
        "wanted": running.cards,
        "seconds": seconds,
    }
    return list(ssh.ask(part.head.member, request, seconds + 90)["nodes"])


def down(
    members: Sequence[Member], name: str, waits: Waits | None = None
) -> dict[tuple[str, str], Message | None]:
    """End the services, then Ray's workers, then the heads.

    Return each host with what was ended there (service, ray, unreachable), and why it was not.
    Unreachable hosts do not keep the others from being cleaned.
    """
    waits = waits or Waits()

    def ended(what: str) -> Callable[[Member], dict[str, Any]]:
        def end(member: Member) -> dict[str, Any]:
            request = {
                "do": "stop",
                "folder": kept_in(name, member),
                "names": [what],
                "timeout": waits.stop,
            }
            return ssh.ask(member, request, 2 * waits.stop + 60)

        return end

    results: dict[tuple[str, str], Message | None] = {}
    unreachable: set[str] = set()
    # the head is the first of the list and is ended last
    for what, order in (("service", members), ("ray", members[1:]), ("ray", members[:1])):
        asked = [member for member in order if member.name not in unreachable]
        for member, answer in zip(asked, ssh.each(asked, ended(what)), strict=True):
            if isinstance(answer, RemoteError):
                unreachable.add(member.name)
                results[member.name, "unreachable"] = answer.why
                continue
            how = str(answer.get("ended", {}).get(what, "none"))
            if how != "none":
                trouble = None
                if how == "stuck":
                    trouble = message("cluster.stuck", host=member.name, what=what)
                results[member.name, what] = trouble
    return results


def status(running: RunningCluster, key: str | None, waits: Waits | None = None) -> State:
    """Return the state of every host, Ray's view, and whether the engines answer."""
    waits = waits or Waits()
    heads = {part.head.member.name for part in running.parts}

    def one(member: Member) -> HostState:
        names = []
        if member.name in heads:
            names.append("service")
        if running.ray:
            names.append("ray")
        alive = host_state(running, member, names, waits.ask)["alive"]
        return HostState(member.name, dict(alive))

    members = running.members
    hosts = tuple(
        ssh.each_or(members, one, lambda member, error: HostState(member.name, {}, error.why))
    )
    by_name = {host.name: host for host in hosts}
    ray: list[tuple[dict[str, Any], ...] | None] = []
    answers: list[tuple[bool, str]] = []
    for part in running.parts:
        head = by_name[part.head.member.name]
        view = None
        if running.ray and head.alive.get("ray"):
            view = _view(running, part)
        ray.append(view)
        if not head.alive.get("service"):
            why = head.trouble or message("cluster.no_service")
            answers.append((False, why.render()))
            continue
        try:
            found = readiness(part, key, waits)
            answers.append((bool(found["ready"]), str(found["detail"])))
        except RemoteError as error:
            answers.append((False, error.why.render()))
    return State(
        hosts,
        tuple(ray),
        tuple(ready for ready, _ in answers),
        tuple(detail for _, detail in answers),
    )


def _view(running: RunningCluster, part: Part) -> tuple[dict[str, Any], ...] | None:
    try:
        return tuple(_ray_nodes(running, part, 0.0))
    except RemoteError as error:
        _log.debug("Ray's nodes are not known: %s", error)
        return None
