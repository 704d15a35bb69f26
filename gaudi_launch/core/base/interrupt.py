"""Handle Ctrl-C without losing it, and without leaving a child process behind.

Python raises KeyboardInterrupt wherever the main thread is: in a fork handler or a destructor it is
printed and dropped, and between a fork and the assignment of the new process that process is
unknown. Code that starts children therefore runs in `deferred`: the signal sets an event there, and
the loop that waits calls `check`. Everywhere else `core.base.dropped_interrupt` raises again what
Python dropped.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, TypeVar

from gaudi_launch.core.base.child_log import ChildLog
from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.guard import guarded

_log = logging.getLogger(__name__)
_In = TypeVar("_In")
_Out = TypeVar("_Out")

TURN_SECONDS = 0.1
_GOODBYE_SECONDS = 3.0
_TURN_OF_END_SECONDS = 0.02
_MOST_ROUNDS = 100
_PR_SET_CHILD_SUBREAPER = 36

# no threading.Event: its lock may be held by the very thread that the handler interrupts
_requests: list[int] = []


def requested() -> bool:
    """Return whether a Ctrl-C is pending."""
    return bool(_requests)


def forget() -> None:
    """Drop a pending Ctrl-C, before work that no second one may stop."""
    _requests.clear()


def check() -> None:
    """Raise KeyboardInterrupt, once, for a Ctrl-C that came in `deferred`.

    Does nothing off the main thread.
    """
    if _requests and threading.current_thread() is threading.main_thread():
        _requests.clear()
        raise KeyboardInterrupt


def pause(seconds: float = TURN_SECONDS) -> None:
    """Wait one turn of a loop in `deferred`.

    Raises KeyboardInterrupt for a Ctrl-C before or during the wait.
    """
    check()
    time.sleep(seconds)
    check()


@contextlib.contextmanager
def deferred(*others: signal.Signals) -> Iterator[None]:
    """Let Ctrl-C only set the event; `check` and the end of the block raise it.

    ``others`` do the same as Ctrl-C meanwhile, where they are not ignored (nohup). Off the main
    thread, and where Ctrl-C is ignored or handled otherwise (`core.services.process.signals`),
    nothing changes.
    """
    if threading.current_thread() is threading.main_thread():
        former = _replaceable(others)
    else:
        former = {}
    if not former:
        yield
        return
    for number in former:
        signal.signal(number, _request)
    try:
        yield
    except KeyboardInterrupt:
        _requests.clear()
        raise
    except BaseException:
        # a handler of the other error would continue
        check()
        raise
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    check()


@contextlib.contextmanager
def raised(*others: signal.Signals) -> Iterator[None]:
    """Let signals raise KeyboardInterrupt, as Ctrl-C does.

    Those that are ignored (nohup) or handled otherwise stay so. Off the main thread nothing
    changes.
    """
    former: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        former = {n: signal.SIG_DFL for n in others if signal.getsignal(n) is signal.SIG_DFL}
    for number in former:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _replaceable(others: Sequence[signal.Signals]) -> dict[signal.Signals, Any]:
    """Return the handlers that an event may replace: Python's own, or none."""
    found: dict[signal.Signals, Any] = {}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        found[signal.SIGINT] = signal.default_int_handler
    for number in others:
        if signal.getsignal(number) is signal.SIG_DFL:
            found[number] = signal.SIG_DFL
    return found


def _request(number: int, frame: FrameType | None) -> None:
    _requests.append(number)


class DroppedError(Exception):
    """A command in a thread was ended, as a Ctrl-C waits for the main thread."""


@dataclass(frozen=True)
class Streams:
    """A command's input, and where its output and errors go, as for subprocess.Popen."""

    text_in: str | None = None
    output: int | IO[Any] | None = subprocess.PIPE
    errors: int | IO[Any] | None = subprocess.PIPE


@dataclass(frozen=True)
class Ending:
    """The early end of a command.

    ``with_main``: Ctrl-C also ends one that runs off the main thread (DroppedError).
    ``goodbye_seconds``: how long it may clean up after its output is closed, before it is killed.
    ``folder``: its temporary folder, which goes with it where this process is killed.
    """

    with_main: bool = False
    goodbye_seconds: float = 0.0
    folder: str = ""


_PIPES = Streams()
# one for a program's output and errors together
MIXED = Streams(errors=subprocess.STDOUT)
_AT_ONCE = Ending()


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    streams: Streams = _PIPES,
    seconds: float | None = None,
    ending: Ending = _AT_ONCE,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its output, as subprocess.run does.

    Ctrl-C ends all that it started, and so does the end of this process (`core.base.guard`). Raises
    OSError, and subprocess.TimeoutExpired after ``seconds``: nothing of it lives then either.
    """
    with deferred(), _input(streams.text_in) as given:
        seen = ChildLog(_log, argv)
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=given,
                stdout=streams.output,
                stderr=streams.errors,
                env=None if env is None else dict(env),
                cwd=cwd,
                text=True,
                encoding="utf-8",
                errors="replace",
                # a separate group: its processes are ended with it, and the terminal's Ctrl-C is
                # handled here
                start_new_session=True,
                preexec_fn=guarded(ending.folder),
            )
        except OSError as error:
            seen.failed(error)
            raise
        seen.started(process.pid)
        try:
            out, err = _communicate(process, seconds, with_main=ending.with_main)
        finally:
            _say_goodbye(process, ending.goodbye_seconds)
            end_group(process)
            seen.ended(process.returncode)
        return subprocess.CompletedProcess(argv, process.returncode, out, err)


@contextlib.contextmanager
def _input(text: str | None) -> Iterator[int | IO[bytes]]:
    """Return the input of a command as a file.

    communicate forgets the rest of a long input after a timeout.
    """
    if text is None:
        yield subprocess.DEVNULL
        return
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", errors="surrogateescape"))
        file.seek(0)
        yield file


def attend(argv: Sequence[str]) -> int:
    """Run a command at the user's terminal and return its exit status.

    It may ask there for a password. The terminal's Ctrl-C reaches the command as well; one that is
    sent to this process alone ends it, too, as the end of this process does. Raises OSError.
    """
    before = _descendants()
    with deferred():
        seen = ChildLog(_log, argv)
        adopt_orphans()
        try:
            process = subprocess.Popen(list(argv), preexec_fn=guarded())
        except OSError as error:
            seen.failed(error)
            raise
        seen.started(process.pid)
        try:
            while process.poll() is None:
                pause()
        finally:
            if process.poll() is None:
                _end_family(process, before)
            seen.ended(process.returncode)
        return process.returncode


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be found and ended."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _descendants() -> set[int]:
    import psutil

    return {child.pid for child in psutil.Process().children(recursive=True)}


def _end_family(process: subprocess.Popen[Any], before: set[int]) -> None:
    """End a process, then what it started: orphans of it are ours."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GOODBYE_SECONDS)
    end_process(process)
    for _ in range(_MOST_ROUNDS):
        left = _descendants() - before
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_TURN_OF_END_SECONDS)


def end_process(process: subprocess.Popen[Any]) -> None:
    """Kill a process that is still there, and take its exit status."""
    if process.poll() is None:
        process.kill()
        process.wait()


def _say_goodbye(process: subprocess.Popen[Any], seconds: float) -> None:
    """Close the output of a process that is to end, and let it clean up."""
    if not seconds or process.poll() is not None:
        return
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            with best_effort(_log, "close a pipe"):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def in_threads(do: Callable[[_In], _Out], items: Sequence[_In], at_once: int) -> list[_Out]:
    """Return the results of a function for all items, computed in threads.

    Its commands are run with ``Ending(with_main=True)``: a Ctrl-C waits until the threads have seen
    it and ended them.
    """
    # takes part of the start of every command
    from concurrent.futures import ThreadPoolExecutor

    with deferred(), ThreadPoolExecutor(at_once) as pool:
        asked = [pool.submit(do, each) for each in items]
        while not all(future.done() for future in asked):
            time.sleep(TURN_SECONDS)
        check()
        return [future.result() for future in asked]


def _communicate(
    process: subprocess.Popen[str], seconds: float | None, *, with_main: bool
) -> tuple[str, str]:
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        check()
        if with_main and requested():
            raise DroppedError
        try:
            out, err = process.communicate(timeout=TURN_SECONDS)
        except subprocess.TimeoutExpired:
            if deadline is not None and time.monotonic() >= deadline:
                raise
        else:
            return out or "", err or ""


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process that leads a group, and its processes.

    Kills nothing where its exit status was taken: the kernel keeps the number of the group only
    until then. One that has ended before may have left processes that keep its output open.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with best_effort(_log, "close a pipe"):
                pipe.close()
