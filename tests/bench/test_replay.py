"""A workload that is sent at its times, against a model that answers at once or never."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import astuple
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.bench import protocols, replay, server
from gaudi_launch.bench.client import Client, ServerError
from gaudi_launch.bench.protocols import ModelAnswer, ask_one
from gaudi_launch.bench.replay import Going, Way
from gaudi_launch.bench.run_file import BenchWorkload, Sample, WorkloadRequest

CLIENT = Client("http://a:1")
WAY = Way(server.ServerFacts("m", ("m",)), "chat", server.Ruler(2.0, 4.0, True), True, 3)
ROWS = (WorkloadRequest(0.0, 24, 5), WorkloadRequest(0.5, 44, 6), WorkloadRequest(2.0, 64, 7))
GOOD = ModelAnswer("a b c", 25, 3, True, "stop", (0.25, 0.5, 1.0), 1.25)


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


def test_each_request_is_sent_at_its_time(
    monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    asked: list[Any] = []
    news: list[tuple[Any, ...]] = []

    async def stream(*words: Any) -> ModelAnswer:
        asked.append(words)
        if len(asked) == 2:
            raise ServerError("status", "dead" * 100, 503)
        return GOOD

    workload = BenchWorkload(ROWS, "own", None, "trace")
    found = run(monkeypatch, stream, workload, lambda state: news.append(astuple(state)))
    assert waits == [0.0, 0.5, 2.0]
    # a text of its own for each: two tokens for a noun, and four around them
    assert asked == [
        (CLIENT, "chat", ask_one(server.text(words, 3_000_009 + n), o, ignore_eos=True), "m")
        for n, (words, o) in enumerate(((10, 5), (20, 6), (30, 7)))
    ]
    good: dict[str, Any] = {
        "first": 0.25,
        "last": 1.0,
        "gaps": (0.25, 0.5),
        "input": 25,
        "output": 3,
    }
    assert found == [
        Sample(0.0, 0.0, 24, 5, **good),
        Sample(0.5, 0.0, 44, 6, last=0.0, error="status 503", detail=("dead" * 100)[:200]),
        Sample(2.0, 0.0, 64, 7, **good),
    ]
    # total, sent, done, failed, tokens
    assert news[-1] == (3, 3, 3, 1, 6)
    assert sorted(news)[0] == (3, 1, 0, 0, 0)


def test_an_answer_without_pieces_ends_with_its_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stream(*_: Any) -> ModelAnswer:
        return ModelAnswer("", 25, 0, True, "stop", (), 1.25)

    (found,) = run(monkeypatch, stream, BenchWorkload(ROWS[:1], "own", None, "t"))
    assert found == Sample(0.0, 0.0, 24, 5, first=1.25, last=1.25, gaps=(), input=25, output=0)


def test_no_more_requests_than_the_limit_are_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[int] = [0]
    most: list[int] = []

    async def stream(*_: Any) -> ModelAnswer:
        running[0] += 1
        most.append(running[0])
        for _turn in range(50):
            await asyncio.sleep(0)
        running[0] -= 1
        return GOOD

    rows = (WorkloadRequest(0.0, 24, 5),) * 7
    assert len(run(monkeypatch, stream, BenchWorkload(rows, "closed", 2, "t"))) == 7
    assert max(most) == 2
    most.clear()
    run(monkeypatch, stream, BenchWorkload(rows, "own", None, "t"))
    assert max(most) == 7


@pytest.mark.parametrize(("arrivals", "at"), [("closed", 0.0), ("own", 2.0)])
def test_a_request_without_an_arrival_arrives_when_it_is_sent(
    arrivals: str, at: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stream(*_: Any) -> ModelAnswer:
        return GOOD

    (found,) = run(monkeypatch, stream, BenchWorkload(ROWS[2:], arrivals, 1, "t"))
    assert found.at == at


def test_a_stop_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def stream(*words: Any) -> ModelAnswer:
        asked.append(words[3])
        if len(asked) > 1:
            await asyncio.Event().wait()
        return GOOD

    found = run(monkeypatch, stream, BenchWorkload(ROWS, "own", 1, "t"), stop=True)
    assert ([sample.wanted_output for sample in found], len(asked)) == ([5], 2)


def test_a_fault_of_our_own_is_not_a_failed_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stream(*_: Any) -> ModelAnswer:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(monkeypatch, stream, BenchWorkload(ROWS, "own", None, "t"))
