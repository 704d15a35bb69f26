"""``gaudi-launch devices power``: set the power limits of cards."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.console import emit_json
from gaudi_launch.cli.machine_option import MACHINE
from gaudi_launch.commands.devices.command import given
from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.doctor import power_limit
from gaudi_launch.core.doctor.power_limit import CapChange, CapOutcome
from gaudi_launch.core.host import hl_smi
from gaudi_launch.core.host.hl_smi import Ask
from gaudi_launch.core.launch.machine import load
from gaudi_launch.core.planning.parse import parse_modules

app = CommandApp()


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
    machine, as_json = given(ctx, machine, as_json)
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
        return _show_commands(changes, as_json)
    _confirm(changes, yes)
    _finish(power_limit.apply(paths.machine_root(), changes, _hl_smi()), as_json)


def _hl_smi() -> Ask:
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
    _show_outcomes(outcomes, as_json)
    if any(each.status == "failed" for each in outcomes):
        raise typer.Exit(int(ExitCode.FAILED))


def _show_commands(changes: Sequence[CapChange], as_json: bool) -> None:
    lines = [" ".join(["hl-smi", *change.arguments]) for change in changes]
    if as_json:
        emit_json({"schema": 1, "commands": lines})
    else:
        print("\n".join(lines))


def _show_outcomes(outcomes: Sequence[CapOutcome], as_json: bool) -> None:
    if as_json:
        cards = [
            {
                "module": each.change.module,
                "bus": each.change.bus,
                "status": each.status,
                "before_w": each.change.before_w,
                "requested_w": each.change.after_w,
                "now_w": each.now_w,
                "reason": each.reason,
            }
            for each in outcomes
        ]
        return emit_json({"schema": 1, "cards": cards})
    if not outcomes:
        print(text("power.nothing_to_undo"))
    for each in outcomes:
        change = each.change
        id = f"power.cap_{each.status}"
        print(
            text(
                id, bus=change.bus, before=change.before_w, after=change.after_w, reason=each.reason
            )
        )
