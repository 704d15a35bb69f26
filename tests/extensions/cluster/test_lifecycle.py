"""A cluster whose hosts answer from a function: started, shown, ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.hosts.parts import Cluster
from gaudi_launch.core.hosts.steps import Copy, HostStep
from gaudi_launch.extensions.cluster.lifecycle import State, status, up
from gaudi_launch.extensions.cluster.readiness import Waits
from gaudi_launch.extensions.cluster.state import FILE_NAME, RunningCluster, running_of
from tests.support.scripted_hosts import GONE, WHY, Request, cluster, failed, gone, member, scripted

WAITS = Waits(copy=11.0, ray=12.0, ask=13.0, stop=14.0, lease=120.0)
READY = {"ready": True, "stage": "", "detail": "it answers", "model": "m"}
NODES = [{"address": f"10.0.0.{number}", "alive": True, "hpu": 2} for number in (1, 2)]
FREE: Mapping[str, Mapping[str, Any]] = {
    "status": {"alive": {}, "log": "", "offset": 0},
    "start": {"pid": 7, "exit": None},
    "listening": {"open": True},
    "nodes": {"nodes": NODES},
    "ready": READY,
    "release": {},
    "run": {"code": 0, "output": ""},
    "stop": {"ended": {"service": "ended", "ray": "ended"}},
}
Reply = Callable[[str, Request], Mapping[str, Any]]


def served(name: str, request: Request) -> Mapping[str, Any]:
    """Answer as a host on which everything works."""
    if request["do"] == "status" and request["names"] == ["service"]:
        return {"alive": {"service": 7}, "log": "", "offset": 0}
    return FREE[request["do"]]


def but(do: str, reply: Reply) -> Reply:
    """Answer one kind of request differently."""
    return lambda name, request: (reply if request["do"] == do else served)(name, request)


class Launch:
    """A launch in a folder: what it reports, and the kinds of its requests by host."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.told: list[Message] = []
        self.monkeypatch = monkeypatch
        self.done: list[tuple[str, Request, float]] = []

    def __call__(
        self,
        made: Cluster,
        reply: Reply = served,
        secrets: Mapping[str, str] | None = None,
        copies: tuple[Copy, ...] = (),
    ) -> None:
        hosts = scripted(self.monkeypatch, reply)
        self.done = hosts.asked
        up(made, copies, secrets or {}, self.folder, self.told.append, WAITS)

    def kinds(self, *kinds: str) -> list[tuple[str, str]]:
        return [(name, each["do"]) for name, each, _ in self.done if each["do"] in kinds]


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    return Launch(tmp_path, monkeypatch)


def started(step: HostStep, secrets: Mapping[str, str] | None = None) -> tuple[str, Request, float]:
    """Return the request that begins a step."""
    request = {
        "do": "start",
        "folder": f"c/{step.member.name}",
        "name": step.name,
        "argv": list(step.argv),
        "env": dict(step.env),
        "files": dict(step.files),
        "secrets": secrets or {},
        "settle": 2.0,
        "lease": 120.0,
    }
    return step.member.name, request, 62.0


def stopped(name: str, what: str) -> tuple[str, Request, float]:
    request = {"do": "stop", "folder": f"c/{name}", "names": [what], "timeout": 14.0}
    return name, request, 88.0


COPY = Copy(HostStep(member("a"), ("rsync", "x"), WHY), "/m", "a", "b")


def test_a_copy_that_fails_ends_the_launch(launch: Launch) -> None:
    full = but("run", lambda name, request: {"code": 1, "output": "no\nspace left\n"})
    values = {"host": "a", "program": "rsync", "why": "space left"}
    assert failed(lambda: launch(cluster("a"), full, copies=(COPY,))) == (
        "cluster.step_failed", ExitCode.MACHINE, values, None,
    )  # fmt: skip
    assert launch.kinds("start", "stop") == []
    assert (launch.told, (launch.folder / FILE_NAME).exists()) == ([WHY], False)


def test_a_port_that_ray_does_not_open(launch: Launch) -> None:
    lines = "".join(f"line {number}\n" for number in range(40))

    def reply(name: str, request: Request) -> Mapping[str, Any]:
        if request["do"] == "listening":
            return {"open": False, "why": "refused"}
        if request.get("log") == "ray":
            return {"alive": {}, "log": lines, "offset": 0}
        return served(name, request)

    values = {"host": "a", "address": "10.0.0.1:8850", "why": "refused"}
    shown = "\n".join(f"line {number}" for number in range(10, 40))
    assert failed(lambda: launch(cluster("ab"), reply)) == (
        "cluster.ray_silent", ExitCode.MACHINE, values, shown,
    )  # fmt: skip
    # only what was begun is ended: the engine, then Ray of the head
    assert launch.done[-2:] == [stopped("a", "service"), stopped("a", "ray")]
    assert launch.told[-1] == message("cluster.taking_down")
    assert not (launch.folder / FILE_NAME).exists()


def test_a_host_that_does_not_join(launch: Launch) -> None:
    lines = "".join(f"line {number}\n" for number in range(20))
    dead = [NODES[0], {**NODES[1], "alive": False}]

    def reply(name: str, request: Request) -> Mapping[str, Any]:
        if request["do"] == "nodes":
            return {"nodes": dead}
        if request.get("log") == "ray":
            return {"alive": {}, "log": lines, "offset": 0}
        return served(name, request)

    values = {"found": 2, "needed": 4, "absent": "b"}
    shown = "\n".join(f"b: line {number}" for number in range(10, 20))
    assert failed(lambda: launch(cluster("ab"), reply)) == (
        "cluster.ray_short", ExitCode.MACHINE, values, shown,
    )  # fmt: skip
    assert launch.kinds("stop") == [("a", "stop"), ("b", "stop"), ("b", "stop"), ("a", "stop")]


def test_hosts_that_join_with_fewer_cards(launch: Launch) -> None:
    few = but("nodes", lambda name, request: {"nodes": [NODES[0], {**NODES[1], "hpu": 1}]})
    values = {"found": 3, "needed": 4, "absent": "-"}
    assert failed(lambda: launch(cluster("ab"), few)) == (
        "cluster.ray_short", ExitCode.MACHINE, values, None,
    )  # fmt: skip


def test_what_another_launch_began_meanwhile_is_not_ended(launch: Launch) -> None:
    running = but("start", lambda name, request: {"running": 9})
    values = {"host": "a", "what": "service", "pid": 9}
    failure = ("cluster.runs_already", ExitCode.MACHINE, values, None)
    assert failed(lambda: launch(cluster("a"), running)) == failure
    assert launch.kinds("stop") == []

    # but Ray of this launch is
    def reply(name: str, request: Request) -> Mapping[str, Any]:
        ray = request["do"] != "start" or request["name"] == "ray"
        return served(name, request) if ray else {"running": 9}

    assert failed(lambda: launch(cluster("ab"), reply)) == failure
    assert launch.kinds("stop") == [("a", "stop"), ("b", "stop"), ("b", "stop"), ("a", "stop")]


def test_a_start_of_unknown_outcome_is_ended(launch: Launch) -> None:
    lost = but("start", lambda name, request: gone())
    failure = (GONE.id, ExitCode.MACHINE, GONE.values, None)
    assert failed(lambda: launch(cluster("a"), lost)) == failure
    assert launch.kinds("stop") == [("a", "stop"), ("a", "stop")]


@pytest.mark.parametrize("do", ["listening", "nodes", "release"])
def test_a_host_that_is_lost_ends_the_launch(launch: Launch, do: str) -> None:
    lost = but(do, lambda name, request: gone())
    failure = (GONE.id, ExitCode.MACHINE, GONE.values, None)
    assert failed(lambda: launch(cluster("ab"), lost)) == failure
    assert ("a", "stop") in launch.kinds("stop")


def test_hosts_that_could_not_be_cleaned_are_named(launch: Launch) -> None:
    def reply(name: str, request: Request) -> Mapping[str, Any]:
        if request["do"] == "release":
            gone()
        if request["do"] == "stop" and name == "b":
            return {"ended": {"ray": "stuck"}}
        return served(name, request)

    failed(lambda: launch(cluster("ab"), reply))
    assert launch.told[-3:] == [
        message("cluster.taking_down"),
        message("cluster.stuck", host="b", what="ray"),
        message("cluster.left", hosts="b", minutes="2"),
    ]
    # `down` must still find it
    assert (launch.folder / FILE_NAME).exists()


def shown(
    monkeypatch: pytest.MonkeyPatch, reply: Reply, running: RunningCluster | None = None
) -> tuple[State, list[tuple[str, Request, float]]]:
    hosts = scripted(monkeypatch, reply)
    return status(running or running_of(cluster("ab")), "k", WAITS), hosts.asked


def all_run(name: str, request: Request) -> Mapping[str, Any]:
    if request["do"] == "status":
        return {"alive": dict.fromkeys(request["names"], 7), "log": "", "offset": 0}
    return FREE[request["do"]]


def test_a_cluster_whose_service_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(name: str, request: Request) -> Mapping[str, Any]:
        found = all_run(name, request)
        if request["do"] == "nodes":
            gone()
        return {**found, "alive": {**found["alive"], "service": None}}

    state, _ = shown(monkeypatch, reply)
    assert (state.ray, state.ready) == ((None,), (False,))
    assert state.details == (message("cluster.no_service").render(),)
    assert not state.whole


def test_an_engine_that_cannot_be_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = lambda name, request: gone() if request["do"] == "ready" else all_run(name, request)  # noqa: E731
    state, _ = shown(monkeypatch, reply)
    assert (state.ready, state.details, state.ray) == ((False,), (GONE.render(),), (tuple(NODES),))
