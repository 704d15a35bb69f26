"""``gaudi-launch plan``: every setting of serve, with its source and reason."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.console import emit_json, say
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.predict.balance import BALANCED

app = CommandApp()


@app.command(cls=RecordCommand)
def plan(
    as_json: bool = typer.Option(False, "--json", help="The plan as one JSON object."),
    show_everything: bool = typer.Option(
        False, "--all", help="Show everything: each setting with its source and reason."
    ),
    verbose: bool = typer.Option(
        False, "-v", "--verbose", help="--all, with the source of each rule."
    ),
    save: Path | None = typer.Option(
        None, "--save", metavar="FILE", help="Write options and plan to a file for --plan FILE."
    ),
    options: LaunchOptions = Launch,
) -> None:
    """Show what serve would start: cards, CPUs, every variable and option, buckets, memory and
    time.

    Needs no card and no engine on this machine: --machine simulated:hls2 plans for an 8-card Gaudi2
    server.
    """
    from gaudi_launch.cli.views.speed import speed_json
    from gaudi_launch.core.launch import route, saved_plan
    from gaudi_launch.core.launch.prediction import of_plan

    checked = route.checked_plan(options)
    made, prepared = checked.plan, checked.prepared
    speed = of_plan(prepared, made)
    if save is not None:
        goal = BALANCED if made.placement.choice is not None else ""
        traffic = saved_plan.traffic_of(options, mapped(lambda each: each.load, speed))
        saved_plan.write(save, options, made, goal=goal, traffic=traffic)
    if as_json:
        steps = [step.to_json() for step in prepared.steps]
        left = {"verdict": checked.verdict, "todo": [each.to_json() for each in checked.todo]}
        emit_json({**made.to_json(), **left, "steps": steps, "speed": speed_json(speed)})
    else:
        from gaudi_launch.commands.plan.all_view import show_all
        from gaudi_launch.commands.plan.view import show
        from gaudi_launch.core.launch.command_line import serve_command

        command = serve_command(checked.startable(options))
        if show_everything or verbose:
            show_all(checked, speed, command, verbose=verbose)
        else:
            show(checked, speed, command)
    if save is not None and not as_json:
        say(text("saved.written", path=str(save)))
    taken = checked.taken is not None and options.machine is None
    if taken or (checked.failed and prepared.machine is None):
        raise typer.Exit(int(ExitCode.MACHINE))
