"""Services as rows and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import console, table
from gaudi_launch.cli.wrapping import terminal_width, wrapped
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
    """Print a row for each service, and below a line for each that failed.

    ``everything``: stopped ones too.
    """
    failed = [service for service in services if service.failed]
    rows = [
        _row(service, load.get(service.name), now) for service in services if not service.failed
    ]
    if rows:
        console().print(table("", text("services.columns").split("|"), rows))
    elif not everything:
        print(text("services.none"))
    elif not failed:
        print(text("services.none_at_all"))
    if not failed:
        return
    print(text("screen.ps_failed", count=len(failed), name=failed[0].name))
    widest = max(len(service.name) for service in failed)
    for service in failed:
        lines = wrapped(last_error(service) or "", terminal_width() - widest - 5)
        cut = "…" if len(lines) > 1 else ""
        print(f"  {service.name.ljust(widest)}  {''.join(lines[:1])}{cut}".rstrip())


def _row(service: ServiceRecord, load: EngineLoad | None, now: float) -> tuple[str, ...]:
    state = service.state
    requests = "-"
    if load:
        requests = f"{load.running}+{load.waiting}"
    return (
        service.name,
        PurePath(str(state.get("model") or "-")).name,
        str(state.get("engine") or "-"),
        ",".join(map(str, service.modules)) or "-",
        service.url.rpartition(":")[2] or "-",
        phase(service),
        mapped(clock, _uptime(service, now)) or "-",
        requests,
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


def clock(seconds: float) -> str:
    """Return a duration in the two largest units: 3 d 4 h, 12 min 5 s."""
    total = max(0, int(seconds))
    for size, unit, smaller, name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if total >= size:
            return f"{total // size} {unit} {total % size // smaller} {name}"
    return f"{total} s"
