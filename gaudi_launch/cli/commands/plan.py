"""``gaudi-launch plan``: every setting that serve would use, with its source and reason."""

from __future__ import annotations

import typer

from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command(cls=RecordCommand)
def plan(
    as_json: bool = typer.Option(False, "--json", help="The plan as one JSON object."),
    verbose: bool = typer.Option(False, "-v", "--verbose", help="Also show the source of each rule."),
    options: LaunchOptions = Launch,
) -> None:
    """Show what serve would start: cards, CPUs, every variable and option, buckets, memory and time.

    Needs no card and no engine on this machine: --machine simulated:hls2 plans for an 8-card Gaudi2 server.
    """
    from gaudi_launch.app import prepare
    from gaudi_launch.app.estimate import of_plan
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.estimate import speed_json
    from gaudi_launch.cli.views.plan import show

    made, prepared = prepare.plan(options)
    speed = of_plan(prepared, made)
    if as_json:
        steps = [step.to_json() for step in prepared.steps]
        emit_json({**made.to_json(), "steps": steps, "speed": speed_json(speed)})
    else:
        show(made, prepared, speed, verbose=verbose)
