"""``gaudi-launch render ray-serve``."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.options import Launch, LaunchOptions, ReplicasCommand
from gaudi_launch.cli.table import listed
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.commands.render.case import refuse_beside
from gaudi_launch.commands.render.options import OUTPUT_PANEL, STACK, TO
from gaudi_launch.commands.render.view import show, show_problems
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.render.deliver import Destination

app = CommandApp()


@app.command(cls=ReplicasCommand)
def ray_serve(
    out: str = TO,
    check: str = typer.Option(
        "",
        "--check",
        metavar="FILE",
        help="Check this Serve config for settings that Ray silently ignores; write nothing.",
        rich_help_panel=OUTPUT_PANEL,
    ),
    as_json: bool = typer.Option(
        False, "--json", help="The files as one JSON object.", rich_help_panel=OUTPUT_PANEL
    ),
    stack: str = STACK,
    options: LaunchOptions = Launch,
) -> None:
    """Write a Serve config for a running Ray.

    It contains replicas of a model, or a stack with its router.
    """
    from gaudi_launch.extensions.ray import case

    if check:
        for name, given in (("--stack", stack), ("--to", out)):
            if given:
                raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one=name, other="--check")
        refuse_beside(options, "--check")
        problems = case.check_ray_serve(Path(check))
        show_problems(check, problems, as_json=as_json)
        if problems:
            raise typer.Exit(int(ExitCode.FAILED))
        return
    to = Destination(out or None, several=as_json)
    if stack:
        made = case.ray_serve_several(Path(stack), listed("stack plans"), options, to)
    else:
        made = case.ray_serve(options, to, Terminal())
    show(made, as_json=as_json)
