"""Services as rows and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.cli.wrapping import terminal_width, wrapped
from gaudi_launch.core.base.durations import duration
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.services.state.registry import phase

if TYPE_CHECKING:
    from gaudi_launch.core.services.metrics import EngineLoad
    from gaudi_launch.core.services.state.registry import ServiceRecord


def to_json(service: ServiceRecord, load: EngineLoad | None, now: float) -> dict[str, Any]:
    """Return one service for programs."""
    state = service.state
    return {
        "name": service.name,
        "alive": service.alive,
        "phase": service.phase,
        **_progress(service),
        "model": state.get("model"),
        "served": state.get("served"),
        "engine": state.get("engine"),
        "modules": list(service.modules),
        "url": service.url,
        "pid": state.get("pid"),
        "launcher_pid": state.get("launcher_pid"),
        "began": state.get("began"),
        "uptime_seconds": mapped(lambda seconds: round(seconds, 1), _uptime(service, now)),
        "restarts": state.get("restarts", 0),
        "requests": mapped(lambda load: {"running": load.running, "waiting": load.waiting}, load),
        "error": last_error(service),
        "log": state.get("log"),
    }


def _progress(service: ServiceRecord) -> dict[str, Any]:
    """Return the progress of a service; that of an ended one does not count."""
    if not service.alive:
        return {"done": 0, "total": 0, "left_seconds": None}
    state = service.state
    return {
        "done": state.get("done", 0),
        "total": state.get("total", 0),
        "left_seconds": state.get("left_seconds"),
    }


def _uptime(service: ServiceRecord, now: float) -> float | None:
    """Return the seconds since a running service was ready."""
    ready_at: float | None = service.state.get("ready_at")
    if not ready_at or not service.alive:
        return None
    return now - ready_at


def last_error(service: ServiceRecord) -> str | None:
    """Return the sentence of the failure that ended its last run.

    Return None without one.
    """
    if service.phase != "lost":
        return service.error or None
    if service.rebooted:
        return text("services.lost_rebooted")
    return text("services.lost")


def show(
    services: list[ServiceRecord], load: dict[str, EngineLoad], now: float, *, everything: bool
) -> None:
    """Print how many services run, what to do, and a row for each.

    ``everything``: stopped ones too, with engine, restarts and errors.
    """
    failed = [service for service in services if service.failed]
    listed = [service for service in services if not service.failed]
    if not services:
        print(text("services.none_at_all" if everything else "services.none"))
        return
    columns = text("services.columns" if everything else "services.short_columns").split("|")
    rows = [_row(each, load.get(each.name), now, complete=everything) for each in listed]
    ShortPage(
        [_answer(services), next_line(_next(services))],
        columns,
        [NotedRow(row) for row in rows],
        tail=_failures(failed),
    ).show(complete=everything)


def _answer(services: list[ServiceRecord]) -> str:
    """Return the numbers of services by what they do."""
    alive = [service for service in services if service.alive]
    ready = [service for service in alive if service.phase == "ready"]
    failed = [service for service in services if service.failed]
    stopped = len(services) - len(alive) - len(failed)
    counts = [text("services.running", n=len(alive))]
    if alive:
        counts.append(text("services.ready_count", n=len(ready)))
    if failed:
        counts.append(text("services.failed_count", n=len(failed)))
    if stopped:
        counts.append(text("services.stopped_count", n=stopped))
    return text("services.counts", counts=text("common.between").join(counts))


def _next(services: list[ServiceRecord]) -> str:
    """Return the command for the service that needs attention first."""
    for service in services:
        if service.failed:
            return f"gaudi-launch why {service.name}"
    for service in services:
        if service.alive:
            verb = "chat" if service.phase == "ready" else "wait"
            return f"gaudi-launch {verb} {service.name}"
    return f"gaudi-launch restart {services[0].name}"


def _failures(failed: list[ServiceRecord]) -> list[str]:
    """Return a line for each failed service."""
    if not failed:
        return []
    lines = [text("screen.ps_failed")]
    widest = max(len(service.name) for service in failed)
    for service in failed:
        error = wrapped(last_error(service) or "", terminal_width() - widest - 5)
        cut = "…" if len(error) > 1 else ""
        lines.append(f"  {service.name.ljust(widest)}  {''.join(error[:1])}{cut}".rstrip())
    return lines


def _row(
    service: ServiceRecord, load: EngineLoad | None, now: float, *, complete: bool
) -> tuple[str, ...]:
    state = service.state
    cards = ",".join(map(str, service.modules)) or "-"
    port = service.url.rpartition(":")[2] or "-"
    up = mapped(duration, _uptime(service, now)) or "-"
    requests = "-"
    if load:
        requests = text("services.load", running=load.running, waiting=load.waiting)
    if not complete:
        return service.name, cards, port, phase(service), up, requests
    return (
        service.name,
        PurePath(str(state.get("model") or "-")).name,
        str(state.get("engine") or "-"),
        *(cards, port, phase(service), up, requests),
        _remark(service),
    )


def _remark(service: ServiceRecord) -> str:
    """Return a running service's restarts, an ended one's error."""
    if service.alive:
        return _restarted(service.state)
    return last_error(service) or ""


def _restarted(state: Mapping[str, Any]) -> str:
    count = state.get("restarts", 0)
    if not count:
        return ""
    return text("services.restarted", count=count)
