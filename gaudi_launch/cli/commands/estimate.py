"""``gaudi-launch estimate``: predict the speed of a model, with its evidence."""

from __future__ import annotations

import typer

from gaudi_launch.app.estimate import EstimateOptions
from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.record_options import RecordCommand, record

app = CommandApp()

_SHOW = "Output"
_Options = record(EstimateOptions())


@app.command(cls=RecordCommand)
def estimate(
    model: str = typer.Argument(
        ..., metavar="MODEL", help="A folder with config.json, a hub ID, or a model with a profile."
    ),
    options: EstimateOptions = _Options,
    as_json: bool = typer.Option(
        False, "--json", help="Print one JSON object.", rich_help_panel=_SHOW
    ),
) -> None:
    """Predict TTFT, TPOT and tokens/s, by part, with a range and the published figures nearest
    to the load.

    The step-time model is fitted to published measurements of Gaudi2 and Gaudi3; no card is needed.
    The range contains four fifths of the published figures of its class when they are left out of
    the fit.
    """
    from gaudi_launch.app import estimate as cases
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.estimate import show, to_json

    found = cases.solve(cases.read(model, options))
    if as_json:
        emit_json(to_json(found))
    else:
        show(found)
