"""Ctrl-C is never lost and leaves no child behind: deferred, raised again where Python drops it,
at drawn times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.dropped_interrupt import redelivered
from tests.support.places import TOP
from tests.support.processes import is_alive
from tests.support.waiting import GENEROUS, until

SCRIPT = TOP / "scripts" / "acceptance" / "interrupts.py"


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """A shell's background jobs ignore Ctrl-C."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_in_a_deferred_block_it_waits_to_be_asked_for() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupt.deferred():
        ctrl_c()
        reached.append(interrupt.requested())
        interrupt.check()
    assert reached == [True] and not interrupt.requested()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_end_of_the_block_raises_what_was_not_asked_for() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt):
        with interrupt.deferred():
            with interrupt.deferred():
                ctrl_c()
            reached.append("inner end")
        reached.append("outer end")
    assert reached == ["inner end"]
    interrupt.check()


def test_another_error_does_not_hide_it() -> None:
    with pytest.raises(KeyboardInterrupt), interrupt.deferred():
        ctrl_c()
        raise OSError("whoever handles this would go on")
    with pytest.raises(OSError), interrupt.deferred():
        raise OSError("as without it")


def test_where_it_is_ignored_it_stays_ignored() -> None:
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupt.deferred():
            ctrl_c()
            assert not interrupt.requested()
    finally:
        signal.signal(signal.SIGINT, former)


class Drops:
    """Its end swallows what is raised meanwhile, as a fork handler's does."""

    def __del__(self) -> None:
        ctrl_c()
        for _ in range(1000):
            pass


def test_what_python_drops_is_raised_again() -> None:
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), redelivered():
        dropping = Drops()
        del dropping
        time.sleep(GENEROUS)
    assert time.monotonic() - begin < GENEROUS / 2
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_command_ends_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    words = ["sh", "-c", f"sleep 600 & echo $$ $! > {pids}; sleep 600"]
    begin = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        interrupt.run(words, seconds=1.0)
    assert time.monotonic() - begin < GENEROUS / 2
    both = [int(pid) for pid in pids.read_text().split()]
    until(lambda: not any(is_alive(pid) for pid in both), "their end")


def test_what_a_command_left_behind_at_its_end_is_ended(tmp_path: Path) -> None:
    """As a window for a password that ssh's own ssh to a jump host opened."""
    pids = tmp_path / "pid"
    words = ["sh", "-c", f"sleep 600 & echo $! > {pids}; exit 0"]
    with pytest.raises(subprocess.TimeoutExpired):
        interrupt.run(words, seconds=1.0)
    until(lambda: not is_alive(int(pids.read_text())), "its end")


def test_a_signal_that_ends_a_program_raises_where_it_is_not_ignored() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interrupt.raised(signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(GENEROUS)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


def test_a_signal_beside_ctrl_c_counts_alike_where_it_is_not_ignored() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interrupt.deferred(signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupt.requested()
            os.kill(os.getpid(), signal.SIGTERM)
            interrupt.check()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, former)


def test_what_is_forgotten_stops_nothing() -> None:
    with interrupt.deferred():
        ctrl_c()
        interrupt.forget()
        interrupt.check()


def test_commands_in_threads_end_with_the_ctrl_c_that_waits_for_the_main_thread(
    tmp_path: Path,
) -> None:
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupt.deferred(), ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(interrupt.run, ["sleep", "600"], ending=interrupt.Ending(with_main=True))
            for _ in range(2)
        ]
        time.sleep(0.3)
        ctrl_c()
        for each in asked:
            assert isinstance(each.exception(), interrupt.DroppedError)
        interrupt.check()
    assert time.monotonic() - begin < GENEROUS / 2


def test_a_command_that_is_dropped_may_clean_up_when_its_output_closes(tmp_path: Path) -> None:
    done = tmp_path / "cleaned"
    program = (
        "import select, os; p = select.poll(); p.register(1, 0)\n"
        "while not p.poll(50): pass\n"
        f"open({str(done)!r}, 'w').close()"
    )
    with pytest.raises(subprocess.TimeoutExpired):
        interrupt.run(
            [sys.executable, "-c", program],
            seconds=1.0,
            ending=interrupt.Ending(goodbye_seconds=GENEROUS),
        )
    assert done.exists()


ATTEND = """
import os, signal, sys, threading
from gaudi_launch.core.base import interrupt

signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(1.0, os.kill, (os.getpid(), int(sys.argv[2]))).start()
interrupt.attend(["sh", "-c", f"sleep 600 & echo $$ $! > {sys.argv[1]}; sleep 600"])
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_command_at_the_terminal_ends_with_what_it_started(tmp_path: Path, sent: int) -> None:
    # a process of its own: it adopts orphans from then on
    pids = tmp_path / "pids"
    words = [sys.executable, "-c", ATTEND, str(pids), str(int(sent))]
    assert subprocess.run(words, timeout=GENEROUS, check=False).returncode == -sent
    both = [int(pid) for pid in pids.read_text().split()]
    until(lambda: not any(is_alive(pid) for pid in both), "their end")


def test_a_command_gets_its_input_and_gives_its_output() -> None:
    long = "x" * 300_000
    done = interrupt.run(
        ["sh", "-c", "sleep 0.3; cat; echo err >&2; exit 3"],
        streams=interrupt.Streams(text_in=long),
    )
    assert (done.stdout, done.stderr, done.returncode) == (long, "err\n", 3)
    with pytest.raises(OSError):
        interrupt.run(["/no/program"])


def test_a_command_gets_its_environment_and_its_folder(tmp_path: Path) -> None:
    done = interrupt.run(["/bin/sh", "-c", "echo $MINE; pwd"], env={"MINE": "x"}, cwd=tmp_path)
    assert (done.stdout, done.args) == (f"x\n{tmp_path}\n", ["/bin/sh", "-c", "echo $MINE; pwd"])


def test_a_command_runs_in_a_folder_that_its_user_may_not_enter(tmp_path: Path) -> None:
    program = "import os; from gaudi_launch.core.base import interrupt; os.chmod('.', 0); "
    program += "print(interrupt.run(['/bin/echo', 'a']).stdout)"
    assert interrupt.run([sys.executable, "-c", program], cwd=tmp_path).stdout == "a\n\n"


def test_output_and_errors_are_one_where_they_are_mixed() -> None:
    done = interrupt.run(["sh", "-c", "echo a; echo b >&2; echo c"], streams=interrupt.MIXED)
    assert (done.stdout, done.stderr) == ("a\nb\nc\n", "")


def test_bytes_that_are_no_text_are_marked() -> None:
    assert interrupt.run(["printf", "a\\377b"]).stdout == "a\ufffdb"


def test_a_command_that_does_not_end_by_itself_is_killed_after_its_time() -> None:
    begin = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        interrupt.run(["sleep", "600"], seconds=0.1, ending=interrupt.Ending(goodbye_seconds=0.1))
    assert time.monotonic() - begin < GENEROUS / 2


def test_what_else_python_drops_reaches_the_former_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: seen.append(dropped.exc_type))
    mine = sys.unraisablehook
    former = signal.getsignal(signal.SIGALRM)

    class Fails:
        def __del__(self) -> None:
            raise ValueError

    with redelivered():
        assert sys.unraisablehook is not mine
        failing = Fails()
        del failing
    assert seen == [ValueError]
    assert (sys.unraisablehook, signal.getsignal(signal.SIGALRM)) == (mine, former)


def test_off_the_main_thread_nothing_changes() -> None:
    hook = sys.unraisablehook

    def inside() -> tuple[object, ...]:
        with interrupt.deferred(), interrupt.raised(signal.SIGTERM), redelivered():
            handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
            found = (*handlers, sys.unraisablehook)
            interrupt._requests.append(signal.SIGINT)
            # it is the main thread's
            interrupt.check()
            left = interrupt.requested()
            interrupt.forget()
        return *found, left

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(inside).result()
    assert found == (signal.default_int_handler, signal.SIG_DFL, hook, True)


def test_a_turn_of_a_loop_ends_with_a_ctrl_c_that_came_before_it() -> None:
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupt.deferred():
        interrupt.pause(0.0)
        ctrl_c()
        interrupt.pause(GENEROUS)
    assert time.monotonic() - begin < GENEROUS / 2


@pytest.fixture
def adopts_no_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process stay as it is: a subreaper would stay one."""
    monkeypatch.setattr(interrupt, "adopt_orphans", lambda: None)


@pytest.mark.usefixtures("adopts_no_orphans")
def test_a_command_at_the_terminal_is_waited_for() -> None:
    assert interrupt.attend(["sh", "-c", "sleep 0.2; exit 3"]) == 3
    with pytest.raises(FileNotFoundError):
        interrupt.attend(["/no/program"])


@pytest.mark.usefixtures("adopts_no_orphans")
def test_a_command_at_the_terminal_that_ignores_its_end_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interrupt, "_GOODBYE_SECONDS", 0.1)
    monkeypatch.setattr(interrupt, "pause", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupt.attend(["sh", "-c", "trap '' TERM; exec sleep 600"])
    assert time.monotonic() - begin < GENEROUS / 2


def test_real_commands_at_drawn_moments() -> None:
    """The short form of the acceptance script, which draws 200 for ten commands."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "10"],
        capture_output=True,
        text=True,
        timeout=GENEROUS * 3,
        check=False,
    )
    assert json.loads(done.stdout) == {"moments": 10, "bad": []}, done.stderr
    assert done.returncode == 0
