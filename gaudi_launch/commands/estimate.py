"""``gaudi-launch estimate``: the speed of a launch, with its evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import typer

from gaudi_launch.cli.command_app import OUTPUT_JSON, CommandApp
from gaudi_launch.cli.console import emit_json
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand, record
from gaudi_launch.cli.views.estimate import show, to_json
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import switch
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.launch.forecast_case import read_case
from gaudi_launch.core.launch.load_prediction import of_batch, of_load
from gaudi_launch.core.launch.prediction import SpeedEstimate
from gaudi_launch.core.launch.prepared import Prepared, prepare
from gaudi_launch.core.launch.saved_plan import merged
from gaudi_launch.core.launch.traffic_options import (
    LoadOptions,
    demand_of,
    load_of,
    past_of,
    rate_of_trace,
)
from gaudi_launch.core.planning.parse_ranges import Ranges
from gaudi_launch.core.predict.load import Load

app = CommandApp()


@dataclass(frozen=True)
class EstimateOptions(LoadOptions):
    """The load as typed; empty where not given."""

    static: bool = switch(
        "--static",
        help="One batch of -b without a server: all prompts prefilled together, then decoded.",
        panel="Load",
    )


_Options = record(EstimateOptions())


@app.command(cls=RecordCommand)
def estimate(
    given: EstimateOptions = _Options,
    options: LaunchOptions = Launch,
    everything: bool = typer.Option(
        False, "--all", help="Also the parts of a step, and the evidence.", rich_help_panel="Output"
    ),
    as_json: bool = OUTPUT_JSON,
) -> None:
    """Predict TTFT, TPOT and tokens/s of a launch, with a range and the published figures nearest
    to the load.

    The launch is planned as by 'plan', and the load is simulated as its engine schedules it; no
    card is needed. Step times are fitted to published measurements of Gaudi2 and Gaudi3. The range
    contains four fifths of the published figures of its class when they are left out of the fit.
    """
    found = predicted(options, given)
    if as_json:
        emit_json(to_json(found))
    else:
        show(found, options, complete=everything)


def predicted(options: LaunchOptions, given: EstimateOptions) -> SpeedEstimate:
    """Return the speed of a launch under a load.

    Without one, that of as many clients as it serves. Raises LaunchError for an impossible one, and
    where the speed is not known.
    """
    options = merged(options)
    chosen = [given.static, given.rate, given.concurrency]
    if sum(map(bool, chosen)) > 1 or (given.static and given.trace):
        raise LaunchError("estimate.one_load", ExitCode.USAGE)
    if not options.model:
        raise LaunchError("plan.no_model", ExitCode.USAGE)
    case = read_case(options)
    notes = [*case.notes]
    prepared = _prepared(replace(options, machine=case.machine))
    lengths = Ranges(options.input_range, options.output_range)
    if given.static:
        found = of_batch(prepared, lengths, notes)
    else:
        found = of_load(prepared, lengths, lambda usual: _load(usual, given, notes), notes)
    if found.outcome.load.mean_output < 2:
        raise LaunchError("estimate.short", ExitCode.USAGE, found=options.text("output_range"))
    # the plan may be for a converted folder
    return replace(found, model=case.model)


def _prepared(options: LaunchOptions) -> Prepared:
    """Return the inputs of the plan.

    Lengths that its engine has no options for are left out.
    """
    try:
        return prepare(options)
    except LaunchError as error:
        if error.text.values.get("flag") not in ("-i", "-o"):
            raise
    return prepare(replace(options, input_range=None, output_range=None))


def _load(usual: Load, given: EstimateOptions, notes: list[Message]) -> Load:
    """Return the load of the options: ``usual`` where they name none."""
    (rate, clients), found = demand_of(given), past_of(given)
    load = usual
    if found is not None:
        load = load_of(found, Ranges(), notes).of_clients(usual.clients)
        if found.own_times and not clients:
            rate = rate or rate_of_trace(found.requests, notes)
    if rate:
        return load.at_rate(rate)
    return load.of_clients(clients or usual.clients)
