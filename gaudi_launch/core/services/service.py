"""Run one service from its job: cache, engine, state.

A failed engine is restarted where that may help.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.paths import engines_dir
from gaudi_launch.core.engines.install.in_use import in_use
from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.recipes.attach import without_cache
from gaudi_launch.core.recipes.keeper import Keeper, kept
from gaudi_launch.core.services import history
from gaudi_launch.core.services.addresses import address, check_free
from gaudi_launch.core.services.containers import remover
from gaudi_launch.core.services.diagnosis.diagnose import Diagnosis, diagnose
from gaudi_launch.core.services.diagnosis.endings import ended
from gaudi_launch.core.services.diagnosis.failure import judged_log
from gaudi_launch.core.services.listener import other_service_at, served_names, stranger_at
from gaudi_launch.core.services.log import kernel_log
from gaudi_launch.core.services.log.rotate import put_aside
from gaudi_launch.core.services.process import sockets
from gaudi_launch.core.services.process.marks import MARK
from gaudi_launch.core.services.process.signals import Signals
from gaudi_launch.core.services.process.supervise import (
    EngineJob,
    EngineOutcome,
    Supervisor,
    Watcher,
)
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.job import ServiceJob, read_job
from gaudi_launch.core.services.state.recorder import Recorder

_log = logging.getLogger(__name__)

LOG = "engine.log"

# seconds before the first, second, ... restart after a failure; the last one is repeated
BACK_OFF = (1.0, 5.0, 15.0, 60.0, 300.0)
# number of consecutive failed launches after which it is given up
MOST_RESTARTS = 5
# an engine that answered for this time had a good launch: its failure is counted from one again
GOOD_SECONDS = 600.0

Say = Callable[[str], None]


def run(
    job: ServiceJob, watcher: Watcher, environment: Mapping[str, str], say: Say
) -> EngineOutcome:
    """Start the engine and stay until it ends finally; return the last outcome.

    ``environment`` is what the engine inherits (the job's variables override it), ``say`` gets
    sentences.
    """
    folder = store.service_dir(job.name)
    log = folder / LOG
    recorder = Recorder(watcher, folder, job, log)
    signals = Signals()
    # the cache is waited for before signals are queued: Ctrl-C ends a wait immediately
    environment_kept = in_use(job.command.argv[0], engines_dir())
    with environment_kept, _cache(job, say) as (command, keeper), signals.handled():
        recorder.keeper = keeper
        return _Lives(replace(job, command=command), recorder, environment, say, signals).run()


@dataclass
class _Lives:
    """The runs of one engine, one after the other, until its final end."""

    job: ServiceJob
    recorder: Recorder
    environment: Mapping[str, str]
    say: Say
    signals: Signals
    restarts: int = 0
    # how many runs have failed one after the other
    row: int = 0

    def run(self) -> EngineOutcome:
        while True:
            began = time.monotonic()
            outcome = self._one_run()
            if outcome.kind == "stopped":
                self.recorder.ended(outcome)
                return outcome
            log = store.service_dir(self.job.name) / LOG
            kernel_log.note(log, began, cards=bool(self.job.modules))
            found = diagnose(judged_log(log), exit_status=outcome.status, outcome=outcome.kind)
            title = next((cause.title for cause in found.causes), None)
            permanent = found.permanent or self._port_is_taken(found)
            self.recorder.ended(outcome, title, permanent)
            if self.job.restart != "on-failure" or outcome.kind == "not_started":
                return outcome
            lasted = outcome.was_ready and time.monotonic() - began > GOOD_SECONDS
            if self.job.health_only:
                # a gateway starts within a second, so nothing is gained by a longer pause; its
                # status is above 128 where HAProxy was killed
                lasted = outcome.was_ready or (outcome.status or 0) not in range(129)
            self.row += 1
            if lasted:
                self.row = 1
            cause = ended(outcome.kind, outcome.status)
            if title:
                # it becomes a part of another sentence, without its full stop
                cause = title.render().rstrip(".。")
            if permanent:
                self.say(text("services.gave_up_permanent", count=self.row, cause=cause))
                return outcome
            if self.row > MOST_RESTARTS:
                self.say(text("services.gave_up", count=self.row, cause=cause))
                return outcome
            self._pause(cause)
            if self.signals:
                stopped = replace(outcome, kind="stopped", signal=self.signals.take())
                self.recorder.ended(stopped, title)
                return stopped

    def _port_is_taken(self, found: Diagnosis) -> bool:
        """Return True if the engine lost its port to a process that still has it.

        Its own processes have ended. A restart chooses its other ports again.
        """
        if not found.port_in_use:
            return False
        try:
            check_free(*address(self.job.url))
        except LaunchError as error:
            _log.debug("%s is not restarted: %s", self.job.name, error)
            return True
        return False

    def _one_run(self) -> EngineOutcome:
        """Start the engine with a new log, and return how it ended.

        The log of the run before is kept, and a failure is not judged by an earlier one.
        """
        job, since = self.job, time.time()
        folder = store.service_dir(job.name)
        environment = {**self.environment, **job.environment, MARK: str(folder)}
        api_key = None
        if job.api == "openai":
            # the key was not given to a server with the other API
            api_key = environment.get("VLLM_API_KEY")
        supervised = EngineJob(
            command=self._command(),
            url=job.url,
            log=put_aside(folder / LOG),
            environment=environment,
            api_key=api_key,
            bind=job.bind,
            limits=job.limits,
            after=remover(job.container, job.command.argv)
            if job.container
            else lambda status: None,
            tgi=job.api == "generate",
            names=served_names(job.command.argv),
            owner=partial(other_service_at, *address(job.url), folder),
            # a container's socket is one of the container engine
            stranger=str if job.container else partial(stranger_at, *address(job.url), folder),
            warmup=warmup_items(folder),
            health_only=job.health_only,
        )
        with history.written(folder, job.url, job.modules):
            outcome = Supervisor(supervised, self.recorder, signals=self.signals).run()
        sockets.remove_dead(since, environment)
        return outcome

    def _command(self) -> Command:
        """Return the command; files of a gateway change while it runs."""
        folder = store.service_dir(self.job.name)
        if not self.job.health_only:
            return self.job.command
        try:
            newest = read_job(folder)
        except LaunchError as error:
            _log.debug("the job of %s is not read again: %s", self.job.name, error)
            return self.job.command
        return replace(self.job.command, files=newest.command.files)

    def _pause(self, cause: str) -> None:
        """Announce the next run, and wait before it; a signal ends the wait."""
        self.restarts += 1
        seconds = BACK_OFF[min(self.row, len(BACK_OFF)) - 1]
        pause = f"{seconds:.0f}"
        self.say(
            text("services.again", cause=cause, seconds=pause, count=self.row, most=MOST_RESTARTS)
        )
        self.recorder.again(self.restarts, seconds)
        self.signals.wait(seconds)


def warmup_items(folder: Path) -> dict[str, int]:
    """Return the graphs of each warm-up phase in the service's plan.

    The result is empty without a list.
    """
    buckets = (store.read(folder, "plan.json") or {}).get("buckets")
    if not isinstance(buckets, dict):
        return {}
    found = {}
    for phase in ("prompt", "decode"):
        listed = buckets.get(phase)
        if isinstance(listed, list):
            found[f"warmup_{phase}"] = len(listed)
    return found


@contextlib.contextmanager
def _cache(job: ServiceJob, say: Say) -> Iterator[tuple[Command, Keeper | None]]:
    """Yield the command with its cache locked.

    A cache that cannot be used costs a warm-up, not the service.
    """
    if job.cache is None:
        yield job.command, None
        return
    with contextlib.ExitStack() as held:
        try:
            keeper: Keeper | None = held.enter_context(kept(job.cache, say))
            command = job.command
        except LaunchError as error:
            say(text("cache.unusable", why=str(error)))
            keeper, command = None, without_cache(job.command)
        yield command, keeper
