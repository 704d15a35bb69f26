"""Wait until the engines of a cluster answer; copy logs and report failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import standalone
from gaudi_launch.core.hosts import ssh
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.ssh import RemoteError
from gaudi_launch.core.services import probe
from gaudi_launch.core.services.log.follow import Follower
from gaudi_launch.core.services.log.phase_names import phase_id
from gaudi_launch.extensions.cluster.state import Part, RunningCluster, kept_in

Tell = Callable[[Message], None]

# one lost connection in hours is not a failure
_MOST_LOST = 5


@dataclass(frozen=True)
class Waits:
    """Time limits in seconds.

    ``ready`` None: a warm-up over two nodes was seen to take hours
    (HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/README.md).
    """

    copy: float = 6 * 3600.0
    ray: float = 120.0
    ready: float | None = None
    poll: float = 3.0
    workers: float = 30.0
    ask: float = 60.0
    stop: float = 30.0
    # longer than any time in which `up` queries no host: 210 s, for the view of Ray
    lease: float = 600.0


@dataclass
class _Engine:
    """An engine that is waited for. ``offset``: the bytes of its log that are here."""

    part: Part
    log: Path
    follower: Follower = field(default_factory=Follower)
    phase: str = ""
    offset: int = 0

    @property
    def head(self) -> Member:
        return self.part.head.member


class _QueryFailures:
    """The consecutive failures to query each host."""

    def __init__(self) -> None:
        self._lost: dict[str, int] = {}

    def answer(self, member: Member, answer: dict[str, Any] | RemoteError) -> dict[str, Any] | None:
        """Return the answer of the host; None when it could not be queried.

        Raises LaunchError (MACHINE) after too many failures.
        """
        if not isinstance(answer, RemoteError):
            self._lost.pop(member.name, None)
            return answer
        self._lost[member.name] = self._lost.get(member.name, 0) + 1
        if self._lost[member.name] >= _MOST_LOST:
            raise answer.failure()
        return None


def wait_ready(
    running: RunningCluster, logs: Sequence[Path], key: str | None, tell: Tell, waits: Waits
) -> None:
    """Wait until every engine answers a completion.

    Raises LaunchError: ENGINE when one dies or takes longer than ``waits.ready``, MACHINE when a
    host is gone or its Ray ended.
    """
    waited = [_Engine(part, log) for part, log in zip(running.parts, logs, strict=True)]
    for engine in waited:
        tell(message("cluster.waiting", url=engine.part.url, log=str(engine.log)))
    failures = _QueryFailures()
    began = looked = time.monotonic()
    while True:
        waited = [
            engine for engine in waited if not _answers(running, engine, key, failures, tell, waits)
        ]
        if not waited:
            return
        now = time.monotonic()
        if waits.ready is not None and now - began > waits.ready:
            seconds, one = f"{waits.ready:g}", waited[0]
            raise LaunchError(
                "cluster.not_ready",
                ExitCode.ENGINE,
                seconds=seconds,
                url=one.part.url,
                log=str(one.log),
            )
        if running.ray and now - looked > waits.workers:
            _check_workers(running, failures, waits)
            looked = time.monotonic()
        # wait; Ctrl-C is acted on at once
        deadline = time.monotonic() + waits.poll
        while time.monotonic() < deadline:
            interrupt.pause(min(interrupt.TURN_SECONDS, waits.poll))


def _answers(
    running: RunningCluster,
    engine: _Engine,
    key: str | None,
    failures: _QueryFailures,
    tell: Tell,
    waits: Waits,
) -> bool:
    """Return True if the engine answers.

    Its head itself tests it: its address need not be reachable from here.
    """
    answer: dict[str, Any] | RemoteError
    try:
        answer = host_state(
            running, engine.head, ["service"], waits.ask, log="service", offset=engine.offset
        )
    except RemoteError as error:
        answer = error
    found = failures.answer(engine.head, answer)
    if found is None:
        return False
    engine.offset = int(found["offset"])
    _append(engine.log, str(found["log"]))
    progress = engine.follower.feed(str(found["log"]), time.monotonic())
    if progress.phase != engine.phase:
        engine.phase = progress.phase
        tell(message(phase_id(engine.phase)))
    if not found["alive"]["service"]:
        raise _died(engine)
    try:
        there = bool(readiness(engine.part, key, waits)["ready"])
    except RemoteError:
        there = False
    if there:
        tell(message("cluster.ready", url=engine.part.url))
    return there


def _check_workers(running: RunningCluster, failures: _QueryFailures, waits: Waits) -> None:
    """Check that Ray still runs on every host.

    An engine that lost a host may wait for it silently.
    """
    members = running.members

    def one(member: Member) -> dict[str, Any]:
        return host_state(running, member, ["ray"], waits.ask)

    for member, answer in zip(members, ssh.each(members, one), strict=True):
        found = failures.answer(member, answer)
        if found is not None and not found["alive"]["ray"]:
            lines = log_of(running.name, member, "ray").splitlines()[-30:]
            raise LaunchError(
                "cluster.ray_died",
                ExitCode.MACHINE,
                detail="\n".join(lines) or None,
                host=member.name,
            )


def host_state(
    running: RunningCluster, member: Member, names: Sequence[str], seconds: float, **more: Any
) -> dict[str, Any]:
    """Return the state of processes on a host, and renew its lease.

    Raises RemoteError.
    """
    request = {"do": "status", "folder": kept_in(running.name, member), "names": names}
    return ssh.ask(member, {**request, **more}, seconds)


def readiness(part: Part, key: str | None, waits: Waits) -> dict[str, Any]:
    """Return the result of the launcher's prober on the head. Raises RemoteError."""
    request = {
        "do": "ready",
        "url": part.url,
        "seconds": waits.ask / 2,
        "key": key or "",
        "source": standalone(probe.__file__),
    }
    return ssh.ask(part.head.member, request, 2 * waits.ask)


def log_of(name: str, member: Member, what: str) -> str:
    """Return the first MiB of a log on a host, or why it cannot be read."""
    request = {"do": "status", "folder": kept_in(name, member), "names": [], "log": what}
    try:
        return str(ssh.ask(member, request, 30)["log"])
    except RemoteError as error:
        return error.why.render()


def _append(log: Path, text: str) -> None:
    if text:
        with log.open("a", encoding="utf-8") as file:
            file.write(text)


def _died(engine: _Engine) -> LaunchError:
    from gaudi_launch.core.services.diagnosis.diagnose import diagnose
    from gaudi_launch.core.services.diagnosis.failure import causes, last_lines, read_log

    found = diagnose(read_log(engine.log))
    return LaunchError(
        "cluster.died",
        ExitCode.ENGINE,
        detail="\n".join([*last_lines(engine.log), "", *causes(found)]),
        host=engine.head.name,
        log=str(engine.log),
    )
