"""A cluster whose hosts answer from a function: started, shown, ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cluster import lifecycle
from gaudi_launch.cluster.lifecycle import EndedPart, HostState, State, down, status, up
from gaudi_launch.cluster.parts import Cluster
from gaudi_launch.cluster.readiness import Waits
from gaudi_launch.cluster.state import FILE_NAME, RunningCluster, remember, running_of
from gaudi_launch.cluster.steps import Copy, HostStep, ray_steps, service_step
from gaudi_launch.errors import ExitCode
from gaudi_launch.messages import Message, message
from tests.support.scripted_hosts import (
    GONE,
    WHY,
    Request,
    cluster,
    failed,
    gone,
    member,
    scripted,
)

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


def looked(name: str, *names: str) -> tuple[str, Request, float]:
    return name, {"do": "status", "folder": f"c/{name}", "names": list(names)}, 13.0


def released(name: str) -> tuple[str, Request, float]:
    return name, {"do": "release", "folder": f"c/{name}"}, 13.0


def stopped(name: str, what: str) -> tuple[str, Request, float]:
    request = {"do": "stop", "folder": f"c/{name}", "names": [what], "timeout": 14.0}
    return name, request, 88.0


def test_ray_and_then_the_engine_are_started(launch: Launch) -> None:
    made = cluster("ab")
    launch(made, secrets={"VLLM_API_KEY": "k"})
    (head,) = ray_steps(made, made.engines[0], True)
    (worker,) = ray_steps(made, made.engines[0], False)
    service = service_step(made.engines[0], ("VLLM_API_KEY",))
    port = {"do": "listening", "host": "10.0.0.1", "port": 8850, "seconds": 12.0}
    nodes = {
        "do": "nodes",
        "address": "10.0.0.1:8850",
        "ip": "10.0.0.1",
        "wanted": 4,
        "seconds": 12.0,
    }
    both = ("service", "ray")
    requests = [each for each in launch.done if "log" not in each[1] and each[1]["do"] != "ready"]
    assert requests == [
        looked("a", *both), looked("b", *both),
        started(head), ("a", port, 42.0), looked("a"),
        started(worker), looked("a"), looked("b"), ("a", nodes, 102.0),
        looked("a"), looked("b"), started(service, {"VLLM_API_KEY": "k"}),
        released("a"), released("b"),
    ]  # fmt: skip
    (ready,) = [each for _, each, _ in launch.done if each["do"] == "ready"]
    assert ready["key"] == "k"
    log = str(launch.folder / "service.log")
    assert launch.told == [
        message("cluster.step_head", host="a"),
        message("cluster.step_worker", host="b"),
        message("cluster.joining", nodes=2),
        message("cluster.step_service", host="a"),
        message("cluster.waiting", url="http://10.0.0.1:1", log=log),
        message("serve.phase_start"),
        message("cluster.ready", url="http://10.0.0.1:1"),
    ]
    assert sorted(each.name for each in launch.folder.iterdir()) == [FILE_NAME, "service.log"]


def test_engines_of_one_host_need_no_ray(launch: Launch) -> None:
    launch(cluster("a", "b"))
    starts = launch.kinds("start", "listening", "nodes")
    assert starts == [("a", "start"), ("b", "start")]
    # the lease of the first is renewed before the second is started
    renewals = [each[0] for each in launch.done if each == looked(each[0])]
    assert renewals == ["a"]


COPY = Copy(HostStep(member("a"), ("rsync", "x"), WHY), "/m", "a", "b")


def test_copies_are_made_first(launch: Launch) -> None:
    launch(cluster("a"), copies=(COPY,))
    request = {"do": "run", "argv": ["rsync", "x"], "seconds": 11.0}
    assert launch.done[1] == ("a", request, 41.0)
    assert launch.told[0] == WHY


def test_a_copy_that_fails_ends_the_launch(launch: Launch) -> None:
    full = but("run", lambda name, request: {"code": 1, "output": "no\nspace left\n"})
    values = {"host": "a", "program": "rsync", "why": "space left"}
    assert failed(lambda: launch(cluster("a"), full, copies=(COPY,))) == (
        "cluster.step_failed", ExitCode.MACHINE, values, None,
    )  # fmt: skip
    assert launch.kinds("start", "stop") == []
    assert (launch.told, (launch.folder / FILE_NAME).exists()) == ([WHY], False)


def test_a_host_in_use_is_left_alone(launch: Launch) -> None:
    def reply(name: str, request: Request) -> Mapping[str, Any]:
        alive = {"service": None, "ray": 9 if name == "b" else None}
        return {"alive": alive, "log": "", "offset": 0}

    values = {"host": "b", "what": "ray", "pid": 9}
    assert failed(lambda: launch(cluster("ab"), reply)) == (
        "cluster.runs_already", ExitCode.MACHINE, values, None,
    )  # fmt: skip
    assert launch.kinds("start", "stop") == []
    assert [*launch.folder.iterdir()] == []


def test_a_host_that_is_not_reached_is_named(launch: Launch) -> None:
    failure = (GONE.id, ExitCode.MACHINE, GONE.values, None)
    assert failed(lambda: launch(cluster("ab"), lambda *_: gone())) == failure


def test_hosts_of_an_earlier_launch_must_be_free_too(launch: Launch) -> None:
    remember(launch.folder, running_of(cluster("ab")))
    reply = but("status", lambda name, request: gone() if name == "b" else served(name, request))
    why = {"name": "c", "host": "b", "ssh": "me@b", "why": GONE.render()}
    assert failed(lambda: launch(cluster("a"), reply)) == (
        "cluster.former", ExitCode.MACHINE, why, None,
    )  # fmt: skip
    # each host is queried once
    assert launch.done == [looked(name, "service", "ray") for name in "ab"]


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

    values = {"found": 2, "wanted": 4, "absent": "b"}
    shown = "\n".join(f"b: line {number}" for number in range(10, 20))
    assert failed(lambda: launch(cluster("ab"), reply)) == (
        "cluster.ray_short", ExitCode.MACHINE, values, shown,
    )  # fmt: skip
    assert launch.kinds("stop") == [("a", "stop"), ("b", "stop"), ("b", "stop"), ("a", "stop")]


def test_hosts_that_join_with_fewer_cards(launch: Launch) -> None:
    few = but("nodes", lambda name, request: {"nodes": [NODES[0], {**NODES[1], "hpu": 1}]})
    values = {"found": 3, "wanted": 4, "absent": "-"}
    assert failed(lambda: launch(cluster("ab"), few)) == (
        "cluster.ray_short", ExitCode.MACHINE, values, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "code"), [("ray", ExitCode.MACHINE), ("service", ExitCode.ENGINE)]
)
def test_what_ends_immediately_is_shown_with_its_log(
    launch: Launch, name: str, code: ExitCode
) -> None:
    def reply(host: str, request: Request) -> Mapping[str, Any]:
        if request["do"] == "start" and request["name"] == name:
            return {"pid": 7, "exit": 0}
        if request.get("log") == name:
            return {"alive": {}, "log": "\n" * 40 + "why\n", "offset": 0}
        return served(host, request)

    values = {"host": "a", "what": name, "status": 0}
    shown = "\n" * 29 + "why"
    assert failed(lambda: launch(cluster("ab"), reply)) == (
        "cluster.ended_at_once", code, values, shown,
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


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), SystemExit(1)])
def test_a_terminal_that_is_gone_does_not_stop_the_cleaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    hosts = scripted(monkeypatch, but("release", lambda name, request: gone()))

    def tell(what: Message) -> None:
        if what.id == "cluster.taking_down":
            raise error

    assert failed(lambda: up(cluster("a"), (), {}, tmp_path, tell, WAITS))[0] == GONE.id
    assert [each["do"] for _, each, _ in hosts.asked].count("stop") == 2


def test_signals_are_ignored_while_hosts_are_cleaned(launch: Launch) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    seen: list[tuple[object, ...]] = []

    def reply(name: str, request: Request) -> Mapping[str, Any]:
        if request["do"] in ("start", "stop"):
            seen.append(tuple(signal.getsignal(number) for number in numbers))
        return gone() if request["do"] == "release" else served(name, request)

    before = tuple(signal.getsignal(number) for number in numbers)
    failed(lambda: launch(cluster("a"), reply))
    assert seen[1:] == [(signal.SIG_IGN,) * 3] * 2
    assert signal.SIG_IGN not in seen[0]
    assert tuple(signal.getsignal(number) for number in numbers) == before


def test_a_signal_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, object] = {signal.SIGHUP: signal.SIG_IGN, signal.SIGTERM: signal.SIG_DFL}
    made: list[tuple[int, object]] = []
    monkeypatch.setattr("gaudi_launch.cluster.lifecycle.signal.getsignal", handlers.get)
    monkeypatch.setattr(
        "gaudi_launch.cluster.lifecycle.signal.signal", lambda *words: made.append(words)
    )
    handler = signal.default_int_handler
    with lifecycle._signals({signal.SIGHUP: handler, signal.SIGTERM: handler}):
        assert made == [(signal.SIGTERM, handler)]
    assert made[1:] == [(signal.SIGHUP, signal.SIG_IGN), (signal.SIGTERM, signal.SIG_DFL)]


def test_the_service_ends_first_and_the_head_last(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = scripted(monkeypatch, served)
    members = [member(name) for name in "abc"]
    assert down(members, "c", WAITS) == [
        *(EndedPart(name, "service", None) for name in "abc"),
        *(EndedPart(name, "ray", None) for name in "bca"),
    ]
    assert hosts.asked == [
        *(stopped(name, "service") for name in "abc"), *(stopped(name, "ray") for name in "bca"),
    ]  # fmt: skip


def test_what_is_stuck_or_not_reached_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(name: str, request: Request) -> Mapping[str, Any]:
        if name == "b":
            gone()
        what = request["names"][0]
        return {"ended": {what: "stuck"}} if what == "service" else {"ended": {what: "none"}}

    hosts = scripted(monkeypatch, reply)
    assert down([member(name) for name in "abc"], "c") == [
        EndedPart("a", "service", message("cluster.stuck", host="a", what="service")),
        EndedPart("b", "unreachable", GONE),
        EndedPart("c", "service", message("cluster.stuck", host="c", what="service")),
    ]
    # a host that is not reached is not queried again
    assert [name for name, _, _ in hosts.asked] == ["a", "b", "c", "c", "a"]
    # the default limits
    assert {(each["timeout"], seconds) for _, each, seconds in hosts.asked} == {(30.0, 120.0)}


def shown(
    monkeypatch: pytest.MonkeyPatch, reply: Reply, running: RunningCluster | None = None
) -> tuple[State, list[tuple[str, Request, float]]]:
    hosts = scripted(monkeypatch, reply)
    return status(running or running_of(cluster("ab")), "k", WAITS), hosts.asked


def all_run(name: str, request: Request) -> Mapping[str, Any]:
    if request["do"] == "status":
        return {"alive": dict.fromkeys(request["names"], 7), "log": "", "offset": 0}
    return FREE[request["do"]]


def test_a_cluster_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    state, asked = shown(monkeypatch, all_run)
    assert state == State(
        (HostState("a", {"service": 7, "ray": 7}), HostState("b", {"ray": 7})),
        (tuple(NODES),), (True,), ("it answers",),
    )  # fmt: skip
    assert state.whole
    assert asked[:2] == [looked("a", "service", "ray"), looked("b", "ray")]
    (nodes,) = [each for each in asked if each[1]["do"] == "nodes"]
    # Ray's view as it is now
    assert (nodes[1]["seconds"], nodes[2]) == (0.0, 90.0)
    (ready,) = [each for each in asked if each[1]["do"] == "ready"]
    assert ready[1]["key"] == "k"


def test_a_cluster_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    state, asked = shown(monkeypatch, all_run, running_of(cluster("a", "b")))
    hosts = tuple(HostState(name, {"service": 7}) for name in "ab")
    assert state == State(hosts, (None, None), (True, True), ("it answers",) * 2)
    assert state.whole
    assert "nodes" not in {each["do"] for _, each, _ in asked}


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


def test_a_cluster_whose_head_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    state, asked = shown(
        monkeypatch, lambda name, request: gone() if name == "a" else all_run(name, request)
    )
    assert state == State(
        (HostState("a", {}, GONE), HostState("b", {"ray": 7})), (None,), (False,), (GONE.render(),)
    )
    assert not state.whole
    assert len(asked) == 2


def test_an_engine_that_cannot_be_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = lambda name, request: gone() if request["do"] == "ready" else all_run(name, request)  # noqa: E731
    state, _ = shown(monkeypatch, reply)
    assert (state.ready, state.details, state.ray) == (
        (False,),
        (GONE.render(),),
        (tuple(NODES),),
    )


ALL = State((HostState("a", {"ray": 7}),), (tuple(NODES),), (True,), ("",))


@pytest.mark.parametrize(
    "state",
    [
        State((HostState("a", {"ray": None}),), ALL.ray, ALL.ready, ALL.details),
        State((HostState("a", {"ray": 7}, GONE),), ALL.ray, ALL.ready, ALL.details),
        State(ALL.hosts, ALL.ray, (True, False), ("", "")),
        State(ALL.hosts, (None, ({"alive": True}, {"alive": False})), ALL.ready, ALL.details),
    ],
)
def test_one_part_that_fails_counts(state: State) -> None:
    assert (ALL.whole, state.whole) == (True, False)
