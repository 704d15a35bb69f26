"""``gaudi-launch calibrate``: measure a model for fp8 with the engine's scripts."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.app.calibrate import DATASET
from gaudi_launch.cli.command_app import CommandApp

app = CommandApp()


@app.command()
def calibrate(
    model: str = typer.Argument(..., metavar="MODEL", help="A folder or a hub ID."),
    cards: str = typer.Option(
        "", "-n", "--cards", metavar="N", help="Number of cards, the same as for serving."
    ),
    dataset: str = typer.Option(
        "", "--dataset", help=f"A .pkl file, a folder, or a hub's data set (default: {DATASET})."
    ),
    modules: str = typer.Option(
        "", "-m", "--modules", metavar="LIST", help="Module IDs to use, e.g. 0,1,2,3."
    ),
    python: str = typer.Option("", "--python", metavar="PATH", help="The engine's interpreter."),
    batch: str = typer.Option(
        "", "--batch", metavar="N", help="Prompts per batch (default: 1; of a .pkl file: 32)."
    ),
    samples: str = typer.Option("", "--samples", metavar="N", help="Total number of prompts."),
    eager: bool = typer.Option(False, "--eager", help="Run without graphs (slower, less memory)."),
    scripts: Path | None = typer.Option(
        None,
        "--scripts",
        metavar="DIR",
        help="The calibration folder of vllm-hpu-extension or vllm-gaudi.",
    ),
    code: bool = typer.Option(
        False, "--trust-remote-code", help="Allow Python code from the model folder."
    ),
    again: bool = typer.Option(
        False,
        "--force",
        help="Calibrate again from the beginning, and a model that the engine's lists lack.",
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Calibrate a model for -d fp8, on the number of cards that will serve it.

    Runs the engine's own calibration scripts, phase by phase. An interrupted run resumes.
    """
    from gaudi_launch.app import calibrate as use_case
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.calibrate import CalibrationTerminal, show, to_json

    options = use_case.CalibrateOptions(
        model, cards, dataset, modules, python, batch, samples, eager, scripts, code, again
    )
    result = use_case.calibrate(options, CalibrationTerminal())
    if as_json:
        emit_json(to_json(result))
    else:
        show(result, model)
