"""``gaudi-launch snapshot``: a machine as JSON, or a simulated one as a folder."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.streams import is_utf

if TYPE_CHECKING:
    from gaudi_launch.host.hardware import Host

_TREE = typer.Option(
    None,
    "--tree",
    metavar="DIR",
    help=(
        "Write a simulated machine as a folder for GAUDI_LAUNCH_ROOT, with an hl-smi in DIR/bin "
        "for PATH."
    ),
)

app = CommandApp()


@app.command()
def snapshot(
    file: str = typer.Argument("", metavar="FILE", help="File for the JSON; '-' is stdout."),
    machine: str | None = typer.Option(
        None,
        "--machine",
        metavar="FILE|simulated:NAME",
        help="Another machine: a snapshot or simulated:NAME.",
    ),
    tree: Path | None = _TREE,
    force: bool = typer.Option(False, "--force", help="Replace FILE if it exists."),
) -> None:
    """Write this machine as JSON: 'plan --machine FILE' on another machine gives the same plan."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text

    if not file and tree is None:
        raise LaunchError("host.snapshot_nowhere", ExitCode.USAGE)
    if tree is not None:
        _write_tree(tree, machine)
    if not file:
        return
    if file != "-" and not force and os.path.lexists(file):
        raise LaunchError("host.snapshot_exists", ExitCode.USAGE, path=file)
    from gaudi_launch.app.machine import load
    from gaudi_launch.host import host_config
    from gaudi_launch.host.snapshot import to_json

    host = load(machine)
    settings = host_config.to_json(host_config.load_config(machine))
    if file == "-":
        sys.stdout.write(_document(to_json(host, settings), ascii_only=not is_utf(sys.stdout)))
    else:
        _write(Path(file), _document(to_json(host, settings), ascii_only=False))
    if not host.cards:
        typer.echo(text("host.snapshot_no_cards", path=file, why=_notes(host)), err=True)
    elif file != "-" and host.origin == "live":
        typer.echo(text("host.snapshot_live", path=file, cards=len(host.cards)), err=True)
    elif file != "-":
        typer.echo(
            text("host.snapshot_written", path=file, cards=len(host.cards), origin=host.origin),
            err=True,
        )


def _notes(host: Host) -> str:
    """Return what each source says of the cards, in one line."""
    return "; ".join(f"{source}: {note}" for source, note in host.notes.items())


def _document(snapshot: dict[str, Any], *, ascii_only: bool) -> str:
    return json.dumps(snapshot, ensure_ascii=ascii_only, indent=1) + "\n"


def _write_tree(folder: Path, machine: str | None) -> None:
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.host.machine import SIMULATED
    from gaudi_launch.host.simulated import NAMES, build, write_machine
    from gaudi_launch.messages import text

    if machine is None or not machine.startswith(SIMULATED):
        known = ", ".join(f"{SIMULATED}{name}" for name in NAMES)
        raise LaunchError("host.tree_machine", ExitCode.USAGE, known=known)
    built = build(machine.removeprefix(SIMULATED))
    try:
        if folder.exists() and any(folder.iterdir()):
            raise LaunchError("host.tree_exists", ExitCode.USAGE, path=str(folder))
        programs = write_machine(built, folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise LaunchError(
            "host.snapshot_write", ExitCode.FAILED, path=str(folder), reason=reason
        ) from None
    typer.echo(
        text("host.snapshot_tree", root=str(folder.absolute()), programs=str(programs.absolute())),
        err=True,
    )


def _write(path: Path, content: str) -> None:
    """Write a file atomically."""
    from gaudi_launch.errors import ExitCode, LaunchError

    try:
        handle, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                out.write(content)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise LaunchError(
            "host.snapshot_write", ExitCode.FAILED, path=str(path), reason=reason
        ) from None
