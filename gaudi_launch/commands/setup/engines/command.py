"""``gaudi-launch engines``: list the engines, installed ones, and their features.

``engines diff`` compares two versions.
"""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand

app = CommandApp()


@app.callback(invoke_without_command=True)
def engines(
    ctx: typer.Context,
    python: str | None = typer.Option(
        None, "--python", help="The interpreter to query (default: python3 on PATH)."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """List the engines: installed ones, features, and unsupported options."""
    ctx.obj = as_json
    if ctx.invoked_subcommand is not None:
        return
    from gaudi_launch.commands.setup.engines.case import listing
    from gaudi_launch.commands.setup.engines.view import show
    from gaudi_launch.core.base.steps import step

    with step("screen.step_engine"):
        found = listing(python)
    show(found, as_json)


@app.command(cls=RecordCommand)
def diff(
    ctx: typer.Context,
    left: str = typer.Argument(..., metavar="A", help="The engine version in use: vllm-fork@1.22."),
    right: str = typer.Argument(
        ..., metavar="B", help="The engine version to compare: vllm-gaudi@0.26."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
    options: LaunchOptions = Launch,
) -> None:
    """Show what changes from one engine version to another.

    Options and variables that are removed, renamed or have another default; with a model also the
    settings, buckets, memory and support of this plan, and known problems with their threads.
    """
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.extensions.migrate.diff.case import engines_diff
    from gaudi_launch.extensions.migrate.diff.view import show, to_json

    found = engines_diff(left, right, options)
    if as_json or ctx.obj:
        emit_json(to_json(found))
    else:
        show(found)
