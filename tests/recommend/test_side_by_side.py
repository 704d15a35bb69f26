"""Work in two processes: results in order, errors here, nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from gaudi_launch.recommend import side_by_side as module
from gaudi_launch.recommend.side_by_side import side_by_side


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


def _square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def test_results_are_in_order_whoever_makes_them() -> None:
    shown: list[int] = []
    found = side_by_side([partial(_square, each) for each in range(40)], shown.append, two=True)
    assert [square for square, _ in found] == [each * each for each in range(40)]
    assert shown == sorted(shown)
    assert max(shown, default=0) <= 40


def test_what_the_fork_has_made_is_not_done_again() -> None:
    # each waits for the other, so that each process takes one
    both = multiprocessing.get_context("fork").Barrier(2)

    def meet() -> int:
        both.wait(20)
        return os.getpid()

    found = side_by_side([meet, meet], lambda done: None, two=True)
    assert os.getpid() in found
    assert len(set(found)) == 2


def test_without_a_second_process_all_is_done_here() -> None:
    shown: list[int] = []
    found = side_by_side([partial(_square, each) for each in range(3)], shown.append, two=False)
    assert found == [(0, os.getpid()), (1, os.getpid()), (4, os.getpid())]
    assert shown == [1, 2, 3]


def test_an_error_of_either_process_is_raised_here() -> None:
    def fail() -> None:
        raise ValueError("no such bucket")

    with pytest.raises(ValueError, match="no such bucket"):
        side_by_side([fail, fail], lambda done: None, two=True)


def test_the_fork_ends_with_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, forks = os.fork, []

    def noted() -> int:
        pid = fork()
        forks.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", noted)
    side_by_side([partial(_square, each) for each in range(4)], lambda done: None, two=True)
    (pid,) = forks
    # another test's children may be left to this worker
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


_WAITING = """
import os, sys, time
os.sched_getaffinity = lambda pid: {0, 1}
from gaudi_launch.recommend.side_by_side import side_by_side
def wait():
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(60)
try:
    side_by_side([wait, wait], lambda done: None, two=True)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_when_the_first_is_ended(number: signal.Signals) -> None:
    root = Path(module.__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", _WAITING], stdout=subprocess.PIPE, text=True, cwd=root
    ) as running:
        assert running.stdout is not None
        pids = {int(running.stdout.readline()), int(running.stdout.readline())}
        assert running.pid in pids
        other = os.pidfd_open((pids - {running.pid}).pop())
        os.kill(running.pid, number)
        # both have the pipe: it ends when neither is left
        assert running.stdout.read() == ""
        os.close(other)
        expected = 130 if number is signal.SIGINT else -number
        assert running.wait(30) == expected
