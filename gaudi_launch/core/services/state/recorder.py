"""Writes a service's state and the ledger of its graphs as they change."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.buckets.warmup_time import FILE_NAME, Measured, record
from gaudi_launch.core.services.log.follow import LaunchProgress
from gaudi_launch.core.services.probe import Readiness
from gaudi_launch.core.services.process.supervise import EngineOutcome, Watcher
from gaudi_launch.core.services.state import identity, store
from gaudi_launch.core.services.state.job import ServiceJob

if TYPE_CHECKING:
    from gaudi_launch.core.recipes.keeper import Keeper

_log = logging.getLogger(__name__)


class Recorder:
    """Keeps ``state.json`` of one service: what `ps` and `status` show.

    All events are passed on. ``keeper`` records that the graphs of a recipe cache are warm.
    """

    def __init__(self, inner: Watcher, folder: Path, job: ServiceJob, log: Path) -> None:
        self.keeper: Keeper | None = None
        self._inner = inner
        self._folder = folder
        self._job = job
        self._progress = LaunchProgress()
        self._began = time.monotonic()
        self._state = first_state(job, log)
        pid = os.getpid()
        self.put(launcher=identity.of(pid), launcher_pid=pid)

    def put(self, **news: object) -> None:
        """Write the state with these changes."""
        self._state.update(news)
        # that it answers and that it ended is waited for, and recorded nowhere else
        last = not news.keys().isdisjoint(("outcome", "ready_at"))
        store.write(self._folder, "state.json", self._state, last=last)

    def started(self, pid: int) -> None:
        self._began = time.monotonic()
        self.put(
            pid=pid,
            engine_process=identity.of(pid),
            engine_began=time.time(),
            phase="start",
        )
        self._inner.started(pid)

    def output(self, text: str) -> None:
        self._inner.output(text)

    def progress(self, progress: LaunchProgress) -> None:
        # at most once per turn of the supervisor: a skipped item would be missed while the next one
        # lasts
        self._progress = progress
        self.put(
            phase=self._phase(progress.phase),
            done=progress.done,
            total=progress.total,
            bucket=progress.bucket,
            left_seconds=progress.left_seconds,
            **self._seen(),
        )
        self._inner.progress(progress)

    def _phase(self, log_phase: str) -> str:
        """Return the log's phase.

        That the server is up counts only after it answered.
        """
        answers = "ready_at" in self._state
        if answers and log_phase != "stopping":
            return "ready"
        if not answers and log_phase == "ready":
            return "answering"
        return log_phase

    def ready(self, readiness: Readiness) -> None:
        if self.keeper is not None:
            facts = self._progress.facts
            seconds = facts.get("warmup_seconds", time.monotonic() - self._began)
            blocks = facts.get("num_blocks")
            self.keeper.warm(float(seconds), int(blocks) if blocks is not None else None)
        news = {"served": readiness.model, "answers": readiness.path, "no_chat": readiness.no_chat}
        self.put(phase="ready", ready_at=time.time(), **news, **self._seen())
        # now, not at its end: a launcher that is killed has then recorded what it saw
        remember(self._job, self._progress)
        self._inner.ready(readiness)

    def ending(self, signal_number: int | None) -> None:
        self.put(phase="stopping")
        self._inner.ending(signal_number)

    def ended(
        self, outcome: EngineOutcome, error: Message | None = None, permanent: bool = False
    ) -> None:
        """Record the end of a run of the engine; ``error`` is its likeliest cause."""
        # the phase that it ended in is over, too
        phases = tuple(replace(p, end=p.end or time.monotonic()) for p in outcome.progress.phases)
        self._progress = replace(outcome.progress, phases=phases)
        phase = "failed"
        if outcome.kind == "stopped":
            phase = "stopped"
        cause: dict[str, object] = {"error": "", "error_id": ""}
        if error is not None:
            # the reader of the ID may use another language
            cause = {"error": error.render(), "error_id": error.id}
        self.put(
            phase=phase,
            outcome=outcome.kind,
            status=outcome.status,
            detail=outcome.detail,
            **cause,
            permanent=permanent,
            ended=time.time(),
            **self._seen(),
        )

    def again(self, restarts: int, seconds: float) -> None:
        """Record that it will be restarted after this number of seconds."""
        self._state.pop("ready_at", None)
        self._state.pop("outcome", None)
        self.put(phase="waiting", restarts=restarts, left_seconds=seconds, done=0, total=0)

    def _seen(self) -> dict[str, object]:
        progress = self._progress
        return {
            "facts": dict(progress.facts),
            "phases": list(progress.phases),
            "run_time_compiles": len(progress.warnings),
        }


def first_state(job: ServiceJob, log: Path) -> dict[str, object]:
    """Return the state of a service whose engine is not started yet."""
    return {
        "name": job.name,
        "model": job.model_path,
        "engine": job.engine,
        "modules": list(job.modules),
        "simulated": job.simulated,
        "url": job.url,
        "log": str(log),
        "restart": job.restart,
        "restarts": 0,
        "began": time.time(),
        "phase": "start",
    }


def remember(job: ServiceJob, progress: LaunchProgress) -> None:
    """Record the duration of this warm-up, for later estimates on this machine."""
    if job.simulated:
        return
    seconds = progress.facts.get("warmup_seconds", 0)
    counted = sum(phase.items for phase in progress.phases if phase.name.startswith("warmup_"))
    # TGI also numbers shapes that it skips, and reports at the end how many it warmed up
    logged = progress.facts.get("warmup_shapes", 0)
    graphs = counted
    if isinstance(logged, int) and logged > 0:
        graphs = logged
    if not (isinstance(seconds, int | float) and seconds > 0 and graphs):
        return
    measured = Measured(
        engine=job.engine,
        model=job.model,
        cards=len(job.modules),
        dtype=job.dtype,
        graphs=graphs,
        seconds=float(seconds),
        cached=job.cache is not None and not job.cache.because,
    )
    # a full disk costs the estimate, not the service
    with best_effort(_log, "record the time of the warm-up"):
        record(state_dir() / FILE_NAME, measured)
