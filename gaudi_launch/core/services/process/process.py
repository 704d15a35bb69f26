"""One engine process and its descendants: start without a shell, end completely."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from gaudi_launch.core.base.child_log import ChildLog
from gaudi_launch.core.base.guard import guarded
from gaudi_launch.core.base.interrupt import adopt_orphans
from gaudi_launch.core.base.paths import write_whole
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.planning.plan import Command

_log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.05

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class StopTimeouts:
    """Timeouts of an ordered end in seconds: the engine, then what it left."""

    engine: float = 20.0
    rest: float = 5.0


def bind_words(command: Command, allowed: frozenset[int] | None = None) -> tuple[str, ...]:
    """Return the command prefix that binds CPUs and prefers a memory node.

    Return () without numactl.
    """
    cpus = usable_cpus(command, allowed)
    if not cpus or shutil.which("numactl") is None:
        return ()
    words = ("numactl", "-C", format_cpus(cpus))
    if command.memory_node is None:
        return words
    return (*words, "-p", str(command.memory_node))


def usable_cpus(command: Command, allowed: frozenset[int] | None = None) -> tuple[int, ...]:
    """Return the planned CPUs that this process may use.

    None of them (another machine's plan): no binding.
    """
    mine = allowed if allowed is not None else frozenset(os.sched_getaffinity(0))
    return tuple(cpu for cpu in command.cpus if cpu in mine)


def write_files(files: Mapping[str, str]) -> None:
    """Write texts by path, each atomically. Raises OSError that names one."""
    for path, text in files.items():
        try:
            write_whole(Path(path), text, mode=0o600)
        except OSError as error:
            raise OSError(error.errno, f"{path}: {error.strerror or error}") from None


@dataclass
class EngineProcess:
    """A started engine.

    ``log`` gets its output; the log outlives this process, so it is read from the file.
    ``guarded``: when this process is killed, all of it is (`core.base.guard`); an engine gets
    SIGTERM.
    """

    command: Command
    log: Path
    environment: Mapping[str, str]
    bind: bool = True
    guarded: bool = False
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _seen: ChildLog | None = field(default=None, init=False, repr=False)

    def start(self) -> int:
        """Start it in a new session; return its pid.

        Raises OSError when it, or a file for it, cannot be made.
        """
        write_files(self.command.files)
        adopt_orphans()
        prefix = bind_words(self.command) if self.bind else ()
        if self.bind and not prefix:
            cpus = usable_cpus(self.command)
        else:
            cpus = ()
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
                    preexec_fn=guarded() if self.guarded else _in_child(cpus),
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
        """Return the exit status of the engine's first process, None while it runs.

        A negative status is a signal. Cheap: it is called many times per second and reads nothing
        of /proc.
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
        """Collect the exit statuses of orphans that the kernel gave to this process.

        The first child is Popen's to reap.
        """
        assert self._child is not None, "not started"
        with contextlib.suppress(ChildProcessError):
            while True:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None or ended.si_pid == self._child.pid:
                    return
                os.waitpid(ended.si_pid, os.WNOHANG)

    def look(self) -> list[int]:
        """Return every living descendant; also reap those that ended.

        Reads all of /proc.
        """
        import psutil

        alive = []
        for process in psutil.Process().children(recursive=True):
            try:
                # of several threads the first may end before the others, which still use its card
                if process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1:
                    # the first child is Popen's to reap; other children are not this object's
                    if self._child is not None and process.pid != self._child.pid:
                        with contextlib.suppress(ChildProcessError):
                            os.waitpid(process.pid, os.WNOHANG)
                    continue
                alive.append(process.pid)
            except psutil.Error:
                continue
        return alive

    def end(self, timeouts: StopTimeouts, hurry: Callable[[], bool] = lambda: False) -> int | None:
        """End the engine and all its descendants: SIGTERM, wait, SIGKILL.

        Returns the engine's exit status. ``hurry`` is called on the way: True (a second Ctrl-C)
        stops the waiting. Nothing remains when it returns, except processes in an uninterruptible
        wait of the kernel.
        """
        assert self._child is not None, "not started"
        self.look()
        # the first process ends its workers itself, in the right order; then the remaining ones are
        # ended
        if self._child.poll() is None:
            self._signal([self._child.pid], signal.SIGTERM)
            self._wait(
                lambda: self._child is not None and self._child.poll() is not None,
                timeouts.engine,
                hurry,
            )
        if self.look():
            self._signal(self.look(), signal.SIGTERM)
            self._wait(lambda: not self.look(), timeouts.rest, hurry)
        if self.look():
            self._signal(self.look(), signal.SIGKILL)
            self._wait(lambda: not self.look(), timeouts.rest, lambda: False)
        # an ending process is no longer listed before it can be waited for
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeouts.rest)
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
