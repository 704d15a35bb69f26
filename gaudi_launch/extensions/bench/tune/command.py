"""``gaudi-launch tune``: start candidate plans, measure them, keep the best."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import OUTPUT_JSON, CommandApp
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand, record
from gaudi_launch.cli.shared_options import ALL
from gaudi_launch.extensions.bench.tune import case as use_case
from gaudi_launch.extensions.bench.tune.case import TuneOptions

app = CommandApp()

_Tune = record(TuneOptions())


@app.command(cls=RecordCommand)
def tune(
    given: TuneOptions = _Tune,
    save: Path | None = typer.Option(
        None,
        "--save",
        metavar="FILE",
        help="File for the best plan (default: state folder).",
        rich_help_panel="Output",
    ),
    everything: bool = ALL,
    as_json: bool = OUTPUT_JSON,
    options: LaunchOptions = Launch,
) -> None:
    """Start plans in turn, measure each with bench, and keep the measured best.

    'gaudi-launch recommend MODEL --save DIR' writes the best ones. Given options win over those of
    each plan. The load is that of the first one where none is given. Each round measures the better
    half with twice the requests; the last one measures the best and the first plan three times.
    Each launch and run is kept. Ctrl-C stops the server.
    """
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.extensions.bench.tune import view
    from gaudi_launch.extensions.bench.view import Watching

    state = use_case.begin(options, given)
    with Watching(quiet=as_json) as watching:
        tools = use_case.TuneTools(Terminal(), watching, given.no_doctor)
        outcome = use_case.tune(state, 60.0 * given.minutes, save, tools)
    view.show(outcome, as_json, complete=everything)
