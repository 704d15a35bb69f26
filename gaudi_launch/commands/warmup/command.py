"""``gaudi-launch warmup``: graphs, time and coverage of buckets, and a plan."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import OUTPUT_JSON, CommandApp
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand
from gaudi_launch.core.base.steps import step

app = CommandApp()

_PLAN, _SHOW = "Buckets", "Output"


@app.command(cls=RecordCommand)
def warmup(
    trace: str = typer.Option(
        "",
        help="Past requests: CSV, JSON lines, /metrics page or URL.",
        metavar="FILE|URL",
        rich_help_panel=_PLAN,
    ),
    graphs: int = typer.Option(
        0, show_default=False, help="Maximum number of graphs.", metavar="N", rich_help_panel=_PLAN
    ),
    overhead: str = typer.Option(
        "", help="Maximum padding overhead.", metavar="P%", rich_help_panel=_PLAN
    ),
    constant: list[str] | None = typer.Option(
        None,
        help="A constant of the step-time model, in ms.",
        metavar="NAME=MS",
        rich_help_panel=_PLAN,
    ),
    plot: Path | None = typer.Option(
        None,
        help="Draw the bucket grid to this file.",
        metavar="FILE.png|.svg",
        rich_help_panel=_SHOW,
    ),
    list_: bool = typer.Option(
        False, "--list", help="Print every bucket of the plan.", rich_help_panel=_SHOW
    ),
    everything: bool = typer.Option(
        False, "--all", help="Also assumptions, maps and settings.", rich_help_panel=_SHOW
    ),
    as_json: bool = OUTPUT_JSON,
    options: LaunchOptions = Launch,
) -> None:
    """Predict warm-up and plan better buckets; starts nothing, needs no card and no model folder.

    Counts graphs, time, padding and uncovered shapes of every engine strategy, next to a planned
    list that covers every shape. Give your traffic (--trace) or at least its ranges (-i, -o, -b).
    """
    from gaudi_launch.cli.console import emit_json, say
    from gaudi_launch.commands.warmup import case as cases
    from gaudi_launch.commands.warmup import view
    from gaudi_launch.core.base.plotting import check_picture

    if plot is not None:
        check_picture(plot)
    with step("screen.step_warmup"):
        case = cases.read(
            options,
            trace=trace,
            goal=cases.WarmupRequest(graphs, overhead),
            constants=constant or [],
        )
        result = cases.solve(case)
    if plot is not None:
        with step("screen.step_draw"):
            view.draw(plot, case, result)
    if as_json:
        emit_json(view.to_json(case, result))
    elif list_:
        say(view.answer(result))
        print(view.listed(result))
    else:
        view.show(case, result, options, plot, complete=everything)
