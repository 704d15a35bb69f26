"""The turns of a supervisor, with an engine and a server that do what the test wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gaudi_launch.planning.plan import Command
from gaudi_launch.services.probe import Readiness
from gaudi_launch.services.process import supervise as module
from gaudi_launch.services.process.process import StopTimeouts
from gaudi_launch.services.process.supervise import EngineJob, EngineOutcome, Supervisor

URL = "http://127.0.0.1:4000"
READY = Readiness(True, "ready", "", "m", "/v1/completions")


class Engine:
    """An engine that writes its log and ends by a script: turn by turn."""

    def __init__(self, log: Path, turns: Sequence[str | int | None]) -> None:
        self.log, self.turns = log, [*turns]
        self.made: tuple[Any, ...] = ()
        self.ended: list[tuple[StopTimeouts, bool]] = []

    def __call__(self, *words: Any) -> Engine:
        self.made = words
        return self

    def start(self) -> int:
        return 77

    def poll(self) -> int | None:
        turn = self.turns.pop(0) if self.turns else None
        if isinstance(turn, str):
            with self.log.open("a", encoding="utf-8") as file:
                file.write(turn)
            return None
        return turn

    def end(self, timeouts: StopTimeouts, hurry: Callable[[], bool]) -> int:
        self.ended.append((timeouts, hurry()))
        with self.log.open("a", encoding="utf-8") as file:
            file.write("last words\n")
        return -15


class Clock:
    """Signals that count the turns, and a clock of one second for each."""

    def __init__(self, signal_at: int | None = None) -> None:
        self.now, self.signal_at = 0.0, signal_at
        self.waits: list[float] = []
        self.handled = Mock(return_value=Mock(__enter__=Mock(), __exit__=Mock(return_value=None)))

    def __call__(self) -> float:
        return self.now

    def __bool__(self) -> bool:
        return self.signal_at is not None and len(self.waits) >= self.signal_at

    def take(self) -> int:
        return 15

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += 1.0
        if len(self.waits) > 200:
            pytest.fail("it runs on")


def job(tmp_path: Path, **more: Any) -> EngineJob:
    after = Mock()
    made = EngineJob(
        Command(("vllm",), {"A": "1"}),
        URL,
        tmp_path / "engine.log",
        {"B": "2"},
        api_key="k",
        bind=False,
        after=after,
        names=("m", "n"),
    )
    return replace(made, **more)


def run(
    monkeypatch: pytest.MonkeyPatch,
    given: EngineJob,
    turns: Sequence[str | int | None],
    answers: list[Readiness | None],
    signal_at: int | None = None,
) -> tuple[EngineOutcome, Engine, Mock, Clock]:
    engine, watcher, clock = Engine(given.log, turns), Mock(), Clock(signal_at)
    monkeypatch.setattr(module, "EngineProcess", engine)
    signals: Any = clock
    supervisor = Supervisor(given, watcher, clock, signals)
    assert engine.made == (given.command, given.log, given.environment, given.bind)

    def ask(now: float) -> Readiness | None:
        assert now == clock.now
        return answers.pop(0) if answers else None

    monkeypatch.setattr(supervisor._prober, "ask", ask)
    return supervisor.run(), engine, watcher, clock


def test_an_engine_that_answers_is_never_stuck(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = job(tmp_path, limits={"start": 3.0})
    outcome, *_ = run(monkeypatch, given, ["a\n"], [READY], signal_at=20)
    assert outcome.kind == "stopped"


@pytest.mark.parametrize("text", ["é", "图", "😀"])
def test_a_character_is_read_when_it_is_complete(tmp_path: Path, text: str) -> None:
    path, content = tmp_path / "log", f"a{text}".encode()
    for cut in range(1, len(content)):
        path.write_bytes(b"old")
        tail = module._Tail(path)
        path.write_bytes(b"old" + content[:cut])
        assert tail.read() == "a"
        path.write_bytes(b"old" + content)
        assert tail.read() == text
        assert tail.read() == ""
    tail.begin_again()
    assert tail.read() == f"olda{text}"
    path.unlink()
    assert tail.read() == ""
    # bytes that are no UTF-8 hold nothing up
    path.write_bytes(b"x\x80\x80\x80\x80")
    tail.begin_again()
    assert tail.read() == "x" + "\ufffd" * 4
