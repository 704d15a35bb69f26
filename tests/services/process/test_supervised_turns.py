"""The turns of a supervisor, with an engine and a server that do what the test wants."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gaudi_launch.planning.plan import Command
from gaudi_launch.services.log.follow import LaunchProgress
from gaudi_launch.services.probe import Readiness
from gaudi_launch.services.process import supervise as module
from gaudi_launch.services.process.process import StopTimeouts
from gaudi_launch.services.process.signals import Signals
from gaudi_launch.services.process.supervise import LIMITS, EngineJob, EngineOutcome, Supervisor

URL = "http://127.0.0.1:4000"
READY = Readiness(True, "ready", "", "m", "/v1/completions")
NOT_YET = Readiness(False, "connect", "refused")
OTHER = Readiness(False, "other", "/v1/models: x", "x")


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


def events(watcher: Mock) -> list[tuple[Any, ...]]:
    return [
        (call[0], *call[1])
        for call in watcher.method_calls
        if call[0] not in ("output", "progress")
    ]


def test_an_engine_that_answered_and_is_stopped_ends_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = job(tmp_path)
    outcome, engine, watcher, clock = run(
        monkeypatch, given, ["first\n"], [None, NOT_YET, READY], signal_at=5
    )
    assert outcome == EngineOutcome("stopped", -15, outcome.progress, 15, was_ready=True)
    assert events(watcher) == [("started", 77), ("ready", READY), ("ending", 15)]
    # once it answers, it is looked at less often
    assert clock.waits == [0.1, 0.1, 1.0, 1.0, 1.0]
    # what it left is removed once; a second signal hurries the end
    assert given.after.call_args_list == [((-15,), {})]  # type: ignore[attr-defined]
    assert engine.ended[0] == (StopTimeouts(20.0, 5.0), True)
    texts = "".join(call.args[0] for call in watcher.output.call_args_list)
    assert texts == "first\nlast words\nlast words\n"


@pytest.mark.parametrize(("answers", "was_ready"), [([], False), ([READY], True)])
def test_an_engine_that_died_has_its_status_and_whether_it_answered(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    answers: list[Readiness | None],
    was_ready: bool,
) -> None:
    given = job(tmp_path)
    outcome, _, watcher, _ = run(monkeypatch, given, ["a\n", 3], answers)
    assert outcome == EngineOutcome("died", 3, outcome.progress, None, was_ready=was_ready)
    assert outcome.progress.phase == "start"
    assert ("ending", None) not in events(watcher)
    given.after.assert_called_once_with(-15)  # type: ignore[attr-defined]


def test_lines_are_progress_of_a_start_and_a_silent_one_is_stuck(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = job(tmp_path, limits={"start": 3.0})
    talks: list[str | int | None] = ["a\n"] * 6
    outcome, engine, watcher, clock = run(monkeypatch, given, talks, [])
    # six lines, and then more than three seconds of silence
    assert outcome == EngineOutcome("stuck", -15, outcome.progress, detail="4")
    assert clock.now == 10.0
    assert events(watcher) == [("started", 77), ("ending", None)]
    assert len(engine.ended) == 2


def test_an_engine_that_answers_is_never_stuck(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = job(tmp_path, limits={"start": 3.0})
    outcome, *_ = run(monkeypatch, given, ["a\n"], [READY], signal_at=20)
    assert outcome.kind == "stopped"


def test_lines_are_no_progress_of_a_warm_up_and_its_graphs_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def graph(number: int) -> str:
        return (
            "INFO 11-21 03:03:01 [hpu_model_runner.py:2587] "
            f"[Warmup][Prompt][{number}/9] batch_size:1 seq_len:128 free_mem:1 GiB\n"
        )

    given = job(tmp_path, limits={"warmup_prompt": 3.0})
    talks: list[str | int | None] = [*(graph(number) for number in range(1, 6)), *["a\n"] * 20]
    outcome, _, _, clock = run(monkeypatch, given, talks, [])
    assert (outcome.kind, outcome.detail, outcome.progress.done) == ("stuck", "4", 5)
    assert clock.now == 9.0


def test_another_server_at_the_address_is_noted_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = job(tmp_path)
    other = replace(OTHER, detail="service b")
    outcome, _, watcher, _ = run(
        monkeypatch, given, [None] * 5 + [1], [OTHER, OTHER, NOT_YET, OTHER, other]
    )
    assert (outcome.kind, outcome.was_ready) == ("died", False)
    lines = [line for line in given.log.read_text().splitlines() if line != "last words"]
    told = "gaudi-launch: http://127.0.0.1:4000 is answered by another server"
    assert lines == [
        "",
        f"{told} (/v1/models: x); expected m, n",
        "",
        f"{told} (service b); expected m, n",
    ]
    watcher.ready.assert_not_called()


def test_an_engine_whose_address_another_process_has_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = job(tmp_path)
    engine, watcher, clock = Engine(given.log, ["a\n"]), Mock(), Clock()
    monkeypatch.setattr(module, "EngineProcess", engine)
    signals: Any = clock
    supervisor = Supervisor(given, watcher, clock, signals)

    def ask(now: float) -> None:
        if now == 4.0:
            supervisor._prober.stranger = "nc [7]"

    monkeypatch.setattr(supervisor._prober, "ask", ask)
    outcome = supervisor.run()
    # the line was read in the second turn
    assert outcome == EngineOutcome("stuck", -15, outcome.progress, detail="3")
    note = "[Errno 98] Address already in use: http://127.0.0.1:4000 is that of nc [7]"
    assert given.log.read_text() == f"a\nlast words\n\ngaudi-launch: {note}\nlast words\n"
    assert events(watcher) == [("started", 77), ("ending", None)]


def test_an_engine_that_does_not_start_has_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = job(tmp_path)
    engine, watcher = Engine(given.log, []), Mock()
    monkeypatch.setattr(module, "EngineProcess", engine)

    for error, detail in ((OSError(2, "No such file"), "No such file"), (OSError("odd"), "odd")):
        monkeypatch.setattr(engine, "start", Mock(side_effect=error))
        outcome = Supervisor(given, watcher).run()
        assert outcome == EngineOutcome("not_started", None, LaunchProgress(), detail=detail)
    assert (watcher.method_calls, engine.ended) == ([], [])


def test_an_engine_is_not_left_running_when_our_own_code_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = job(tmp_path)
    engine = Engine(given.log, [])
    monkeypatch.setattr(module, "EngineProcess", engine)
    watcher = Mock(started=Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        Supervisor(given, watcher).run()
    assert len(engine.ended) == 1
    given.after.assert_called_once_with(-15)  # type: ignore[attr-defined]


def test_a_signal_that_comes_while_a_dead_engine_is_ended_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its service would start the engine again although it was told to stop."""
    given = job(tmp_path)
    engine = Engine(given.log, [3])

    def end(timeouts: StopTimeouts, hurry: Callable[[], bool]) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return 3

    monkeypatch.setattr(engine, "end", end)
    monkeypatch.setattr(module, "EngineProcess", engine)
    signals = Signals()
    with signals.handled():
        outcome = Supervisor(given, Mock(), signals=signals).run()
        assert (outcome.kind, bool(signals)) == ("died", True)
        assert signals.take() == signal.SIGTERM


def prober(given: EngineJob) -> Any:
    return module._Prober(given)


def answer_of(asked: Any, now: float = 0.0) -> Readiness | None:
    """Return the answer of one probe."""
    assert asked.ask(now) is None
    thread: threading.Thread = asked._thread
    thread.join(30)
    # the next is asked a second later
    found: Readiness | None = asked.ask(now + 0.9)
    assert asked._thread is thread
    return found


def test_a_probe_gets_the_jobs_key_api_and_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[Any, ...]] = []

    def probe(*words: Any, **more: Any) -> Readiness:
        asked.append((*words, more))
        return READY

    monkeypatch.setattr(module, "probe", probe)
    monkeypatch.setattr(module, "probe_health", lambda url: replace(NOT_YET, detail=url))
    given = job(tmp_path, tgi=True)
    assert answer_of(prober(given)) == READY
    more = {"timeout": 90.0, "api_key": "k", "tgi": True, "names": ("m", "n")}
    assert asked == [(URL, more)]
    assert answer_of(prober(replace(given, health_only=True))) == replace(NOT_YET, detail=URL)
    assert len(asked) == 1


def test_an_address_that_another_service_has_makes_nothing_ready(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = [READY, NOT_YET]
    monkeypatch.setattr(module, "probe", lambda url, **more: answers[0])
    owned = job(tmp_path, owner=lambda: "b")
    assert answer_of(prober(owned)) == Readiness(False, "other", "service b", "m")
    answers.pop(0)
    assert answer_of(prober(owned)) == NOT_YET
    strange = prober(job(tmp_path, stranger=lambda: "nc [7]"))
    assert (strange.stranger, answer_of(strange), strange.stranger) == ("", None, "nc [7]")


def test_strangers_are_looked_for_every_five_seconds_and_before_it_is_ready(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, answers, looked = [100.0], [NOT_YET], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "probe", lambda url, **more: answers[0])

    def stranger() -> str:
        looked.append(now[0])
        return ""

    asked = prober(job(tmp_path, stranger=stranger))
    for now[0] in (100.0, 104.9, 105.0, 106.0):
        asked._probe()
    answers[0] = READY
    now[0] = 107.0
    asked._probe()
    assert looked == [100.0, 105.0, 107.0]


def test_the_limits_of_every_phase_are_seconds_without_progress(tmp_path: Path) -> None:
    assert LIMITS == {
        "start": 900,
        "load": 3600,
        "profile": 1800,
        "kv_cache": 900,
        "multimodal": 3600,
        "warmup_prompt": 3600,
        "warmup_decode": 3600,
        "graph_prompt": 3600,
        "graph_decode": 3600,
        "sampler": 1800,
        "ready": 600,
    }
    plain = EngineJob(Command((), {}), URL, tmp_path, {})
    assert (plain.limits, plain.bind, plain.tgi, plain.health_only) == (LIMITS, True, False, False)
    assert (plain.owner(), plain.stranger()) == (None, "")
    plain.after(0)
    assert (plain.names, dict(plain.warmup), plain.stop_timeouts) == ((), {}, StopTimeouts())
    assert "hunter2" not in repr(replace(plain, api_key="hunter2"))


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
