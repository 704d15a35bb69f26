"""``gaudi-launch engines diff``."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.console import emit_json
from gaudi_launch.cli.options import BriefCommand, Launch, LaunchOptions

app = CommandApp()


@app.command(cls=BriefCommand)
def diff(
    ctx: typer.Context,
    left: str = typer.Argument(..., metavar="A", help="The engine version in use: vllm-fork@1.22."),
    right: str = typer.Argument(
        ..., metavar="B", help="The engine version to compare: vllm-gaudi@0.26."
    ),
    everything: bool = typer.Option(False, "--all", help="Every name, setting and reason."),
    as_json: bool = JSON,
    options: LaunchOptions = Launch,
) -> None:
    """Show what changes from one engine version to another.

    Options and variables that are removed, renamed or have another default; with a model also the
    settings, buckets, memory and support of this plan, and known problems with their threads.
    """
    from gaudi_launch.extensions.migrate.diff.case import engines_diff
    from gaudi_launch.extensions.migrate.diff.view import show, to_json

    found = engines_diff(left, right, options)
    if as_json or ctx.obj:
        emit_json(to_json(found))
    else:
        show(found, complete=everything)
