"""``gaudi-launch estimate``: predict the speed of a model, with its evidence."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import CommandApp

app = CommandApp()

_LOAD, _SETUP, _SHOW = "Load", "Model and cards", "Output"


@app.command()
def estimate(
    model: str = typer.Argument(
        ..., metavar="MODEL", help="A folder with config.json, a hub ID, or a model with a profile."
    ),
    cards: str = typer.Option("", "-n", "--cards", metavar="N", help="Number of cards.", rich_help_panel=_SETUP),
    dtype: str = typer.Option(
        "", "-d", "--dtype", metavar="TYPE", help="bf16, fp8, awq, gptq.", rich_help_panel=_SETUP
    ),
    accelerator: str = typer.Option(
        "",
        "--accelerator",
        metavar="NAME",
        help="gaudi2, gaudi3... (default: this machine).",
        rich_help_panel=_SETUP,
    ),
    engine: str = typer.Option(
        "", "--engine", metavar="ENGINE", help="Engine, as in 'fit'.", rich_help_panel=_SETUP
    ),
    software: str = typer.Option(
        "",
        "--software",
        metavar="RELEASE",
        help="Gaudi software release: 1.18, 1.24.1.",
        rich_help_panel=_SETUP,
    ),
    moe: str = typer.Option(
        "",
        "--moe",
        metavar="fused|unfused",
        help="Experts that a step reads: the selected ones, or all.",
        rich_help_panel=_SETUP,
    ),
    inputs: str = typer.Option(
        "", "-i", "--input", metavar="N", help="Input tokens (default 1024).", rich_help_panel=_LOAD
    ),
    outputs: str = typer.Option(
        "", "-o", "--output", metavar="N", help="Output tokens (default 256).", rich_help_panel=_LOAD
    ),
    batch: str = typer.Option(
        "",
        "-b",
        "--max-num-seqs",
        metavar="N",
        help="Concurrent sequences over all cards (default 32; 256 with --rate).",
        rich_help_panel=_LOAD,
    ),
    static: bool = typer.Option(
        False,
        "--static",
        help="One batch without a server: all prompts prefilled together, then decoded.",
        rich_help_panel=_LOAD,
    ),
    rate: str = typer.Option(
        "", "--rate", metavar="RATE", help="Requests that arrive at random: 5/s, 300/m.", rich_help_panel=_LOAD
    ),
    concurrency: str = typer.Option(
        "",
        "--concurrency",
        metavar="N",
        help="Clients that each wait for an answer before the next request.",
        rich_help_panel=_LOAD,
    ),
    plot: Path | None = typer.Option(
        None, help="Draw tokens/s against concurrent sequences.", metavar="FILE.png|.svg", rich_help_panel=_SHOW
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object.", rich_help_panel=_SHOW),
) -> None:
    """Predict TTFT, TPOT and tokens/s, by part, with a range and the published figures nearest to the load.

    The step-time model is fitted to published measurements of Gaudi2 and Gaudi3; no card is needed. The range
    contains four fifths of the published figures of its class when they are left out of the fit.
    """
    from gaudi_launch.app import estimate as cases
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.estimate import draw, show, to_json
    from gaudi_launch.errors import ExitCode, LaunchError

    if moe not in ("", "fused", "unfused"):
        raise LaunchError("estimate.moe", ExitCode.USAGE, found=moe)
    if plot is not None:
        from gaudi_launch.plotting import check_picture

        check_picture(plot)
    options = cases.EstimateOptions(
        cards=cards,
        dtype=dtype,
        accelerator=accelerator,
        input=inputs,
        output=outputs,
        batch=batch,
        static=static,
        rate=rate,
        concurrency=concurrency,
        software=software,
        moe=moe,
        engine=engine,
    )
    case = cases.read(model, options)
    found = cases.solve(case)
    if plot is not None:
        draw(plot, found)
    if as_json:
        emit_json(to_json(found))
    else:
        show(found, plot)
