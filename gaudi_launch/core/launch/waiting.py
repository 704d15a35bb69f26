"""Wait for a service that another process starts, by reading its state file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.services.diagnosis.explain import lost
from gaudi_launch.core.services.diagnosis.failure import failure, last_lines
from gaudi_launch.core.services.log.follow import LaunchPhase, LaunchProgress
from gaudi_launch.core.services.process import detach
from gaudi_launch.core.services.process.supervise import EngineOutcome
from gaudi_launch.core.services.service import LOG
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.core.services.state.registry import ServiceRecord, phase

_POLL_SECONDS = 0.2


def until_ready(
    name: str,
    seconds: float | None = None,
    progress: Callable[[LaunchProgress], None] | None = None,
) -> ServiceRecord:
    """Return the service when it answers; ``progress`` receives its progress.

    Raises LaunchError: the engine's failure (ENGINE), or that ``seconds`` are over (FAILED).
    """
    begin = time.monotonic()
    while True:
        service = find(name)
        if service.alive and service.phase == "ready":
            return service
        if not service.alive:
            # it may have ended between the two reads
            service = find(name)
            if not service.alive:
                raise ended(service)
        if progress is not None:
            progress(_progress(service.state))
        if seconds is not None and time.monotonic() - begin > seconds:
            raise LaunchError(
                "services.not_yet",
                ExitCode.FAILED,
                name=name,
                seconds=f"{seconds:g}",
                phase=phase(service),
            )
        time.sleep(_POLL_SECONDS)


def ended(service: ServiceRecord) -> Exception:
    """Return the error of a service that is not running."""
    state = service.state
    kind = state.get("outcome")
    if kind in ("died", "stuck", "not_started"):
        progress, detail = replace(_progress(state), phase="failed"), str(state.get("detail", ""))
        outcome = EngineOutcome(kind, state.get("status"), progress, detail=detail)
        return failure(outcome, service.folder / LOG, str(state.get("model") or "MODEL"))
    log = service.folder / detach.LOG
    detail = "\n".join(last_lines(log))
    if kind == "failed":
        return LaunchError(
            "services.failed", ExitCode.FAILED, name=service.name, why=state.get("error", "-")
        )
    id = "services.is_stopped" if service.phase == "stopped" else lost(service)
    return LaunchError(id, ExitCode.FAILED, name=service.name, log=str(log), detail=detail or None)


def _progress(state: Mapping[str, Any]) -> LaunchProgress:
    phases = tuple(
        LaunchPhase(str(p["name"]), float(p["begin"]), p["end"], int(p["items"]))
        for p in state.get("phases", [])
    )
    return LaunchProgress(
        phases=phases,
        phase=str(state.get("phase", "start")),
        done=int(state.get("done") or 0),
        total=int(state.get("total") or 0),
        bucket=str(state.get("bucket") or ""),
        left_seconds=state.get("left_seconds"),
    )
