"""``gaudi-launch engines``: list the engines, installed ones, and their features."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp

app = CommandApp()


@app.command()
def engines(
    python: str | None = typer.Option(
        None, "--python", help="The interpreter to query (default: python3 on PATH)."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """List the engines: installed ones, features, and unsupported options."""
    from gaudi_launch.app.engines import listing
    from gaudi_launch.app.steps import step
    from gaudi_launch.cli.views.engines import show

    with step("screen.step_engine"):
        found = listing(python)
    show(found, as_json)
