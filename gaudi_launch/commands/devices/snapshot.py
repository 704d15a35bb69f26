"""``gaudi-launch devices snapshot``: write a machine to a file, or as a folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.console import say
from gaudi_launch.cli.machine_option import MACHINE
from gaudi_launch.cli.streams import is_utf
from gaudi_launch.commands.devices.command import given
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.paths import write_whole
from gaudi_launch.core.host import host_config
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.machine import SIMULATED
from gaudi_launch.core.host.simulated import NAMES, build, write_machine
from gaudi_launch.core.host.snapshot import to_json
from gaudi_launch.core.launch.machine import load

app = CommandApp()

_TREE = typer.Option(
    None,
    "--tree",
    metavar="DIR",
    help=(
        "Write a simulated machine as a folder for GAUDI_LAUNCH_ROOT, with an hl-smi in DIR/bin "
        "for PATH."
    ),
)


@app.command()
def snapshot(
    ctx: typer.Context,
    file: str = typer.Argument("", metavar="FILE", help="File for the JSON; '-' is stdout."),
    machine: str | None = MACHINE,
    tree: Path | None = _TREE,
    force: bool = typer.Option(False, "--force", help="Replace FILE if it exists."),
) -> None:
    """Write this machine as JSON, to plan for it elsewhere.

    'plan --machine FILE' on another machine gives the same plan.
    """
    machine, _ = given(ctx, machine, as_json=False)
    if not file and tree is None:
        raise LaunchError("host.snapshot_nowhere", ExitCode.USAGE)
    if tree is not None:
        _write_tree(tree, machine)
    if not file:
        return
    if file != "-" and not force and os.path.lexists(file):
        raise LaunchError("host.snapshot_exists", ExitCode.USAGE, path=file)
    host = load(machine)
    document = to_json(host, host_config.to_json(host_config.load_config(machine)))
    if file == "-":
        ascii_only = not is_utf(sys.stdout)
        sys.stdout.write(json.dumps(document, ensure_ascii=ascii_only, indent=1) + "\n")
    else:
        _write_file(Path(file), json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    _report_written(host, file)


def _report_written(host: Host, file: str) -> None:
    if not host.cards:
        notes = "; ".join(f"{source}: {note}" for source, note in host.notes.items())
        say(text("host.snapshot_no_cards", why=notes))
    elif file != "-" and host.origin == "live":
        say(text("host.snapshot_live", path=file, cards=len(host.cards)))
    elif file != "-":
        written = text(
            "host.snapshot_written", path=file, cards=len(host.cards), origin=host.origin
        )
        say(written)


def _write_tree(folder: Path, machine: str | None) -> None:
    if machine is None or not machine.startswith(SIMULATED):
        known = ", ".join(f"{SIMULATED}{name}" for name in NAMES)
        raise LaunchError("host.tree_machine", ExitCode.USAGE, known=known)
    built = build(machine.removeprefix(SIMULATED))
    try:
        if folder.exists() and any(folder.iterdir()):
            raise LaunchError("host.tree_exists", ExitCode.USAGE, path=str(folder))
        programs = write_machine(built, folder)
    except OSError as error:
        raise _not_written(folder, error) from None
    say(text("host.snapshot_tree", root=str(folder.absolute()), programs=str(programs.absolute())))


def _write_file(path: Path, content: str) -> None:
    try:
        # the user's folder is not created
        path.absolute().parent.stat()
        write_whole(path.absolute(), content)
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> LaunchError:
    reason = error.strerror or str(error)
    return LaunchError("host.snapshot_write", ExitCode.FAILED, path=str(path), reason=reason)
