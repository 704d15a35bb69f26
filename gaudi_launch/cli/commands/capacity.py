"""``gaudi-launch capacity``: how many replicas, cards and nodes for a rate of requests within latency targets."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})

_TRAFFIC, _REPLICA, _SHOW = "Traffic and targets", "Replica", "Output"


@app.command()
def capacity(
    model: str = typer.Argument(..., metavar="MODEL", help="A folder, a hub id, or a model that has a profile."),
    rate: str = typer.Option(
        "", help="Requests of the whole fleet: 50/s, 3000/m, 2e6/d.", metavar="RATE", rich_help_panel=_TRAFFIC
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
        "", help="Time per further token: 0.05, 50ms.", metavar="TIME", rich_help_panel=_TRAFFIC
    ),
    percentile: str = typer.Option(
        "95", help="The share of requests within the targets.", metavar="P", rich_help_panel=_TRAFFIC
    ),
    arrivals: str = typer.Option(
        "poisson",
        help="poisson, or trace: its own bursts, at the replica's rate.",
        metavar="HOW",
        rich_help_panel=_TRAFFIC,
    ),
    cards: str = typer.Option(
        "", "-n", "--cards", metavar="LIST", help="Cards of a replica: 1,2,4,8.", rich_help_panel=_REPLICA
    ),
    cards_per_node: str = typer.Option("", help="Cards of a node.", metavar="N", rich_help_panel=_REPLICA),
    accelerator: str = typer.Option(
        "",
        "--accelerator",
        metavar="NAME",
        help="gaudi2, gaudi3... (default: this machine).",
        rich_help_panel=_REPLICA,
    ),
    engine: str = typer.Option("", "--engine", metavar="ENGINE", help="As in 'fit'.", rich_help_panel=_REPLICA),
    dtype: str = typer.Option("", "-d", "--dtype", metavar="TYPE", help="The data type.", rich_help_panel=_REPLICA),
    length: str = typer.Option(
        "", "-l", "--max-model-len", metavar="N", help="Longest input plus output.", rich_help_panel=_REPLICA
    ),
    requests: str = typer.Option(
        "", "-b", "--max-num-seqs", metavar="N", help="Requests at once in a replica.", rich_help_panel=_REPLICA
    ),
    constant: list[str] | None = typer.Option(
        None, help="A constant of the step-time model, in ms.", metavar="NAME=MS", rich_help_panel=_REPLICA
    ),
    nodes: str = typer.Option("", help="Also: what this many nodes carry.", metavar="LIST", rich_help_panel=_SHOW),
    plot: Path | None = typer.Option(
        None, help="Draw latency against load.", metavar="FILE.png|.svg", rich_help_panel=_SHOW
    ),
    as_json: bool = typer.Option(False, "--json", help="Everything as one JSON object.", rich_help_panel=_SHOW),
) -> None:
    """Replicas, cards and nodes for a rate of requests, from the warm-up planner's simulator; no card is needed.

    One replica is simulated at growing load, with real request lengths (--trace) or ranges (-i, -o). What a step
    takes is a model that no card measured; every assumption is printed, and --constant puts your own figures in.
    """
    from gaudi_launch.cli import capacity_case as cases
    from gaudi_launch.cli.capacity_view import draw, show, to_json
    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.fleet.choice import solve

    case = cases.read(
        model,
        cases.Words(
            rate, trace, inputs, outputs, ttft, tpot, percentile, arrivals, cards, cards_per_node, accelerator,
            engine, dtype, length, requests, tuple(constant or ()), nodes,
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
    # the answer is on the page, also when it is that no fleet can
    if result.chosen is None:
        raise typer.Exit(1)
