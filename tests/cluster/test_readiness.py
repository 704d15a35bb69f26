"""Waiting for the engines of a cluster whose hosts answer from a function."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cluster import readiness
from gaudi_launch.cluster.readiness import Waits, log_of, wait_ready
from gaudi_launch.cluster.state import RunningCluster, running_of
from gaudi_launch.errors import ExitCode
from gaudi_launch.messages import Message, message
from gaudi_launch.reader import standalone
from gaudi_launch.services import probe
from tests.support.scripted_hosts import GONE, Request, cluster, failed, gone, member, scripted

SOURCE = standalone(probe.__file__)
READY = {"ready": True, "stage": "", "detail": "", "model": "m"}
LOADING = {**READY, "ready": False}


@dataclass
class Waiting:
    """A wait for some engines, at one second per turn."""

    running: RunningCluster
    logs: list[Path]
    seconds: float = 50.0

    def __post_init__(self) -> None:
        self.told: list[Message] = []

    def __call__(self, key: str | None = None, **limits: Any) -> None:
        waits = Waits(**{"poll": 1.0, "ask": 20.0, **limits})
        wait_ready(self.running, self.logs, key, self.told.append, waits)

    def pause(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Waiting:
    running = running_of(cluster("ab"))
    found = Waiting(running, [tmp_path / "service.log"])
    clock = types.SimpleNamespace(monotonic=lambda: found.seconds)
    monkeypatch.setattr(readiness, "time", clock)
    monkeypatch.setattr("gaudi_launch.interrupt.pause", found.pause)
    return found


def status(log: str = "", offset: int = 0, **alive: int | None) -> dict[str, Any]:
    return {"alive": alive or {"service": 7}, "log": log, "offset": offset}


def test_the_time_limits_of_a_cluster() -> None:
    waits = Waits()
    limits = (waits.copy, waits.ray, waits.ready, waits.poll, waits.workers, waits.ask, waits.stop)
    assert limits == (21600.0, 120.0, None, 3.0, 30.0, 60.0, 30.0)
    # no host is ended while one of these requests runs
    assert waits.lease == 600.0


def test_an_engine_is_awaited_and_its_log_copied(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([
        status("Starting to load model /m\n", 26), LOADING,
        status("more\n", 31), LOADING,
        status("", 31), READY,
    ])  # fmt: skip
    hosts = scripted(monkeypatch, lambda name, request: next(answers))
    waiting("k", workers=100.0)
    assert waiting.logs[0].read_text() == "Starting to load model /m\nmore\n"
    look = {"do": "status", "folder": "c/a", "names": ["service"], "log": "service"}
    test = {"do": "ready", "url": "http://10.0.0.1:1", "seconds": 10.0, "key": "k",
            "source": SOURCE}  # fmt: skip
    assert hosts.asked == [
        ("a", {**look, "offset": 0}, 20.0), ("a", test, 40.0),
        ("a", {**look, "offset": 26}, 20.0), ("a", test, 40.0),
        ("a", {**look, "offset": 31}, 20.0), ("a", test, 40.0),
    ]  # fmt: skip
    assert waiting.told == [
        message("cluster.waiting", url="http://10.0.0.1:1", log=str(waiting.logs[0])),
        message("serve.phase_load"),
        message("cluster.ready", url="http://10.0.0.1:1"),
    ]
    # two turns, of pieces that a Ctrl-C can end
    assert waiting.seconds == 52.0


def test_each_engine_is_awaited_until_all_answer(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    waiting.running = running_of(cluster("a", "b"))
    waiting.logs = [tmp_path / "one.log", tmp_path / "two.log"]
    tested: list[tuple[str, str]] = []

    def reply(name: str, request: Request) -> Mapping[str, Any]:
        if request["do"] == "status":
            return status(name, 1)
        tested.append((name, request["key"]))
        return READY if name == "a" or tested.count(("b", "")) == 2 else LOADING

    scripted(monkeypatch, reply)
    waiting()
    assert tested == [("a", ""), ("b", ""), ("b", "")]
    assert [log.read_text() for log in waiting.logs] == ["a", "bb"]


def test_the_time_for_an_engine_is_over(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, lambda name, request: {**status(), **LOADING})
    log = str(waiting.logs[0])
    values = {"seconds": "2", "url": "http://10.0.0.1:1", "log": log}
    assert failed(lambda: waiting(ready=2.0, workers=100.0)) == (
        "cluster.not_ready", ExitCode.ENGINE, values, None,
    )  # fmt: skip
    assert waiting.seconds == 53.0
    assert not waiting.logs[0].exists()


def test_an_engine_that_died_is_shown_with_its_log(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "INFO started\nRuntimeError: Graph compile failed\n"
    scripted(monkeypatch, lambda name, request: status(text, 9, service=None))
    id, code, values, detail = failed(waiting)
    assert (id, code) == ("cluster.died", ExitCode.ENGINE)
    assert values == {"host": "a", "log": str(waiting.logs[0])}
    assert detail is not None
    lines = detail.splitlines()
    assert lines[:3] == ["INFO started", "RuntimeError: Graph compile failed", ""]
    # and the cause that the log shows
    assert len(lines) > 3


def test_a_host_may_be_lost_four_times(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: Iterator[Mapping[str, Any] | None] = iter([*[None] * 4, status(), *[None] * 4, status()])
    tests = iter([LOADING, READY])

    def reply(name: str, request: Request) -> Mapping[str, Any]:
        if request["do"] == "ready":
            return next(tests)
        found = next(looks)
        return found or gone()

    scripted(monkeypatch, reply)
    waiting(workers=100.0)
    assert waiting.told[-1] == message("cluster.ready", url="http://10.0.0.1:1")


def test_a_host_that_is_lost_five_times_ends_the_launch(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = scripted(monkeypatch, lambda name, request: gone())
    assert failed(waiting) == (GONE.id, ExitCode.MACHINE, GONE.values, None)
    assert len(hosts.asked) == 5


def test_a_test_that_cannot_be_made_is_made_again(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests: Iterator[Mapping[str, Any] | None] = iter([None, READY])

    def reply(name: str, request: Request) -> Mapping[str, Any]:
        if request["do"] == "status":
            return status()
        found = next(tests)
        return found or gone()

    scripted(monkeypatch, reply)
    waiting()
    assert next(tests, None) is None


def test_ray_is_checked_on_every_host(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[tuple[str, float]] = []

    def reply(name: str, request: Request) -> Mapping[str, Any]:
        if request["do"] == "ready":
            return READY if waiting.seconds > 57.5 else LOADING
        if request["names"] == ["service"]:
            return status()
        assert request == {"do": "status", "folder": f"c/{name}", "names": ["ray"]}
        checked.append((name, round(waiting.seconds)))
        if name == "b" and len(checked) == 2:
            gone()
        return status(ray=8)

    hosts = scripted(monkeypatch, reply)
    waiting(workers=2.0)
    # each time that more than two seconds have passed; one lost connection is not a failure
    assert checked == [("a", 53), ("b", 53), ("a", 56), ("b", 56)]
    assert {seconds for _, request, seconds in hosts.asked if request["do"] == "status"} == {20.0}


@pytest.mark.parametrize("log", ["one\ntwo\n", ""])
def test_ray_that_ended_on_a_host_ends_the_launch(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch, log: str
) -> None:
    def reply(name: str, request: Request) -> Mapping[str, Any]:
        if request["do"] == "ready":
            return LOADING
        if request.get("log") == "ray":
            return status(log)
        return status(ray=8 if name == "a" else None, service=7)

    scripted(monkeypatch, reply)
    assert failed(lambda: waiting(workers=0.5)) == (
        "cluster.ray_died", ExitCode.MACHINE, {"host": "b"}, log.strip() or None,
    )  # fmt: skip


def test_only_the_end_of_a_long_log_is_shown(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(name: str, request: Request) -> Mapping[str, Any]:
        text = "".join(f"{number}\n" for number in range(40))
        return {**status(text, ray=None, service=7), **LOADING}

    scripted(monkeypatch, reply)
    *_, detail = failed(lambda: waiting(workers=0.5))
    assert detail == "\n".join(map(str, range(10, 40)))


def test_engines_without_ray_have_none_to_check(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting.running = running_of(cluster("a"))

    def reply(name: str, request: Request) -> Mapping[str, Any]:
        if request["do"] == "ready":
            return READY if waiting.seconds > 52.5 else LOADING
        assert request["names"] == ["service"]
        return status()

    scripted(monkeypatch, reply)
    waiting(workers=0.5)


def test_the_log_of_a_host_or_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = scripted(monkeypatch, lambda name, request: status("text"))
    assert log_of("c", member("a"), "ray") == "text"
    request = {"do": "status", "folder": "c/a", "names": [], "log": "ray"}
    assert hosts.asked == [("a", request, 30)]
    scripted(monkeypatch, lambda name, request: gone())
    assert log_of("c", member("b"), "ray") == GONE.render()
