"""``gaudi-launch capacity``: replicas, cards and nodes for a rate of requests.

They serve it within latency targets.
"""

from __future__ import annotations

import typer

from gaudi_launch.app.capacity import CapacityOptions
from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.record_options import RecordCommand, record

app = CommandApp()

_SHOW = "Output"
_Options = record(CapacityOptions())


@app.command(cls=RecordCommand)
def capacity(
    model: str = typer.Argument(
        ..., metavar="MODEL", help="A folder, a hub ID, or a model with a profile."
    ),
    options: CapacityOptions = _Options,
    as_json: bool = typer.Option(
        False, "--json", help="Print one JSON object.", rich_help_panel=_SHOW
    ),
) -> None:
    """Estimate replicas, cards and nodes for a request rate by simulation; no card is needed.

    One replica is simulated at growing load, with real request lengths (--trace) or ranges (-i,
    -o). Step times are modelled, not measured; every assumption is printed, and --constant sets
    your own figures.
    """
    from gaudi_launch.app import capacity as cases
    from gaudi_launch.capacity.cards import solve
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.capacity import show, to_json
    from gaudi_launch.cli.work_progress import work_progress

    case = cases.read(model, options)
    with work_progress("capacity.working", quiet=as_json) as progress:
        result = solve(case, progress)
    if as_json:
        emit_json(to_json(result))
    else:
        show(result)
    # the page shows the answer, also when no fleet is possible
    if result.chosen is None:
        raise typer.Exit(1)
