"""An engine's process: its environment, files and log, and the order of its end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from gaudi_launch.planning.plan import Command
from gaudi_launch.services.process import process as module
from gaudi_launch.services.process.process import EngineProcess, StopTimeouts, write_files

SHORT = StopTimeouts(3.0, 2.0)
SHOW = "import os, sys; print(os.getcwd(), dict(os.environ), os.getsid(0) == os.getpid())"


def test_an_engine_gets_its_variables_folder_files_and_a_session_of_its_own(
    tmp_path: Path,
) -> None:
    log, file = tmp_path / "log", tmp_path / "a" / "buckets.txt"
    log.write_text("before\n")
    command = Command(
        (sys.executable, "-S", "-c", SHOW),
        {"A": "ours", "C": "set"},
        unset=("B", "MISSING"),
        working_dir=str(tmp_path),
        files={str(file): "1,2\n"},
    )
    inherited = {"A": "theirs", "B": "gone", "D": "kept", "LC_ALL": "C.UTF-8"}
    engine = EngineProcess(command, log, inherited, bind=False)
    pid = engine.start()
    assert engine.pid == pid
    assert engine.end(StopTimeouts(30.0, 30.0), Waits(engine)) == 0
    first, shown = log.read_text().splitlines()
    expected = {"A": "ours", "D": "kept", "LC_ALL": "C.UTF-8", "C": "set"}
    assert (first, shown) == ("before", f"{tmp_path} {expected} True")
    assert file.read_text() == "1,2\n"


class Waits:
    """Lets a process end by itself before it is told to."""

    def __init__(self, engine: EngineProcess) -> None:
        while engine.poll() is None:
            time.sleep(0.01)

    def __call__(self) -> bool:
        return False


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    engine = EngineProcess(Command((str(tmp_path / "none"),), {}), tmp_path / "log", {}, bind=False)
    with pytest.raises(FileNotFoundError):
        engine.start()


def test_a_file_that_cannot_be_written_is_named_and_leaves_no_part(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=f"{tmp_path}/folder: Is a directory"):
        write_files({str(tmp_path / "a"): "é", str(tmp_path / "folder"): "text"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "folder"]
    assert (tmp_path / "a").read_bytes() == "é".encode()


@pytest.mark.parametrize(("numactl", "bound"), [(False, True), (True, False)])
def test_without_numactl_the_child_binds_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numactl: bool, bound: bool
) -> None:
    mine = tuple(sorted(os.sched_getaffinity(0)))
    bindings: list[tuple[int, ...]] = []
    monkeypatch.setattr(module, "_in_child", bindings.append)
    prefix = (sys.executable, "-c", "") if numactl else ()
    monkeypatch.setattr(module, "bind_words", lambda command: prefix)
    command = Command(("/bin/true",), {}, cpus=(*mine, 9999))
    for bind in (True, False):
        engine = EngineProcess(command, tmp_path / "log", {}, bind=bind)
        engine.start()
        engine.end(SHORT)
    assert bindings == [mine if bound else (), ()]


class Child:
    """A first process that ends at the given signal."""

    pid = 50

    def __init__(self, ends_by: int | None) -> None:
        self.ends_by = ends_by
        self.status: int | None = None
        self.waited: list[float] = []

    def poll(self) -> int | None:
        return self.status

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


def ended(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    ends_by: dict[int, int | None],
    hurry: Callable[[], bool] = lambda: False,
) -> tuple[list[tuple[int, int]], list[float], Child]:
    """End an engine whose processes end by these signals; return signals and waits."""
    sent: list[tuple[int, int]] = []
    waits: list[float] = []
    alive = dict(ends_by)
    child = Child(ends_by.get(50))

    def kill(pid: int, number: int) -> None:
        sent.append((pid, number))
        if pid not in alive:
            raise ProcessLookupError
        if alive[pid] == number:
            del alive[pid]
            if pid == 50:
                child.status = -number

    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        waits.append(clock[0])

    engine = EngineProcess(Command((), {}), tmp_path / "log", {})
    engine._child = child  # type: ignore[assignment]
    monkeypatch.setattr(EngineProcess, "look", lambda self: sorted(alive))
    monkeypatch.setattr(EngineProcess, "_status", lambda self: child.status)
    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    assert engine.end(SHORT, hurry) == child.status
    return sent, waits, child


TERM, KILL = signal.SIGTERM, signal.SIGKILL


def test_the_first_process_ends_its_workers_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent, waits, child = ended(monkeypatch, tmp_path, {50: TERM})
    assert (sent, waits, child.status, child.waited) == ([(50, TERM)], [], -15, [2.0])


def test_what_the_first_process_left_is_told_and_then_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent, waits, _ = ended(monkeypatch, tmp_path, {50: TERM, 51: TERM, 52: KILL})
    assert sent == [(50, TERM), (51, TERM), (52, TERM), (52, KILL)]
    assert waits[-1] == pytest.approx(2.0, abs=0.06)


def test_a_deaf_engine_has_its_time_and_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent, waits, child = ended(monkeypatch, tmp_path, {50: KILL})
    assert sent == [(50, TERM), (50, TERM), (50, KILL)]
    assert waits[-1] == pytest.approx(5.0, abs=0.11)
    assert child.status == -9


def test_a_second_signal_kills_at_once_and_the_last_wait_is_not_hurried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent, waits, _ = ended(monkeypatch, tmp_path, {50: KILL}, lambda: True)
    assert (sent, waits) == ([(50, TERM), (50, TERM), (50, KILL)], [])
    # one in an uninterruptible wait of the kernel
    sent, waits, _ = ended(monkeypatch, tmp_path, {51: None}, lambda: True)
    assert sent == [(50, TERM), (51, TERM), (51, KILL)]
    assert waits[-1] == pytest.approx(2.0, abs=0.06)


def test_every_living_descendant_is_found(tmp_path: Path) -> None:
    engine = EngineProcess(Command(("/bin/sleep", "60"), {}), tmp_path / "log", {}, bind=False)
    pid = engine.start()
    try:
        assert pid in engine.look()
        assert engine.poll() is None
    finally:
        assert engine.end(SHORT) == -15
    assert pid not in engine.look()
    assert engine.poll() == -15
    assert StopTimeouts() == StopTimeouts(20.0, 5.0)


def test_a_descendant_that_ended_is_reaped_and_the_first_is_left_to_its_owner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reaped: list[tuple[int, int]] = []

    def waitpid(pid: int, flags: int) -> None:
        reaped.append((pid, flags))
        if pid == 52:
            raise ChildProcessError

    def process(pid: int, status: str, threads: int = 1) -> Mock:
        return Mock(pid=pid, status=lambda: status, num_threads=lambda: threads)

    gone = Mock(pid=55, status=Mock(side_effect=psutil.NoSuchProcess(55)))
    dead = psutil.STATUS_ZOMBIE
    children = [
        *(process(pid, dead) for pid in (50, 51, 52)),
        # of several threads only the first has ended
        process(53, dead, threads=2),
        process(54, psutil.STATUS_RUNNING),
        gone,
    ]
    asked: list[bool] = []

    def list_children(self: object, recursive: bool = False) -> list[Mock]:
        asked.append(recursive)
        return children

    monkeypatch.setattr(psutil.Process, "children", list_children)
    monkeypatch.setattr(os, "waitpid", waitpid)
    engine = EngineProcess(Command((), {}), tmp_path / "log", {})
    engine._child = Child(None)  # type: ignore[assignment]
    assert (engine.look(), asked) == ([53, 54], [True])
    assert reaped == [(51, os.WNOHANG), (52, os.WNOHANG)]
