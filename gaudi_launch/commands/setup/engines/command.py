"""``gaudi-launch engines``: list the engines, installed ones, and their features."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.core.base.steps import step

app = CommandApp()


@app.callback(invoke_without_command=True)
def engines(
    ctx: typer.Context,
    python: str | None = typer.Option(
        None,
        "--python",
        metavar="PATH",
        help="The interpreter to query (default: python3 on PATH).",
    ),
    show_all: bool = typer.Option(
        False, "--all", help="Every feature, unsupported option and release."
    ),
    as_json: bool = JSON,
) -> None:
    """List the engines: installed ones, features, and unsupported options."""
    ctx.obj = as_json
    if ctx.invoked_subcommand is not None:
        return
    from gaudi_launch.commands.setup.engines.case import listing
    from gaudi_launch.commands.setup.engines.view import show

    with step("screen.step_engine"):
        found = listing(python)
    show(found, as_json, complete=show_all)
