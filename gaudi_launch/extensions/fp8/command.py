"""``gaudi-launch fp8``: weights for Gaudi2's range, and a model's measurements."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.console import emit_json
from gaudi_launch.cli.record_options import ModelCommand, record
from gaudi_launch.cli.short_page import ShortPage, next_line
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.launch import model_setup
from gaudi_launch.extensions.fp8 import case as use_case
from gaudi_launch.extensions.fp8.case import CalibrateOptions

if TYPE_CHECKING:
    from rich.text import Text

app = CommandApp(
    no_args_is_help=True, help="Convert an fp8 checkpoint for Gaudi2; calibrate a model."
)

_Calibrate = record(CalibrateOptions())


@app.command(cls=ModelCommand)
def convert(
    source: Path = typer.Argument(..., metavar="DIR", help="The model's folder."),
    out: Path = typer.Argument(..., metavar="OUT", help="Folder for the converted model."),
    processes: int = typer.Option(
        1, "--processes", metavar="N", min=1, help="Shards converted in parallel."
    ),
    force: bool = typer.Option(False, "--force", help="Convert every shard again."),
    as_json: bool = JSON,
) -> None:
    """Convert 8-bit weights (up to 448) for Gaudi2 (up to 240). An interrupted run resumes."""
    did = model_setup.convert(source, out, processes, Terminal(), force=force)
    if as_json:
        notes = list(did.copied_projections)
        document = {"out": str(out), "written": list(did.written), "kept": list(did.kept)}
        emit_json({"schema": 1, **document, "copied_projections": notes})
        return
    lines: list[str | Text] = [
        text("fp8.done", written=len(did.written), kept=len(did.kept), out=out),
        next_line(f"gaudi-launch serve {shlex.quote(str(out))}"),
    ]
    if did.copied_projections:
        lines.append(
            text("fp8.note", count=len(did.copied_projections), example=did.copied_projections[0])
        )
    ShortPage([*lines, text("fp8.gaudi3")]).show(complete=True)


@app.command(cls=ModelCommand)
def calibrate(
    model: str = typer.Argument(..., metavar="MODEL", help="A folder or a hub ID."),
    options: CalibrateOptions = _Calibrate,
    as_json: bool = JSON,
) -> None:
    """Calibrate a model for -d fp8, on the cards that will serve it.

    Runs the engine's own calibration scripts, phase by phase. An interrupted run resumes.
    """
    from gaudi_launch.extensions.fp8.view import CalibrationTerminal, show, to_json

    result = use_case.calibrate(model, options, CalibrationTerminal())
    if as_json:
        emit_json(to_json(result))
    else:
        show(result, model)
