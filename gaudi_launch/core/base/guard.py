"""End a command and its descendants with this process, whatever ends it.

Between this process and the command is a fork that waits: the guard. The kernel signals it when
this process ends, also by SIGKILL. It then kills its descendants, which cannot leave it (it adopts
orphans), and ends when the last one is gone. Until then it keeps this process's file locks: the
next run waits at the lock and finds no process that still writes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_AWAITED = (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM)
_libc = ctypes.CDLL(None, use_errno=True)


def guarded(folder: str = "") -> Callable[[], None]:
    """Return a ``preexec_fn`` for subprocess.Popen.

    Popen's process is the guard: it ends with the command, and as the command did. It passes
    SIGTERM on to the command. ``folder`` is a temporary one. Where it does not exist it is made for
    the command and ends with it; one that exists is removed where this process ends first.
    """
    parent = os.getpid()
    # while the main thread waits for its command, it releases no lock that the guard would keep
    keeps_locks = threading.current_thread() is threading.main_thread()

    def prepare() -> None:
        made = False
        # "" is this folder, which exists
        with contextlib.suppress(OSError):
            Path(folder).mkdir(0o700)
            made = True
        command = os.fork()
        if command:
            _guard(command, parent, keeps_locks, folder, made)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return prepare


def _guard(command: int, parent: int, keeps_locks: bool, folder: str, made: bool) -> NoReturn:
    """Wait for the end of the command or the parent. Only system calls are safe."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, (*_AWAITED, signal.SIGINT))
        # close what the guard inherited: an open pipe would hide the command's end
        # not by pathlib, which takes longer than all that follows: each command has a guard
        for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
            # the folder's own number is closed by now
            with contextlib.suppress(OSError):
                if keeps_locks and b"lock:" in Path("/proc/self/fdinfo", number).read_bytes():
                    continue
                os.close(int(number))
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)
        while os.getppid() == parent:
            status = _exit_status(command)
            if status is not None:
                if made:
                    shutil.rmtree(folder, ignore_errors=True)
                _end_as(status)
            came = signal.sigwait(_AWAITED)
            if came == signal.SIGHUP:
                break
            if came == signal.SIGTERM:
                # for the command, which may clean up; the guard ends with it
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(command, came)
        _end_children()
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        # nothing of the parent's may be flushed or cleaned up twice
        os._exit(1)


def _exit_status(command: int) -> int | None:
    """Take the status of ended children; return the command's, None while it runs."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == command:
            return os.waitstatus_to_exitcode(status)
        if not pid:
            return None


def _end_as(status: int) -> None:
    """End with the command's exit status, or by its signal."""
    if status >= 0:
        os._exit(status)
    # the command has written a core dump where one is enabled
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        signal.signal(-status, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (-status,))
    os.kill(os.getpid(), -status)


def _end_children() -> None:
    """Kill every descendant, and wait for its end.

    The children of a killed one become the guard's own.
    """
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)
