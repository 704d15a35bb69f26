"""``gaudi-launch ps``: list the services of this user, running or stopped."""

from __future__ import annotations

import time

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.console import emit_json
from gaudi_launch.core.base.messages import text

app = CommandApp()

# all queried at the same time; one that is too busy to answer shows a dash
_METRICS_SECONDS = 0.5


@app.command()
def ps(
    everything: bool = typer.Option(
        False, "-a", "--all", help="Also show stopped services, with their last error."
    ),
    prune: bool = typer.Option(
        False, "--prune", help="Remove the failed services with their logs."
    ),
    as_json: bool = JSON,
) -> None:
    """List services: model, engine, cards, port, phase, uptime, requests."""
    from gaudi_launch.cli.views.services import show, to_json
    from gaudi_launch.core.services.metrics import loads
    from gaudi_launch.core.services.state.registry import services

    if prune:
        _prune(as_json=as_json)
        return
    every = services()
    shown = [service for service in every if everything or service.alive]
    urls = {
        service.name: service.url for service in shown if service.alive and service.phase == "ready"
    }
    load = loads(urls, _METRICS_SECONDS) if urls else {}
    now = time.time()
    if as_json:
        emit_json({"schema": 1, "services": [to_json(s, load.get(s.name), now) for s in shown]})
    else:
        if not everything:
            # they need attention
            shown += [service for service in every if service.failed]
        show(shown, load, now, everything=everything)


def _prune(*, as_json: bool) -> None:
    """Remove the failed services that left no process, and print their names."""
    from gaudi_launch.core.services.state.orphans import prune

    removed = prune()
    if as_json:
        emit_json({"schema": 1, "removed": removed})
        return
    for name in removed:
        print(text("services.removed", name=name))
    if not removed:
        print(text("services.none_removed"))
