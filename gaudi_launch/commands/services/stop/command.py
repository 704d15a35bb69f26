"""``gaudi-launch stop``: stop services, or processes that services left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.console import emit_json, say
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.cli.times import DRAIN
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gaudi_launch.core.services.state.registry import ServiceRecord

app = CommandApp()


@app.command()
def stop(
    names: list[str] | None = typer.Argument(
        None, metavar="[NAME]...", help="Names of services, as 'ps' shows them."
    ),
    everything: bool = typer.Option(False, "--all", help="Stop all running services of this user."),
    orphans: bool = typer.Option(False, "--orphans", help="Stop processes whose launcher died."),
    drain: float = DRAIN,
    forget: bool = typer.Option(
        False, "--forget", help="Also remove its folder with state and logs."
    ),
    yes: bool = typer.Option(False, "-y", "--yes", help="Stop orphans without confirmation."),
    as_json: bool = JSON,
) -> None:
    """Drain requests, stop the engine and its child processes, and check that the cards are
    free."""
    from gaudi_launch.core.launch.stop import check_drain
    from gaudi_launch.core.services.state.chosen import choices, find
    from gaudi_launch.core.services.state.registry import services

    if sum((bool(names), everything, orphans)) != 1:
        running = [each for each in services() if each.alive]
        raise LaunchError("services.stop_what", ExitCode.USAGE, detail=choices(running))
    check_drain(drain)
    if orphans:
        _end_orphans(yes, as_json)
        return
    # every name is checked before the first service is stopped
    chosen = [find(name) for name in names or ()]
    if everything:
        chosen = [service for service in services() if service.alive]
    _end_services(chosen, drain, forget=forget, as_json=as_json)


def _end_services(
    chosen: Sequence[ServiceRecord], drain: float, *, forget: bool, as_json: bool
) -> None:
    """Stop each service; a failure does not prevent the others."""
    from gaudi_launch.commands.services.stop.view import ended_to_json, show_ended
    from gaudi_launch.core.launch.stop import end

    stopped, failed = [], []
    for service in chosen:
        try:
            ended = end(service, drain, Terminal(), forget=forget)
        except LaunchError as error:
            failed.append(error)
            continue
        show_ended(ended)
        stopped.append(ended_to_json(ended))
    if failed:
        *others, last = failed
        for other in others:
            say(str(other))
        raise last
    if as_json:
        emit_json({"schema": 1, "stopped": stopped})
    elif not chosen:
        print(text("services.none"))


def _end_orphans(yes: bool, as_json: bool) -> None:
    """Show the processes of ended launchers, and end them after a confirmation."""
    from gaudi_launch.commands.services.stop.view import orphans_to_json, show_orphans, show_unsure
    from gaudi_launch.core.launch.stop import end_orphans, left_error
    from gaudi_launch.core.services.state.orphans import look

    lost = look()
    found = [orphan for orphan in lost if orphan.doubt is None]
    unsure = [orphan for orphan in lost if orphan.doubt is not None]
    if not as_json or not yes:
        show_orphans(found)
        show_unsure(unsure)
    if found and not yes:
        if not sys.stdin.isatty():
            raise LaunchError("services.orphans_yes", ExitCode.USAGE, count=len(found))
        if not typer.confirm(text("services.orphans_ask", count=len(found)), err=True):
            raise typer.Exit(int(ExitCode.INTERRUPTED))
    left = end_orphans(found)
    if as_json:
        emit_json(orphans_to_json(found, left, unsure))
    elif found:
        say(text("services.orphans_ended", count=len(found) - len(left)))
    if left:
        raise left_error(left)
