"""One engine process and everything that descends from it: started without a shell, ended without a remainder."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from gaudi_launch.debug_log import ChildLog
from gaudi_launch.host.cpus import format_cpus
from gaudi_launch.planning.plan import Command

_log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.05

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class StopTimeouts:
    """How long an ordered end may take, in seconds: for the engine itself, then for what it left behind."""

    engine: float = 20.0
    rest: float = 5.0


def bind_words(command: Command, allowed: frozenset[int] | None = None) -> tuple[str, ...]:
    """The words in front of the engine's own that bind its CPUs and prefer its memory node; () without numactl."""
    cpus = usable_cpus(command, allowed)
    if not cpus or shutil.which("numactl") is None:
        return ()
    words = ("numactl", "-C", format_cpus(cpus))
    return words if command.memory_node is None else (*words, "-p", str(command.memory_node))


def usable_cpus(command: Command, allowed: frozenset[int] | None = None) -> tuple[int, ...]:
    """The planned CPUs that this process may use; none of them (another machine's plan): no binding."""
    mine = allowed if allowed is not None else frozenset(os.sched_getaffinity(0))
    return tuple(cpu for cpu in command.cpus if cpu in mine)


def adopt_orphans() -> None:
    """Become the parent of whatever the engine leaves behind, so that it can be found and ended."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _put(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises OSError that names it."""
    part = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(part).replace(path)
    except OSError as error:
        if part:
            Path(part).unlink(missing_ok=True)
        raise OSError(error.errno, f"{path}: {error.strerror or error}") from None


@dataclass
class EngineProcess:
    """A started engine. ``log`` gets its output; the log outlives us, so we read it from the file."""

    command: Command
    log: Path
    environment: Mapping[str, str]
    bind: bool = True
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _seen: ChildLog | None = field(default=None, init=False, repr=False)

    def start(self) -> int:
        """Start it in a session of its own; its pid. Raises OSError when it, or a file for it, cannot be made."""
        for path, text in self.command.files.items():
            _put(Path(path), text)
        adopt_orphans()
        prefix = bind_words(self.command) if self.bind else ()
        cpus = usable_cpus(self.command) if self.bind and not prefix else ()
        environment = {**self.environment, **self.command.env}
        for name in self.command.unset:
            environment.pop(name, None)
        argv = [*prefix, *self.command.argv]
        self._seen = ChildLog(_log, argv)
        output: IO[bytes]
        try:
            with self.log.open("ab") as output:
                self._child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=self.command.working_dir,
                    start_new_session=True,
                    preexec_fn=_in_child(cpus),
                )
        except OSError as error:
            self._seen.failed(error)
            raise
        self._seen.started(self._child.pid)
        return self._child.pid

    @property
    def pid(self) -> int:
        assert self._child is not None, "not started"
        return self._child.pid

    def poll(self) -> int | None:
        """The exit status of the engine's first process (negative: a signal), None while it lives.

        Cheap: asked many times a second, it reads nothing of /proc.
        """
        assert self._child is not None, "not started"
        self._reap_adopted()
        return self._status()

    def _status(self) -> int | None:
        assert self._child is not None and self._seen is not None, "not started"
        status = self._child.poll()
        if status is not None:
            self._seen.ended(status)
        return status

    def _reap_adopted(self) -> None:
        """Take the exit statuses of orphans that the kernel gave to us; the first child is Popen's to reap."""
        assert self._child is not None, "not started"
        with contextlib.suppress(ChildProcessError):
            while True:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None or ended.si_pid == self._child.pid:
                    return
                os.waitpid(ended.si_pid, os.WNOHANG)

    def look(self) -> list[int]:
        """Every living descendant by now; also reaps those that ended. Reads all of /proc."""
        import psutil

        alive = []
        for process in psutil.Process().children(recursive=True):
            try:
                # of several threads the first may end before the others, which still hold its card
                if process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1:
                    self._reap(process.pid)
                    continue
                alive.append(process.pid)
            except psutil.Error:
                continue
        return alive

    def _reap(self, pid: int) -> None:
        # the first child is Popen's to reap; another's child is not ours to wait for
        if self._child is not None and pid != self._child.pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def end(self, patience: StopTimeouts, hurry: Callable[[], bool] = lambda: False) -> int | None:
        """End the engine, then all that descends from it: ask, wait, kill. The engine's exit status.

        ``hurry`` is asked on the way: True (a second Ctrl-C) stops the waiting. Nothing is left when it returns,
        but for what the kernel holds in an uninterruptible wait.
        """
        assert self._child is not None, "not started"
        self.look()
        # the first process ends its workers itself, in the right order; only then come those it forgot
        if self._child.poll() is None:
            self._signal([self._child.pid], signal.SIGTERM)
            self._wait(lambda: self._child is not None and self._child.poll() is not None, patience.engine, hurry)
        if self.look():
            self._signal(self.look(), signal.SIGTERM)
            self._wait(lambda: not self.look(), patience.rest, hurry)
        if self.look():
            self._signal(self.look(), signal.SIGKILL)
            self._wait(lambda: not self.look(), patience.rest, lambda: False)
        # a process on its way out is no longer listed before it can be waited for
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(patience.rest)
        return self._status()

    def _signal(self, pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _wait(self, done: Callable[[], bool], seconds: float, hurry: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline and not hurry():
            time.sleep(_POLL_SECONDS)


def _in_child(cpus: tuple[int, ...]) -> Callable[[], None]:
    parent = os.getpid()

    def prepare() -> None:
        # a launcher that is killed must not leave an engine on the cards
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
        if cpus:
            os.sched_setaffinity(0, cpus)

    return prepare
