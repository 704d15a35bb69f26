"""Real processes and real signals: an engine is started, followed, found ready and ended without
a remainder."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.services.diagnosis.diagnose import diagnose
from gaudi_launch.core.services.diagnosis.failure import failure
from gaudi_launch.core.services.log.follow import LaunchProgress
from gaudi_launch.core.services.probe import Readiness
from gaudi_launch.core.services.process.process import StopTimeouts, bind_words, usable_cpus
from gaudi_launch.core.services.process.supervise import (
    LIMITS,
    EngineJob,
    EngineOutcome,
    Supervisor,
    _Tail,
)
from tests.support.http_answers import server
from tests.support.processes import TRIVIAL, living
from tests.support.waiting import GENEROUS


class Recorder:
    """A watcher that writes down what it was told, and acts once it is ready and when it is to
    end."""

    def __init__(
        self,
        when_ready: Callable[[], None] = lambda: None,
        when_ending: Callable[[], None] = lambda: None,
    ) -> None:
        self.said: list[str] = []
        self.pid = 0
        self.text = ""
        self._when_ready = when_ready
        self._when_ending = when_ending

    def started(self, pid: int) -> None:
        self.pid = pid
        self.said.append("started")

    def output(self, text: str) -> None:
        self.text += text

    def progress(self, progress: LaunchProgress) -> None:
        if self.said[-1] != progress.phase:
            self.said.append(progress.phase)

    def ready(self, readiness: Readiness) -> None:
        self.said.append(f"answers as {readiness.model}")
        self._when_ready()

    def ending(self, signal_number: int | None) -> None:
        self.said.append("ending")
        self._when_ending()


def job(tmp_path: Path, port: int, pids: Path, do: str = "", **limits: float) -> EngineJob:
    words = (sys.executable, str(TRIVIAL), "--port", str(port), "--model", "m")
    return EngineJob(
        command=Command(argv=words, env={"TRIVIAL_DO": do, "TRIVIAL_PIDS": str(pids)}),
        url=f"http://127.0.0.1:{port}",
        log=tmp_path / "engine.log",
        environment=dict(os.environ),
        limits={**LIMITS, **limits},
        stop_timeouts=StopTimeouts(GENEROUS, GENEROUS),
    )


def send_self(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ready_then_a_signal_ends_everything(
    tmp_path: Path, free_port: int, pids: Path, number: int
) -> None:
    recorder = Recorder(send_self(number))
    outcome = Supervisor(job(tmp_path, free_port, pids), recorder).run()
    assert (outcome.kind, outcome.status, outcome.signal, outcome.was_ready) == (
        "stopped",
        0,
        number,
        True,
    )
    assert (recorder.said[0], recorder.said[-2:]) == ("started", ["answers as m", "ending"])
    names = [phase.name for phase in outcome.progress.phases]
    assert names == ["start", "kv_cache", "warmup_prompt", "ready"]
    assert outcome.progress.facts["num_blocks"] == 16384
    assert len(pids.read_text().split()) == 3 and living(pids) == []


def test_an_engine_deaf_to_term_is_killed(tmp_path: Path, free_port: int, pids: Path) -> None:
    deaf = replace(job(tmp_path, free_port, pids, "deaf"), stop_timeouts=StopTimeouts(2.0, 2.0))
    outcome = Supervisor(deaf, Recorder(send_self(signal.SIGTERM))).run()
    assert (outcome.kind, outcome.status) == ("stopped", -signal.SIGKILL)


def test_a_second_signal_ends_the_waiting_for_a_deaf_engine(
    tmp_path: Path, free_port: int, pids: Path
) -> None:
    begin: list[float] = []

    def again() -> None:
        begin.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    recorder = Recorder(send_self(signal.SIGTERM), again)
    outcome = Supervisor(job(tmp_path, free_port, pids, "deaf"), recorder).run()
    assert (outcome.kind, outcome.status) == ("stopped", -signal.SIGKILL)
    # the timeouts would have been twice as long
    assert time.monotonic() - begin[0] < GENEROUS


def test_a_killed_first_process_leaves_no_orphans(
    tmp_path: Path, free_port: int, pids: Path
) -> None:
    recorder = Recorder()
    recorder._when_ready = lambda: os.kill(recorder.pid, signal.SIGKILL)
    outcome = Supervisor(job(tmp_path, free_port, pids), recorder).run()
    assert (outcome.kind, outcome.status, outcome.was_ready) == ("died", -signal.SIGKILL, True)
    assert living(pids) == []


def test_dying_in_warm_up_is_told_with_its_phase(
    tmp_path: Path, free_port: int, pids: Path
) -> None:
    outcome = Supervisor(job(tmp_path, free_port, pids, "die"), Recorder()).run()
    assert (outcome.kind, outcome.status, outcome.was_ready) == ("died", 1, False)
    assert outcome.progress.phases[-2].name == "warmup_prompt"


def test_a_warm_up_without_progress_is_ended(tmp_path: Path, free_port: int, pids: Path) -> None:
    outcome = Supervisor(
        job(tmp_path, free_port, pids, "hang", warmup_prompt=3.0), Recorder()
    ).run()
    assert (outcome.kind, outcome.progress.phase, outcome.progress.done) == (
        "stuck",
        "warmup_prompt",
        2,
    )


def test_health_alone_is_not_ready(tmp_path: Path, free_port: int, pids: Path) -> None:
    recorder = Recorder()
    outcome = Supervisor(job(tmp_path, free_port, pids, "sick", ready=3.0), recorder).run()
    assert outcome.kind == "stuck" and not outcome.was_ready
    assert "answers as m" not in recorder.said


def test_an_interpreter_that_is_not_there(tmp_path: Path, free_port: int) -> None:
    nowhere = EngineJob(
        command=Command(argv=("/nonexistent/python",), env={}),
        url=f"http://127.0.0.1:{free_port}",
        log=tmp_path / "engine.log",
        environment={},
    )
    outcome = Supervisor(nowhere, Recorder()).run()
    assert outcome == EngineOutcome(
        "not_started", None, LaunchProgress(), detail="No such file or directory"
    )


def test_the_log_of_an_earlier_life_is_not_read_again(
    tmp_path: Path, free_port: int, pids: Path
) -> None:
    (tmp_path / "engine.log").write_text("FATAL ERROR :: long ago\n")
    recorder = Recorder(send_self(signal.SIGTERM))
    assert Supervisor(job(tmp_path, free_port, pids), recorder).run().kind == "stopped"
    assert "long ago" not in recorder.text


@pytest.mark.parametrize("text", ["é", "图", "😀"])
def test_a_character_is_read_when_it_is_complete(tmp_path: Path, text: str) -> None:
    path, content = tmp_path / "log", f"a{text}".encode()
    for cut in range(1, len(content)):
        path.write_bytes(b"old")
        tail = _Tail(path)
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


def test_cpus_of_another_machine_bind_nothing(no_programs: None, tmp_path: Path) -> None:
    command = Command(argv=("x",), env={}, cpus=(0, 1, 80, 81), memory_node=0)
    assert usable_cpus(command, frozenset({0, 1, 2})) == (0, 1)
    assert bind_words(command, frozenset({0, 1})) == ()
    (tmp_path / "numactl").touch(0o755)
    assert bind_words(command, frozenset({0, 1, 2})) == ("numactl", "-C", "0-1", "-p", "0")
    assert bind_words(command, frozenset({5})) == ()


def test_signals_are_left_alone_off_the_main_thread(
    tmp_path: Path, free_port: int, pids: Path
) -> None:
    results: list[EngineOutcome] = []
    thread = threading.Thread(
        target=lambda: results.append(
            Supervisor(job(tmp_path, free_port, pids, "die"), Recorder()).run()
        )
    )
    thread.start()
    thread.join(GENEROUS)
    assert [outcome.kind for outcome in results] == ["died"]


@pytest.fixture
def other(free_port: int) -> Iterator[None]:
    """Serve under the name Other at the port of the engine."""
    text = (200, {"choices": [{"text": "2"}]})
    answers = {
        "/health": (200, {}),
        "/v1/models": (200, {"data": [{"id": "Other"}]}),
        "/v1/completions": text,
        "/v1/chat/completions": text,
    }
    with server(answers, free_port):
        yield


@pytest.mark.usefixtures("other")
def test_an_engine_that_answers_is_never_stuck(tmp_path: Path, free_port: int, pids: Path) -> None:
    """It writes nothing, for longer than a start may take."""
    later = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGTERM))
    silent = replace(
        job(tmp_path, free_port, pids, start=1.5),
        command=Command(("sleep", "60"), {}),
        names=("Other",),
    )
    outcome = Supervisor(silent, Recorder(later.start)).run()
    assert (outcome.kind, outcome.was_ready) == ("stopped", True)


@pytest.mark.parametrize(
    ("names", "owner", "found"),
    [(("m",), None, "/v1/models: Other"), ((), "b", "service b")],
    ids=["under another name", "known to belong to another service"],
)
@pytest.mark.usefixtures("other")
def test_answers_of_another_server_make_nothing_ready(
    tmp_path: Path,
    free_port: int,
    pids: Path,
    names: tuple[str, ...],
    owner: str | None,
    found: str,
) -> None:
    """An engine that still warms up while another one listens at its port already."""
    recorder = Recorder()
    # it hangs in its warm-up until it counts as stuck, and is asked every second
    hangs = replace(
        job(tmp_path, free_port, pids, "hang", warmup_prompt=4.0), names=names, owner=lambda: owner
    )
    outcome = Supervisor(hangs, recorder).run()
    assert (outcome.kind, outcome.was_ready) == ("stuck", False)
    assert not [said for said in recorder.said if said.startswith("answers")]
    noted = [
        line for line in hangs.log.read_text().splitlines() if line.startswith("gaudi-launch: ")
    ]
    expected = ", ".join(names) or "-"
    assert noted == [
        f"gaudi-launch: {hangs.url} is answered by another server ({found}); expected {expected}"
    ]


def test_an_engine_that_lost_its_address_is_ended_with_the_reason(
    tmp_path: Path, free_port: int, pids: Path
) -> None:
    """An engine that has bound its address and does not listen yet can lose it."""
    hangs = replace(job(tmp_path, free_port, pids, "hang"), stranger=lambda: "nc [4711]")
    outcome = Supervisor(hangs, Recorder()).run()
    assert (outcome.kind, outcome.was_ready) == ("stuck", False)
    assert failure(outcome, hangs.log).id == "serve.port_lost"
    found = diagnose(hangs.log.read_text(), exit_status=outcome.status, outcome=outcome.kind)
    assert [cause.id for cause in found.causes] == ["port_in_use"]
    assert [words for _, words in found.causes[0].evidence] == [
        f"gaudi-launch: [Errno 98] Address already in use: {hangs.url} is that of nc [4711]"
    ]
    assert not found.permanent
