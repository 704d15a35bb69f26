"""Bring a cluster up, look at it, take it down. What is started is written down on its own host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.fleet import remote
from gaudi_launch.fleet.cluster import Cluster, Engine
from gaudi_launch.fleet.commands import Copy, Step, ray_steps, service_step
from gaudi_launch.fleet.differences import Seen
from gaudi_launch.fleet.inventory import Member
from gaudi_launch.fleet.remote import RemoteError
from gaudi_launch.fleet.running import Part, Running, running_of
from gaudi_launch.messages import Message, message
from gaudi_launch.services import ready

Tell = Callable[[Message], None]


@dataclass(frozen=True)
class Waits:
    """Time limits in seconds. ``ready`` None: a warm-up over two nodes was seen to take hours
    (HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/README.md)."""

    copy: float = 6 * 3600.0
    ray: float = 120.0
    ready: float | None = None
    poll: float = 3.0
    ask: float = 60.0
    stop: float = 30.0


@dataclass(frozen=True)
class HostState:
    """One host of a running cluster: its processes' ids (None: not running), or why it cannot be asked."""

    name: str
    alive: Mapping[str, int | None]
    trouble: Message | None = None


@dataclass(frozen=True)
class State:
    """A running cluster as it is. ``ray`` is Ray's own list of nodes of each engine, None where there is none."""

    hosts: tuple[HostState, ...]
    ray: tuple[tuple[dict[str, Any], ...] | None, ...]
    ready: tuple[bool, ...]
    details: tuple[str, ...]

    @property
    def whole(self) -> bool:
        asked = all(host.trouble is None and all(host.alive.values()) for host in self.hosts)
        return (
            asked and all(self.ready) and all(nodes is None or all(n["alive"] for n in nodes) for nodes in self.ray)
        )


def up(
    cluster: Cluster,
    copies: Sequence[Copy],
    secrets: Mapping[str, str],
    log: Path,
    tell: Tell,
    waits: Waits | None = None,
) -> None:
    """Copy, start Ray, start the engines, wait until they answer. What was started is ended again on any failure.

    Raises LaunchError: MACHINE for a host or Ray, ENGINE for an engine that died (its log is in ``log``).
    """
    waits = waits or Waits()
    running = running_of(cluster)
    _check_free(running, waits)
    for copy in copies:
        tell(copy.step.why)
        try:
            remote.do(copy.step, waits.copy)
        except RemoteError as error:
            raise _failed(error) from None
    # Ctrl-C too: nothing may stay behind on hosts that nobody watches
    try:
        for engine, part in zip(cluster.engines, running.parts, strict=True):
            if cluster.layout.ray:
                _start_ray(cluster, engine, part, tell, waits)
            _begin(cluster, service_step(engine, tuple(secrets)), secrets, tell)
        for number, part in enumerate(running.parts):
            path = log if len(running.parts) == 1 else log.with_name(f"{log.stem}-{number}{log.suffix}")
            _wait_ready(running, part, path, secrets.get("VLLM_API_KEY"), tell, waits)
    except BaseException:
        tell(message("cluster.taking_down"))
        down(running.members, cluster.name, waits)
        raise


def _check_free(running: Running, waits: Waits) -> None:
    """Is nothing of this name running? What another start brought up is not ours to end. Raises LaunchError."""

    def one(member: Member) -> dict[str, Any]:
        request = {"do": "status", "folder": _folder(running.name, member), "names": ["service", "ray"]}
        return remote.ask(member, request, waits.ask)

    members = running.members
    for member, answer in zip(members, remote.each(members, one), strict=True):
        if isinstance(answer, RemoteError):
            raise _failed(answer)
        for what, pid in answer["alive"].items():
            if pid:
                raise LaunchError("cluster.runs_already", ExitCode.MACHINE, host=member.name, what=what, pid=pid)


def _folder(name: str, member: Member) -> str:
    # hosts that share a home directory must not share what is written down there
    return f"{name}/{member.name}"


def _begin(cluster: Cluster, step: Step, secrets: Mapping[str, str], tell: Tell) -> None:
    tell(step.why)
    try:
        answer = remote.begin(step, _folder(cluster.name, step.member), secrets)
        if answer.get("exit") is not None:
            text = _log(cluster, step.member, step.name)
            raise LaunchError(
                "cluster.ended_at_once",
                ExitCode.MACHINE if step.name == "ray" else ExitCode.ENGINE,
                detail="\n".join(text.splitlines()[-30:]),
                host=step.member.name,
                what=step.name,
                status=answer["exit"],
            )
    except RemoteError as error:
        raise _failed(error) from None


def _log(cluster: Cluster, member: Member, name: str) -> str:
    request = {"do": "status", "folder": _folder(cluster.name, member), "names": [], "log": name}
    try:
        return str(remote.ask(member, request, 30)["log"])
    except RemoteError as error:
        return error.why.render()


def _start_ray(cluster: Cluster, engine: Engine, part: Part, tell: Tell, waits: Waits) -> None:
    head = engine.head
    _begin(cluster, ray_steps(cluster, engine, True)[0], {}, tell)
    try:
        request = {"do": "listening", "host": head.address, "port": cluster.ray_port, "seconds": waits.ray}
        found = remote.ask(head.member, request, waits.ray + 30)
        if not found.get("open"):
            raise LaunchError(
                "cluster.ray_silent",
                ExitCode.MACHINE,
                detail="\n".join(_log(cluster, head.member, "ray").splitlines()[-30:]),
                host=head.member.name,
                address=cluster.ray_address(engine),
                why=found.get("why", "-"),
            )
        for step in ray_steps(cluster, engine, False):
            _begin(cluster, step, {}, tell)
        tell(message("cluster.joining", nodes=len(engine.nodes)))
        nodes = _ray_nodes(running_of(cluster), part, waits.ray)
    except RemoteError as error:
        raise _failed(error) from None
    cards = sum(int(node["hpu"]) for node in nodes if node["alive"])
    if cards < cluster.layout.world:
        there = {str(node["address"]) for node in nodes if node["alive"]}
        absent = [node for node in engine.nodes if node.address not in there]
        logs = [f"{node.member.name}: {line}" for node in absent
                for line in _log(cluster, node.member, "ray").strip().splitlines()[-10:]]  # fmt: skip
        raise LaunchError(
            "cluster.ray_short",
            ExitCode.MACHINE,
            detail="\n".join(logs) or None,
            found=cards,
            wanted=cluster.layout.world,
            absent=", ".join(node.member.name for node in absent) or "-",
        )


def _ray_nodes(running: Running, part: Part, seconds: float) -> list[dict[str, Any]]:
    request = {
        "do": "nodes",
        "address": running.ray_address(part),
        "ip": part.head.address,
        "wanted": running.cards,
        "seconds": seconds,
    }
    return list(remote.ask(part.head.member, request, seconds + 90)["nodes"])


def _wait_ready(running: Running, part: Part, log: Path, key: str | None, tell: Tell, waits: Waits) -> None:
    """Until the engine answers a completion; its log grows here meanwhile. Raises LaunchError when it dies."""
    from gaudi_launch.services.follow import Follower

    member = part.head.member
    follower, phase, offset = Follower(), "", 0
    began = time.monotonic()
    tell(message("cluster.waiting", url=part.url, log=str(log)))
    lost = 0
    while True:
        request = {
            "do": "status",
            "folder": _folder(running.name, member),
            "names": ["service"],
            "log": "service",
            "offset": offset,
        }
        try:
            found = remote.ask(member, request, waits.ask)
            lost = 0
        except RemoteError as error:
            # one lost connection in hours is no failure
            lost += 1
            if lost >= 5:
                raise _failed(error) from None
            time.sleep(waits.poll)
            continue
        offset = int(found["offset"])
        _append(log, str(found["log"]))
        progress = follower.feed(str(found["log"]), time.monotonic())
        if progress.phase != phase:
            phase = progress.phase
            tell(message(f"serve.phase_{phase}"))
        if not found["alive"]["service"]:
            raise _died(member, log)
        if _answers(part, key, waits):
            tell(message("cluster.ready", url=part.url))
            return
        if waits.ready is not None and time.monotonic() - began > waits.ready:
            seconds = f"{waits.ready:g}"
            raise LaunchError("cluster.not_ready", ExitCode.ENGINE, seconds=seconds, url=part.url, log=str(log))
        time.sleep(waits.poll)


def _answers(part: Part, key: str | None, waits: Waits) -> bool:
    """Asked from the head itself: its address need not be reachable from here."""
    try:
        return bool(_readiness(part, key, waits)["ready"])
    except RemoteError:
        return False


def _readiness(part: Part, key: str | None, waits: Waits) -> dict[str, Any]:
    source = Path(ready.__file__).read_text(encoding="utf-8")
    request = {"do": "ready", "url": part.url, "seconds": waits.ask / 2, "key": key or "", "source": source}
    return remote.ask(part.head.member, request, 2 * waits.ask)


def _append(log: Path, text: str) -> None:
    if text:
        with log.open("a", encoding="utf-8") as file:
            file.write(text)


def _died(member: Member, log: Path) -> LaunchError:
    from gaudi_launch.services.diagnose import diagnose
    from gaudi_launch.services.failure import last_lines, read_log

    found = diagnose(read_log(log))
    causes = [f"{cause.title.render()} {cause.remedy.render()}" for cause in found.causes[:3]]
    return LaunchError(
        "cluster.died",
        ExitCode.ENGINE,
        detail="\n".join([*causes, *last_lines(log)]),
        host=member.name,
        log=str(log),
    )


def _failed(error: RemoteError) -> LaunchError:
    return LaunchError(error.why.id, ExitCode.MACHINE, **dict(error.why.values))


def down(members: Sequence[Member], name: str, waits: Waits | None = None) -> list[tuple[str, str, Message | None]]:
    """End the services, then Ray's workers, then the heads; (host, what, trouble) for each. Hosts that cannot be
    asked do not keep the others from being cleaned."""
    waits = waits or Waits()

    def ended(what: str) -> Callable[[Member], dict[str, Any]]:
        def end(member: Member) -> dict[str, Any]:
            request = {"do": "stop", "folder": _folder(name, member), "names": [what], "patience": waits.stop}
            return remote.ask(member, request, 2 * waits.stop + 60)

        return end

    told: dict[tuple[str, str], Message | None] = {}
    unreachable: set[str] = set()
    # the head is the first of the list and goes last
    for what, order in (("service", members), ("ray", members[1:]), ("ray", members[:1])):
        asked = [member for member in order if member.name not in unreachable]
        for member, answer in zip(asked, remote.each(asked, ended(what)), strict=True):
            if isinstance(answer, RemoteError):
                unreachable.add(member.name)
                told[member.name, "unreachable"] = answer.why
                continue
            how = str(answer.get("ended", {}).get(what, "none"))
            if how != "none":
                trouble = message("cluster.stuck", host=member.name, what=what) if how == "stuck" else None
                told[member.name, what] = trouble
    return [(host, what, trouble) for (host, what), trouble in told.items()]


def status(running: Running, key: str | None, waits: Waits | None = None) -> State:
    """Every host, Ray's own view, and whether the engines answer."""
    waits = waits or Waits()
    heads = {part.head.member.name for part in running.parts}

    def one(member: Member) -> HostState:
        names = [*(["service"] if member.name in heads else []), *(["ray"] if running.ray else [])]
        request = {"do": "status", "folder": _folder(running.name, member), "names": names}
        return HostState(member.name, dict(remote.ask(member, request, waits.ask)["alive"]))

    members = running.members
    hosts = tuple(
        HostState(member.name, {}, answer.why) if isinstance(answer, RemoteError) else answer
        for member, answer in zip(members, remote.each(members, one), strict=True)
    )
    by_name = {host.name: host for host in hosts}
    ray: list[tuple[dict[str, Any], ...] | None] = []
    answers: list[tuple[bool, str]] = []
    for part in running.parts:
        head = by_name[part.head.member.name]
        ray.append(_view(running, part) if running.ray and head.alive.get("ray") else None)
        if not head.alive.get("service"):
            answers.append(
                (False, head.trouble.render() if head.trouble else message("cluster.no_service").render())
            )
            continue
        try:
            found = _readiness(part, key, waits)
            answers.append((bool(found["ready"]), str(found["detail"])))
        except RemoteError as error:
            answers.append((False, error.why.render()))
    return State(hosts, tuple(ray), tuple(ready for ready, _ in answers), tuple(detail for _, detail in answers))


def _view(running: Running, part: Part) -> tuple[dict[str, Any], ...] | None:
    try:
        return tuple(_ray_nodes(running, part, 0.0))
    except RemoteError:
        return None


def gather(
    members: Sequence[Member], folders: Sequence[str], keep: Path | None, *, ask: bool, waits: Waits | None = None
) -> list[tuple[Seen, str | None]]:
    """What is to be known of every host, with the file or word that its Host is loaded from (None: unknown).

    ``ask`` False: nothing is connected to; hosts without a snapshot stay unknown. Snapshots that come over ssh
    are kept in the folder ``keep``.
    """
    import json
    from dataclasses import replace

    waits = waits or Waits()

    def one(member: Member) -> tuple[Seen, str | None]:
        source = member.snapshot
        seen = Seen(member)
        if ask:
            seen = remote.look(member, folders, 2 * waits.ask)
            if source is None and keep is not None:
                document = remote.snapshot(member, waits.ask)
                path = keep / f"{member.name}.json"
                path.write_text(json.dumps(document), encoding="utf-8")
                source = str(path)
        elif source is None:
            seen = replace(seen, trouble=message("cluster.not_asked", host=member.name))
        return seen, source

    return [
        (Seen(member, trouble=answer.why), member.snapshot) if isinstance(answer, RemoteError) else answer
        for member, answer in zip(members, remote.each(members, one), strict=True)
    ]
