"""``gaudi-launch estimate``: the speed of a launch, with its evidence."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand, record
from gaudi_launch.core.launch.estimate import EstimateOptions

app = CommandApp()

_SHOW = "Output"
_Options = record(EstimateOptions())


@app.command(cls=RecordCommand)
def estimate(
    given: EstimateOptions = _Options,
    options: LaunchOptions = Launch,
    as_json: bool = typer.Option(
        False, "--json", help="Print one JSON object.", rich_help_panel=_SHOW
    ),
) -> None:
    """Predict TTFT, TPOT and tokens/s of a launch, with a range and the published figures nearest
    to the load.

    The launch is planned as by 'plan', and the load is simulated as its engine schedules it; no
    card is needed. Step times are fitted to published measurements of Gaudi2 and Gaudi3. The range
    contains four fifths of the published figures of its class when they are left out of the fit.
    """
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.estimate import show, to_json
    from gaudi_launch.core.launch import estimate as cases

    found = cases.estimate(options, given)
    if as_json:
        emit_json(to_json(found))
    else:
        show(found)
