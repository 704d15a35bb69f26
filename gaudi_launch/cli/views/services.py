"""``gaudi-launch ps``: the services of this user, alive and dead."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from gaudi_launch.services.metrics import Load
    from gaudi_launch.services.registry import Service

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})

# asked all at once; one that is too busy to answer shows a dash
_METRICS_SECONDS = 0.5


@app.command()
def ps(
    everything: bool = typer.Option(False, "-a", "--all", help="Dead ones too, with their last error."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """List services: model, engine, cards, port, phase, uptime, requests."""
    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.services.metrics import loads
    from gaudi_launch.services.registry import services

    shown = [service for service in services() if everything or service.alive]
    urls = {service.name: service.url for service in shown if service.alive and service.phase == "ready"}
    load = loads(urls, _METRICS_SECONDS) if urls else {}
    now = time.time()
    if as_json:
        return emit_json({"schema": 1, "services": [to_json(s, load.get(s.name), now) for s in shown]})
    return _show(shown, load, now, everything)


def to_json(service: Service, load: Load | None, now: float) -> dict[str, Any]:
    """One service for programs."""
    state = service.state
    ready_at = state.get("ready_at")
    return {
        "name": service.name,
        "alive": service.alive,
        "phase": service.phase,
        "done": state.get("done", 0) if service.alive else 0,
        "total": state.get("total", 0) if service.alive else 0,
        "left_seconds": state.get("left_seconds") if service.alive else None,
        "model": state.get("model"),
        "served": state.get("served"),
        "engine": state.get("engine"),
        "modules": list(service.modules),
        "url": service.url,
        "pid": state.get("pid"),
        "launcher_pid": state.get("launcher_pid"),
        "began": state.get("began"),
        "uptime_seconds": round(now - ready_at, 1) if ready_at and service.alive else None,
        "restarts": state.get("restarts", 0),
        "requests": {"running": load.running, "waiting": load.waiting} if load else None,
        "error": last_error(service),
        "log": state.get("log"),
    }


def last_error(service: Service) -> str | None:
    """What ended its last life that failed, in words; None when nothing did."""
    from gaudi_launch.messages import text

    if service.phase == "lost":
        return text("services.lost_rebooted" if service.rebooted else "services.lost")
    return service.error or None


def _show(shown: list[Service], load: dict[str, Load], now: float, everything: bool) -> None:
    from pathlib import PurePath

    from gaudi_launch.cli.output import console, table
    from gaudi_launch.cli.waiting import phase
    from gaudi_launch.messages import text

    if not shown:
        print(text("services.none_at_all" if everything else "services.none"))
        return
    rows = []
    for service in shown:
        state = service.state
        ready_at = state.get("ready_at")
        requests = load.get(service.name)
        rows.append(
            (
                service.name,
                PurePath(str(state.get("model") or "-")).name,
                str(state.get("engine") or "-"),
                ",".join(map(str, service.modules)) or "-",
                service.url.rpartition(":")[2] or "-",
                phase(service),
                clock(now - ready_at) if ready_at and service.alive else "-",
                f"{requests.running}+{requests.waiting}" if requests else "-",
                (last_error(service) or "") if not service.alive else _restarted(state),
            )
        )
    console().print(table("", text("services.columns").split("|"), rows))


def _restarted(state: Any) -> str:
    from gaudi_launch.messages import text

    count = state.get("restarts", 0)
    return text("services.restarted", count=count) if count else ""


def clock(seconds: float) -> str:
    """A duration in the two largest units: 3 d 4 h, 12 min 5 s."""
    whole = max(0, int(seconds))
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {name}"
    return f"{whole} s"
