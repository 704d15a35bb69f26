"""``gaudi-launch capacity``: replicas, cards and nodes for a rate of requests.

They serve it within latency targets.
"""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import CommandApp

app = CommandApp()

_TRAFFIC, _REPLICA, _SHOW = "Traffic and targets", "Replica", "Output"


@app.command()
def capacity(
    model: str = typer.Argument(..., metavar="MODEL", help="A folder, a hub ID, or a model with a profile."),
    rate: str = typer.Option(
        "", help="Total request rate: 50/s, 3000/m, 2e6/d.", metavar="RATE", rich_help_panel=_TRAFFIC
    ),
    trace: str = typer.Option(
        "",
        help="Past requests: CSV, JSON lines, /metrics page or URL.",
        metavar="FILE|URL",
        rich_help_panel=_TRAFFIC,
    ),
    inputs: str = typer.Option(
        "", "-i", "--input", metavar="RANGE", help="Input tokens.", rich_help_panel=_TRAFFIC
    ),
    outputs: str = typer.Option(
        "", "-o", "--output", metavar="RANGE", help="Output tokens.", rich_help_panel=_TRAFFIC
    ),
    ttft: str = typer.Option(
        "", help="Time to first token: 1.5s, 800ms.", metavar="TIME", rich_help_panel=_TRAFFIC
    ),
    tpot: str = typer.Option(
        "", help="Time per output token: 0.05, 50ms.", metavar="TIME", rich_help_panel=_TRAFFIC
    ),
    percentile: str = typer.Option(
        "95", help="Percentage of requests within the targets.", metavar="P", rich_help_panel=_TRAFFIC
    ),
    arrivals: str = typer.Option(
        "poisson",
        help="poisson, or trace: recorded times, at the replica's rate.",
        metavar="HOW",
        rich_help_panel=_TRAFFIC,
    ),
    cards: str = typer.Option(
        "", "-n", "--cards", metavar="LIST", help="Cards per replica: 1,2,4,8.", rich_help_panel=_REPLICA
    ),
    cards_per_node: str = typer.Option("", help="Cards per node.", metavar="N", rich_help_panel=_REPLICA),
    accelerator: str = typer.Option(
        "",
        "--accelerator",
        metavar="NAME",
        help="gaudi2, gaudi3... (default: this machine).",
        rich_help_panel=_REPLICA,
    ),
    engine: str = typer.Option(
        "",
        "--engine",
        metavar="ENGINE",
        help="Fraction of free card memory, as in 'fit'.",
        rich_help_panel=_REPLICA,
    ),
    dtype: str = typer.Option("", "-d", "--dtype", metavar="TYPE", help="The data type.", rich_help_panel=_REPLICA),
    length: str = typer.Option(
        "", "-l", "--max-model-len", metavar="N", help="Maximum of input plus output.", rich_help_panel=_REPLICA
    ),
    requests: str = typer.Option(
        "", "-b", "--max-num-seqs", metavar="N", help="Concurrent requests per replica.", rich_help_panel=_REPLICA
    ),
    constant: list[str] | None = typer.Option(
        None, help="A constant of the step-time model, in ms.", metavar="NAME=MS", rich_help_panel=_REPLICA
    ),
    nodes: str = typer.Option(
        "", help="Also show the load that this many nodes carry.", metavar="LIST", rich_help_panel=_SHOW
    ),
    plot: Path | None = typer.Option(
        None, help="Draw latency against load.", metavar="FILE.png|.svg", rich_help_panel=_SHOW
    ),
    force: bool = typer.Option(
        False, "--force", help="Continue although the engine lacks the model's class.", rich_help_panel=_SHOW
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object.", rich_help_panel=_SHOW),
) -> None:
    """Estimate replicas, cards and nodes for a request rate by simulation; no card is needed.

    One replica is simulated at growing load, with real request lengths (--trace) or ranges (-i, -o). Step
    times are modelled, not measured; every assumption is printed, and --constant sets your own figures.
    """
    from gaudi_launch.app import capacity as cases
    from gaudi_launch.capacity.cards import solve
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.capacity import draw, show, to_json

    case = cases.read(
        model,
        cases.CapacityOptions(
            rate, trace, inputs, outputs, ttft, tpot, percentile, arrivals, cards, cards_per_node, accelerator,
            engine, dtype, length, requests, tuple(constant or ()), nodes, force,
        ),
        plot,
    )  # fmt: skip
    result = solve(case)
    if plot is not None:
        draw(plot, result)
    if as_json:
        emit_json(to_json(result))
    else:
        show(result, plot)
    # the page shows the answer, also when no fleet is possible
    if result.chosen is None:
        raise typer.Exit(1)
