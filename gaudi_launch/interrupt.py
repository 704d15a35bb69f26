"""Handle Ctrl-C without losing it, and without leaving a child process behind.

Python raises KeyboardInterrupt wherever the main thread is: in a fork handler or a destructor it is
printed and dropped, and between a fork and the assignment of the new process that process is
unknown. Code that starts children therefore runs in `deferred`: the signal sets an event there, and
the loop that waits calls `check`. Everywhere else `redelivered` raises again what Python dropped.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any, TextIO

from gaudi_launch.debug_log import ChildLog, best_effort

_log = logging.getLogger(__name__)

TURN_SECONDS = 0.1
_AGAIN_SECONDS = 0.05

# no threading.Event: its lock may be held by the very thread that the handler interrupts
_requests: list[int] = []


def requested() -> bool:
    """Return whether a Ctrl-C is pending."""
    return bool(_requests)


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
def deferred() -> Iterator[None]:
    """Let Ctrl-C only set the event; `check` and the end of the block raise it.

    Off the main thread, and where Ctrl-C is ignored or handled otherwise
    (`services.process.signals`), nothing changes.
    """
    former = signal.getsignal(signal.SIGINT)
    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or former is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _request)
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
        signal.signal(signal.SIGINT, former)
    check()


def _request(number: int, frame: FrameType | None) -> None:
    _requests.append(number)


@contextlib.contextmanager
def redelivered() -> Iterator[None]:
    """Raise again a KeyboardInterrupt that Python drops ("Exception ignored in ...").

    For the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former_hook = sys.unraisablehook
    former_alarm = signal.signal(signal.SIGALRM, _again)

    def hook(dropped: Any) -> None:
        if dropped.exc_type is not KeyboardInterrupt:
            former_hook(dropped)
            return
        # an error raised in here would be dropped, too
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = former_hook
        signal.signal(signal.SIGALRM, former_alarm)


def _again(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    text_in: str | None = None,
    output: int | TextIO | Any = subprocess.PIPE,
    errors: int | TextIO | Any = subprocess.PIPE,
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its output, as subprocess.run does.

    Ctrl-C ends all its processes. Raises OSError, and subprocess.TimeoutExpired after ``seconds``:
    none of its processes runs then either.
    """
    with deferred(), _input(text_in) as given:
        seen = ChildLog(_log, argv)
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=given,
                stdout=output,
                stderr=errors,
                env=None if env is None else dict(env),
                cwd=cwd,
                text=True,
                encoding="utf-8",
                errors="replace",
                # a separate group: its processes are ended with it, and the terminal's Ctrl-C is
                # handled here
                start_new_session=True,
            )
        except OSError as error:
            seen.failed(error)
            raise
        seen.started(process.pid)
        try:
            out, err = _communicate(process, seconds)
        finally:
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


def _communicate(process: subprocess.Popen[str], seconds: float | None) -> tuple[str, str]:
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        check()
        try:
            out, err = process.communicate(timeout=TURN_SECONDS)
        except subprocess.TimeoutExpired:
            if deadline is not None and time.monotonic() >= deadline:
                raise
        else:
            return out or "", err or ""


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process that leads a group, and its processes.

    Does nothing where it has ended.
    """
    import os

    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with best_effort(_log, "close a pipe"):
                pipe.close()
