"""``gaudi-launch serve``: cards, plan, engine, warm-up, answer.

In the foreground, or passed to a launcher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.console import say
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand
from gaudi_launch.cli.views.run_record import run_line
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from gaudi_launch.core.launch.service import Service
    from gaudi_launch.core.services.process.supervise import EngineOutcome

app = CommandApp()
_SERVICE = "Service"


@app.command(cls=RecordCommand)
def serve(
    name: str | None = typer.Option(
        None,
        "--name",
        metavar="NAME",
        help="The service's name (default: from model and port).",
        rich_help_panel=_SERVICE,
    ),
    detach: bool = typer.Option(
        False,
        "--detach",
        help="Run in the background; return when the service is ready.",
        rich_help_panel=_SERVICE,
    ),
    no_wait: bool = typer.Option(
        False, "--no-wait", help="With --detach: return immediately.", rich_help_panel=_SERVICE
    ),
    restart: str = typer.Option(
        "no",
        "--restart",
        metavar="no|on-failure",
        help="Restart the service when it fails.",
        rich_help_panel=_SERVICE,
    ),
    no_doctor: bool = typer.Option(
        False,
        "--no-doctor",
        help="Start although a check of the machine fails.",
        rich_help_panel=_SERVICE,
    ),
    verbose: bool = typer.Option(
        False, "--verbose", help="Also show the engine's log lines.", rich_help_panel=_SERVICE
    ),
    quiet: bool = typer.Option(
        False, "--quiet", help="Show progress only (the default).", rich_help_panel=_SERVICE
    ),
    phase_timeout: str | None = typer.Option(
        None,
        "--phase-timeout",
        metavar="TIME",
        help="Longest time without progress in any phase: 90, 5m, 1h.",
        rich_help_panel=_SERVICE,
    ),
    place: str | None = typer.Option(
        None,
        "--in",
        metavar="docker|podman",
        help="Start the engine in a container.",
        rich_help_panel=_SERVICE,
    ),
    image: str | None = typer.Option(
        None, "--image", metavar="IMAGE", help="With --in: another image.", rich_help_panel=_SERVICE
    ),
    options: LaunchOptions = Launch,
) -> None:
    """Select cards, plan, start the engine, warm up and serve a model.

    -w demo is a small model that needs no card and no download from a hub.
    """
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.core.launch.serve import ServeMode, start

    if no_wait and not detach:
        raise LaunchError("services.no_wait", ExitCode.USAGE)
    quiet = quiet or not verbose
    how = ServeMode(
        name, no_doctor, quiet, phase_timeout, restart, detach, place=place, image=image
    )
    started = start(options, how, Terminal())
    if started.outcome is not None:
        _finish(started.outcome, started)
    elif no_wait:
        say(text("services.starting", name=started.name))
    else:
        _wait(started)


def _wait(started: Service) -> None:
    """Show the detached launch until it answers. Ctrl-C ends the display only."""
    import time

    from gaudi_launch.cli.views.serve import say_ready

    begin = time.monotonic()
    try:
        # loading it takes a moment too, in which Ctrl-C may come
        from gaudi_launch.cli.service_progress import until_ready

        ready = until_ready(started.name)
    except KeyboardInterrupt:
        say(text("services.goes_on", name=started.name))
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    model = str(ready.state.get("served") or started.plan.model["name"])
    path = str(ready.state.get("answers") or "")
    no_chat = str(ready.state.get("no_chat") or "")
    say_ready(model, ready.url, round(time.monotonic() - begin), str(started.log), path, no_chat)
    print(text("services.stop_hint", name=started.name), flush=True)


def _finish(outcome: EngineOutcome, started: Service) -> None:
    from gaudi_launch.core.services.diagnosis.failure import failure
    from gaudi_launch.core.services.run_record import read_run_record
    from gaudi_launch.core.services.state import store

    if outcome.kind != "stopped":
        raise failure(outcome, started.log, str(started.plan.model.get("path") or "MODEL"))
    say(text("serve.stopped"))
    state = store.read(started.log.parent, "state.json") or {}
    run = read_run_record(started.log.parent, state.get("engine_began"))
    if run is not None:
        say(run_line(run.to_json()))
    raise typer.Exit(int(ExitCode.INTERRUPTED))
