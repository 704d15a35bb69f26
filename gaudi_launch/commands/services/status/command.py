"""``gaudi-launch status``: everything about one service."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.shared_options import NAME
from gaudi_launch.commands.services.status import case
from gaudi_launch.core.planning.parse import if_given, seconds

app = CommandApp()


@app.command()
def status(
    name: str | None = NAME,
    history: str = typer.Option(
        "", "--history", metavar="TIME", help="Draw its last 30m, 1h or 1d."
    ),
    everything: bool = typer.Option(False, "--all", help="Also all cards and the CPUs."),
    as_json: bool = JSON,
) -> None:
    """Show plan, phases with times, card memory, warm-up against its estimate, last error."""
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.commands.services.status.view import show, show_history, to_json

    found = case.status(name, if_given(seconds, "--history", history))
    document = to_json(found)
    if as_json:
        emit_json(document)
    else:
        show(found.service, document, complete=everything)
        if found.history is not None:
            show_history(found.history, found.history_seconds)
