"""A workload that is sent at its times, against a model that answers at once or never."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.bench import protocols, replay, server
from gaudi_launch.bench.client import Client
from gaudi_launch.bench.protocols import ModelAnswer
from gaudi_launch.bench.replay import Going, Way
from gaudi_launch.bench.run_file import BenchWorkload, Sample, WorkloadRequest

CLIENT = Client("http://a:1")
WAY = Way(server.ServerFacts("m", ("m",)), "chat", server.Ruler(2.0, 4.0, True), True, 3)
ROWS = (WorkloadRequest(0.0, 24, 5), WorkloadRequest(0.5, 44, 6), WorkloadRequest(2.0, 64, 7))


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Stop the clock at 100 s; return how long is waited on it."""
    monkeypatch.setattr(replay, "time", SimpleNamespace(perf_counter=lambda: 100.0))
    found: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        found.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    return found


def run(
    monkeypatch: pytest.MonkeyPatch,
    stream: Callable[..., Awaitable[ModelAnswer]],
    workload: BenchWorkload,
    going: Callable[[Going], None] = lambda _: None,
    stop: bool = False,
) -> list[Sample]:
    monkeypatch.setattr(protocols, "stream", stream)

    async def all_of() -> list[Sample]:
        ending = asyncio.Event()
        if stop:
            asyncio.get_running_loop().call_later(0.01, ending.set)
        return await replay.replay(CLIENT, workload, WAY, going, ending)

    return asyncio.run(all_of())


def test_a_fault_of_our_own_is_not_a_failed_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stream(*_: Any) -> ModelAnswer:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(monkeypatch, stream, BenchWorkload(ROWS, "own", None, "t"))
