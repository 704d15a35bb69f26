"""``gaudi-launch convert``: an fp8 checkpoint in the range that Gaudi2 has."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import CommandApp

app = CommandApp()


@app.command()
def convert(
    source: Path = typer.Argument(..., metavar="DIR", help="The model's folder."),
    out: Path = typer.Argument(..., metavar="OUT", help="Folder for the converted model."),
    processes: int = typer.Option(1, "--processes", min=1, help="Shards converted in parallel."),
    force: bool = typer.Option(False, "--force", help="Convert every shard again."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Convert 8-bit weights (up to 448) for Gaudi2 (up to 240). An interrupted run resumes."""
    from gaudi_launch.app import model_setup
    from gaudi_launch.cli.console import console, emit_json
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.messages import text

    did = model_setup.convert(source, out, processes, Terminal(), force=force)
    if as_json:
        notes = list(did.copied_projections)
        document = {"out": str(out), "written": list(did.written), "kept": list(did.kept)}
        emit_json({"schema": 1, **document, "copied_projections": notes})
        return
    lines = [text("fp8.done", written=len(did.written), kept=len(did.kept), out=out)]
    if did.copied_projections:
        lines.append(
            text("fp8.note", count=len(did.copied_projections), example=did.copied_projections[0])
        )
    for line in [*lines, text("fp8.gaudi3")]:
        console().print(line, markup=False)
