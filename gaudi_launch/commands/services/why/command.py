"""``gaudi-launch why``: explain a failed launch from its log."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp

app = CommandApp()


@app.command()
def why(
    log: str | None = typer.Argument(
        None,
        metavar="[NAME|LOGFILE]",
        help="A service, an engine log, or - for stdin (default: the last failure).",
    ),
    exit_status: int | None = typer.Option(
        None, "--exit-status", metavar="N", help="Exit status of the engine; -9 for SIGKILL."
    ),
    everything: bool = typer.Option(False, "--all", help="All evidence, and the sources."),
    as_json: bool = JSON,
) -> None:
    """Explain a failure: phase, evidence, cause and remedy."""
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.commands.services.why.view import show, to_json
    from gaudi_launch.core.services.why import why as use_case

    explanation = use_case(log, exit_status)
    if as_json:
        emit_json(to_json(explanation))
    else:
        show(explanation, complete=everything)
