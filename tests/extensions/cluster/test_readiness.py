"""Waiting for the engines of a cluster whose hosts answer from a function."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import Message
from gaudi_launch.extensions.cluster import readiness
from gaudi_launch.extensions.cluster.readiness import Waits, log_of, wait_ready
from gaudi_launch.extensions.cluster.state import RunningCluster, running_of
from tests.support.scripted_hosts import GONE, Request, cluster, failed, gone, member, scripted

READY = {"ready": True, "stage": "", "detail": "", "model": "m"}


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
    monkeypatch.setattr(interrupt, "pause", found.pause)
    return found


def status(log: str = "", offset: int = 0, **alive: int | None) -> dict[str, Any]:
    return {"alive": alive or {"service": 7}, "log": log, "offset": offset}


def test_the_time_limits_of_a_cluster() -> None:
    waits = Waits()
    limits = (waits.copy, waits.ray, waits.ready, waits.poll, waits.workers, waits.ask, waits.stop)
    assert limits == (21600.0, 120.0, None, 3.0, 30.0, 60.0, 30.0)
    # no host is ended while one of these requests runs
    assert waits.lease == 600.0


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


def test_the_log_of_a_host_or_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = scripted(monkeypatch, lambda name, request: status("text"))
    assert log_of("c", member("a"), "ray") == "text"
    request = {"do": "status", "folder": "c/a", "names": [], "log": "ray"}
    assert hosts.asked == [("a", request, 30)]
    scripted(monkeypatch, lambda name, request: gone())
    assert log_of("c", member("b"), "ray") == GONE.render()
