"""``gaudi-launch convert``: an fp8 checkpoint in the range that Gaudi2 has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from gaudi_launch.models.convert import Conversion

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def convert(
    source: Path = typer.Argument(..., metavar="DIR", help="The model's folder."),
    out: Path = typer.Argument(..., metavar="OUT", help="Where the converted model goes."),
    processes: int = typer.Option(1, "--processes", min=1, help="Shards converted at once."),
    force: bool = typer.Option(False, "--force", help="Convert every shard again."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Convert 8-bit weights (up to 448) for Gaudi2 (up to 240). A run that was stopped goes on where it was."""
    from gaudi_launch.cli.output import console, emit_json
    from gaudi_launch.messages import text

    did = run(source, out, processes, force)
    if as_json:
        notes = list(did.copied_projections)
        document = {"out": str(out), "written": list(did.written), "kept": list(did.kept)}
        emit_json({"schema": 1, **document, "copied_projections": notes})
        return
    lines = [text("fp8.done", written=len(did.written), kept=len(did.kept), out=out)]
    if did.copied_projections:
        lines.append(text("fp8.note", count=len(did.copied_projections), example=did.copied_projections[0]))
    for line in [*lines, text("fp8.gaudi3")]:
        console().print(line, markup=False)


def run(source: Path, out: Path, processes: int, force: bool = False) -> Conversion:
    """Convert and show each finished shard on stderr. Raises LaunchError."""
    from gaudi_launch.cli.output import console
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.models.convert import convert_folder

    progress = console(stderr=True)
    try:
        return convert_folder(source, out, processes, force, lambda shard: progress.print(shard, markup=False))
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("fp8.io", ExitCode.FAILED, path=str(error.filename or out), why=why) from None
