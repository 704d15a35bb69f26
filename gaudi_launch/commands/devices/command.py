"""``gaudi-launch devices``: the cards and their users.

``devices pick`` selects some and gives the reasons, ``devices power`` sets their power limits,
``devices snapshot`` writes the machine to a file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.console import emit_json, known, say
from gaudi_launch.cli.machine_option import MACHINE
from gaudi_launch.cli.streams import is_utf
from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped, value_or
from gaudi_launch.core.base.paths import write_whole

if TYPE_CHECKING:
    from gaudi_launch.core.base.errors import LaunchError
    from gaudi_launch.core.doctor.power_limit import CapChange, CapOutcome
    from gaudi_launch.core.host.hardware import Host
    from gaudi_launch.core.host.hl_smi import Ask

app = CommandApp(
    help="Show the cards and their users; 'devices pick -n 4' selects some.\n\nJ/token and kWh are "
    "those of the service that uses the card, with all its cards, since midnight.\n\nSimulated "
    "machines: hls2, gaudi2e-8, gaudi2e-4, gaudi3-oam, gaudi3-pcie; variants after '+': "
    "busy=MODULES, failed=MODULES, no-driver, no-hl-smi, no-sysfs, no-smt, bad-tuning, container, "
    "amd, hot=MODULES, pending-rows=MODULES, capped=MODULES, link-down=MODULES, lost=MODULES, "
    "old-fit (simulated:hls2+busy=3,5,7).",
)

_TREE = typer.Option(
    None,
    "--tree",
    metavar="DIR",
    help=(
        "Write a simulated machine as a folder for GAUDI_LAUNCH_ROOT, with an hl-smi in DIR/bin "
        "for PATH."
    ),
)


@app.callback(invoke_without_command=True)
def devices(
    ctx: typer.Context,
    machine: str | None = MACHINE,
    everything: bool = typer.Option(
        False, "--all", help="Also PCI address, NUMA, CPUs and energy of each card."
    ),
    as_json: bool = JSON,
) -> None:
    """Show which cards are free, and memory, power, status and users of each."""
    # both options may come before a subcommand too
    ctx.obj = (machine, as_json)
    if ctx.invoked_subcommand is not None:
        return
    from gaudi_launch.commands.devices.view import DeviceUse, show, to_json
    from gaudi_launch.core.launch.machine import load
    from gaudi_launch.core.services.energy import energy_of_modules
    from gaudi_launch.core.services.state.orphans import orphans

    host = load(machine)
    # services and processes are this machine's, whatever machine is inspected
    use = DeviceUse()
    if machine is None:
        use = DeviceUse(energy_of_modules(), orphans())
    if as_json:
        emit_json(to_json(host, use))
    else:
        show(host, use, machine, complete=everything)


def _given(ctx: typer.Context, machine: str | None, as_json: bool) -> tuple[str | None, bool]:
    """Return --machine and --json, which may also be given before a subcommand."""
    earlier_machine, earlier_json = ctx.obj
    return value_or(machine, earlier_machine), as_json or earlier_json


@app.command()
def pick(
    ctx: typer.Context,
    cards: int | None = typer.Option(
        None, "-n", "--cards", metavar="N", help="Number of cards: 1, 2, 4 or 8 (default 1)."
    ),
    modules: str | None = typer.Option(
        None, "-m", "--modules", metavar="LIST", help="Module IDs to use."
    ),
    machine: str | None = MACHINE,
    as_json: bool = JSON,
    form: str = typer.Option(
        "text",
        "--format",
        metavar="text|modules|indices|cpus",
        help="Print only this value, for scripts.",
    ),
) -> None:
    """Print the cards that 'serve' would select, with the reasons, without reserving them."""
    from gaudi_launch.commands.devices.view import pick_to_json, show_pick
    from gaudi_launch.core.launch.machine import load
    from gaudi_launch.core.planning.parse import parse_modules
    from gaudi_launch.core.planning.placement import choose, parse_visible

    forms = ("text", "modules", "indices", "cpus")
    if form not in forms:
        raise LaunchError("placement.format", ExitCode.USAGE, found=form, known=", ".join(forms))
    wanted = mapped(parse_modules, modules)
    visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))
    machine, as_json = _given(ctx, machine, as_json)
    host = load(machine)
    placement = choose(host, cards, wanted, visible)
    document = pick_to_json(host, placement)
    if as_json:
        emit_json(document)
    elif form == "text":
        show_pick(placement)
    elif form == "cpus":
        typer.echo(document["cpus"])
    else:
        typer.echo(",".join(known(number, unknown="?") for number in document[form]))


@app.command()
def power(
    ctx: typer.Context,
    limit: int | None = typer.Option(
        None, "--limit", metavar="W", help="Set the power limit of the cards, in W."
    ),
    modules: str | None = typer.Option(
        None, "-m", "--modules", metavar="LIST", help="With --limit: only these modules."
    ),
    undo: bool = typer.Option(False, "--undo", help="Restore the limits that --limit changed."),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="With --limit: print the commands, change nothing."
    ),
    yes: bool = typer.Option(False, "-y", "--yes", help="Change the limits without confirmation."),
    machine: str | None = MACHINE,
    as_json: bool = JSON,
) -> None:
    """Set the power limit of cards, or restore it.

    A limit is set by hl-smi's documented option, recorded in the doctor's journal, and restored by
    --undo. A product without a documented range is refused.
    """
    from gaudi_launch.commands.devices.view import show_commands
    from gaudi_launch.core.doctor import power_limit
    from gaudi_launch.core.launch.machine import load
    from gaudi_launch.core.planning.parse import parse_modules

    machine, as_json = _given(ctx, machine, as_json)
    if (limit is None) != undo:
        raise LaunchError("power.limit_or_undo", ExitCode.USAGE)
    if undo and (modules is not None or dry_run):
        raise LaunchError("power.needs_limit", ExitCode.USAGE)
    if machine is not None and not dry_run:
        raise LaunchError("power.not_this_machine", ExitCode.USAGE)
    if limit is None:
        return _finish(power_limit.undo(paths.machine_root(), _hl_smi()), as_json)
    changes = power_limit.planned(load(machine), limit, mapped(parse_modules, modules))
    if dry_run:
        return show_commands(changes, as_json)
    _confirm(changes, yes)
    _finish(power_limit.apply(paths.machine_root(), changes, _hl_smi()), as_json)


def _hl_smi() -> Ask:
    from gaudi_launch.core.host import hl_smi

    ask = hl_smi.find()
    if ask is None:
        raise LaunchError("power.no_hl_smi", ExitCode.MACHINE)
    return ask


def _confirm(changes: Sequence[CapChange], yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise LaunchError("power.yes", ExitCode.USAGE, count=len(changes))
    watts = changes[0].after_w
    if not typer.confirm(text("power.confirm", count=len(changes), watts=watts), err=True):
        raise typer.Exit(int(ExitCode.INTERRUPTED))


def _finish(outcomes: Sequence[CapOutcome], as_json: bool) -> None:
    from gaudi_launch.commands.devices.view import show_outcomes

    show_outcomes(outcomes, as_json)
    if any(each.status == "failed" for each in outcomes):
        raise typer.Exit(int(ExitCode.FAILED))


@app.command()
def snapshot(
    ctx: typer.Context,
    file: str = typer.Argument("", metavar="FILE", help="File for the JSON; '-' is stdout."),
    machine: str | None = MACHINE,
    tree: Path | None = _TREE,
    force: bool = typer.Option(False, "--force", help="Replace FILE if it exists."),
) -> None:
    """Write this machine as JSON: 'plan --machine FILE' on another machine gives the same plan."""
    from gaudi_launch.core.host import host_config
    from gaudi_launch.core.host.snapshot import to_json
    from gaudi_launch.core.launch.machine import load

    machine, _ = _given(ctx, machine, as_json=False)
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
        say(text("host.snapshot_no_cards", path=file, why=notes))
    elif file != "-" and host.origin == "live":
        say(text("host.snapshot_live", path=file, cards=len(host.cards)))
    elif file != "-":
        written = text(
            "host.snapshot_written", path=file, cards=len(host.cards), origin=host.origin
        )
        say(written)


def _write_tree(folder: Path, machine: str | None) -> None:
    from gaudi_launch.core.host.machine import SIMULATED
    from gaudi_launch.core.host.simulated import NAMES, build, write_machine

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
    typer.echo(
        text("host.snapshot_tree", root=str(folder.absolute()), programs=str(programs.absolute())),
        err=True,
    )


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
