"""One run of an engine: start, follow, probe, keep, end.

Signals are only queued; one loop acts.
"""

from __future__ import annotations

import codecs
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.services.log.follow import Follower, LaunchProgress
from gaudi_launch.core.services.log.rotate import rotate
from gaudi_launch.core.services.probe import OTHER, Readiness, probe, probe_health
from gaudi_launch.core.services.process.process import EngineProcess, StopTimeouts
from gaudi_launch.core.services.process.signals import Signals

_log = logging.getLogger(__name__)

_TURN_SECONDS = 0.1
_CALM_SECONDS = 1.0
_PROBE_EVERY_SECONDS = 1.0
# all sockets of the machine are read for it
_STRANGER_EVERY_SECONDS = 5.0
_MOST_READ_BYTES = 1 << 20
_MOST_PIECES = 16

# seconds without progress after which a phase counts as stuck; any progress starts the clock again
LIMITS: Mapping[str, float] = {
    "start": 900,
    "load": 3600,
    "profile": 1800,
    "kv_cache": 900,
    "multimodal": 3600,
    # one graph of a large fp8 model was seen to take minutes
    "warmup_prompt": 3600,
    "warmup_decode": 3600,
    "graph_prompt": 3600,
    "graph_decode": 3600,
    "sampler": 1800,
    "ready": 600,
}


@dataclass(frozen=True)
class EngineJob:
    """A job of the supervisor, and how to probe its engine.

    ``environment`` is what the engine inherits. ``after`` is called once with the engine's exit
    status when its processes are gone: it removes what they left. ``tgi``: the server has TGI's
    API. ``names`` are those that the engine answers under, where they are known; ``owner`` names
    another service that listens at its address, ``stranger`` another process that does while none
    of the service does; ``warmup`` are the planned items of each warm-up
    phase. ``health_only``: it is ready when /health answers.
    """

    command: Command
    url: str
    log: Path
    environment: Mapping[str, str]
    api_key: str | None = field(default=None, repr=False)
    bind: bool = True
    limits: Mapping[str, float] = field(default_factory=lambda: LIMITS)
    stop_timeouts: StopTimeouts = field(default_factory=StopTimeouts)
    after: Callable[[int | None], None] = lambda status: None
    tgi: bool = False
    names: tuple[str, ...] = ()
    owner: Callable[[], str | None] = lambda: None
    stranger: Callable[[], str] = lambda: ""
    warmup: Mapping[str, int] = field(default_factory=dict)
    health_only: bool = False


@dataclass(frozen=True)
class EngineOutcome:
    """The end of an engine's run.

    ``status`` is the engine's exit status, negative for a signal; ``signal`` is the one that we
    received, if any.
    """

    kind: Literal["stopped", "died", "stuck", "not_started"]
    status: int | None
    progress: LaunchProgress
    signal: int | None = None
    was_ready: bool = False
    detail: str = ""


class Watcher(Protocol):
    """The receiver of events: the terminal, the state file."""

    def started(self, pid: int) -> None: ...

    def output(self, text: str) -> None: ...

    def progress(self, progress: LaunchProgress) -> None: ...

    def ready(self, readiness: Readiness) -> None: ...

    def ending(self, signal_number: int | None) -> None: ...


class Supervisor:
    """Runs one job until it ends or a signal ends it."""

    def __init__(
        self,
        job: EngineJob,
        watcher: Watcher,
        clock: Callable[[], float] = time.monotonic,
        signals: Signals | None = None,
    ) -> None:
        self._job = job
        self._watcher = watcher
        self._clock = clock
        # not `signals or Signals()`: an empty queue is false
        if signals is None:
            signals = Signals()
        self._signals = signals
        self._follower = Follower(job.warmup)
        self._tail = _Tail(job.log)
        self._engine = EngineProcess(job.command, job.log, job.environment, job.bind)
        self._prober = _Prober(job)
        self._ready = False
        self._ended = False
        self._noted = ""

    def run(self) -> EngineOutcome:
        """Start, follow and end the engine; none of its processes is left afterwards."""
        with self._signals.handled():
            try:
                pid = self._engine.start()
            except OSError as error:
                progress = self._follower.progress
                return EngineOutcome(
                    "not_started", None, progress, detail=error.strerror or str(error)
                )
            try:
                self._watcher.started(pid)
                return self._loop()
            finally:
                # also when our own code fails: an engine is never left running
                self._end()
                self._read()

    def _end(self) -> int | None:
        """End the engine and its remaining processes; return its exit status."""
        status = self._engine.end(self._job.stop_timeouts, lambda: bool(self._signals))
        if not self._ended:
            self._ended = True
            self._job.after(status)
        return status

    def _loop(self) -> EngineOutcome:
        last = self._clock()
        seen: tuple[object, ...] = ()
        while True:
            grew = self._read()
            progress = self._follower.progress
            status = self._engine.poll()
            if self._signals:
                return self._stop()
            if status is not None:
                self._end()
                self._read()
                return EngineOutcome("died", status, self._follower.progress, was_ready=self._ready)
            now = self._clock()
            state = (progress.phase, progress.done, progress.bucket)
            # while it starts or loads, every line is progress; a warm-up must continue with its
            # graphs
            if state != seen or (grew and progress.phase in ("start", "load")) or self._ready:
                seen, last = state, now
            limit = self._job.limits.get(progress.phase)
            if limit is not None and now - last > limit:
                self._watcher.ending(None)
                status = self._end()
                return EngineOutcome("stuck", status, progress, detail=f"{now - last:.0f}")
            if not self._ready:
                self._look_ready(now)
            if self._prober.stranger:
                return self._displaced(self._prober.stranger, now - last)
            # an engine that answers is followed at a small share of one CPU for days; a gateway
            # must be back at once
            calm = self._ready and not self._job.health_only
            self._signals.wait(_CALM_SECONDS if calm else _TURN_SECONDS)

    def _look_ready(self, now: float) -> None:
        readiness = self._prober.ask(now)
        if readiness is None:
            return
        if readiness.stage == OTHER:
            self._note(readiness.detail)
        if readiness.ready:
            self._ready = True
            self._watcher.ready(readiness)

    def _note(self, found: str) -> None:
        """Log, once, that another server answers: it explains a stuck launch."""
        if found == self._noted:
            return
        self._noted = found
        names = ", ".join(self._job.names) or "-"
        self._log(f"{self._job.url} is answered by another server ({found}); expected {names}")

    def _displaced(self, stranger: str, seconds: float) -> EngineOutcome:
        """End an engine whose address another process has: it would wait for ever."""
        self._watcher.ending(None)
        status = self._end()
        # the last line of the run: an engine's first lines would begin another one for `diagnose`
        self._log(f"[Errno 98] Address already in use: {self._job.url} is that of {stranger}")
        self._read()
        return EngineOutcome("stuck", status, self._follower.progress, detail=f"{seconds:.0f}")

    def _log(self, line: str) -> None:
        with (
            best_effort(_log, "write a note into the log of the engine"),
            self._job.log.open("a", encoding="utf-8") as log,
        ):
            # a bar of progress may be without the end of its line
            log.write(f"\ngaudi-launch: {line}\n")

    def _stop(self) -> EngineOutcome:
        number = self._signals.take()
        self._watcher.ending(number)
        status = self._end()
        self._read()
        return EngineOutcome("stopped", status, self._follower.progress, number, self._ready)

    def _read(self) -> bool:
        grew = False
        # a bounded number of pieces: a flood of lines must not keep signals waiting
        for _ in range(_MOST_PIECES):
            if not self._take():
                break
            grew = True
        if grew and rotate(self._job.log):
            self._tail.begin_again()
        return grew

    def _take(self) -> bool:
        text = self._tail.read()
        if not text:
            return False
        before = self._follower.progress
        after = self._follower.feed(text, self._clock())
        self._watcher.output(text)
        if after != before:
            self._watcher.progress(after)
        return True


class _Tail:
    """New text of a log file that another process writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # the log may contain an earlier run of the service
        self._at = path.stat().st_size if path.exists() else 0
        # a character that was cut is read completely next time
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def begin_again(self) -> None:
        """Restart at the beginning: the log was truncated."""
        self._at = 0
        self._decoder.reset()

    def read(self) -> str:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                content = file.read(_MOST_READ_BYTES)
        except OSError:
            return ""
        self._at += len(content)
        return self._decoder.decode(content)


class _Prober:
    """Probes the engine in a thread: a slow answer must not delay signals.

    ``stranger`` is the process that has the engine's address, "" while none is known.
    """

    def __init__(self, job: EngineJob) -> None:
        self._job = job
        self.stranger = ""
        self._next_stranger = 0.0
        self._thread: threading.Thread | None = None
        self._answer: Readiness | None = None
        self._next = 0.0

    def ask(self, now: float) -> Readiness | None:
        """Return the last answer, once; None while there is none."""
        if self._thread is not None and self._thread.is_alive():
            return None
        answer, self._answer = self._answer, None
        if now >= self._next:
            self._next = now + _PROBE_EVERY_SECONDS
            self._thread = in_background(self._probe)
        return answer

    def _probe(self) -> None:
        job = self._job
        if job.health_only:
            answer = probe_health(job.url)
        else:
            # a first completion may compile for a minute
            answer = probe(job.url, timeout=90.0, api_key=job.api_key, tgi=job.tgi, names=job.names)
        other = job.owner() if answer.ready else None
        if other is not None:
            answer = Readiness(False, OTHER, f"service {other}", answer.model)
        if answer.ready or time.monotonic() >= self._next_stranger:
            self._next_stranger = time.monotonic() + _STRANGER_EVERY_SECONDS
            self.stranger = job.stranger()
        if not self.stranger:
            self._answer = answer
