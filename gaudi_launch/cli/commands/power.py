"""``gaudi-launch power``: power and energy as measured, and power limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.optional import mapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gaudi_launch.doctor.power_limit import CapChange, CapOutcome

app = CommandApp()


@app.command()
def power(
    cap: int | None = typer.Option(
        None, "--cap", metavar="W", help="Set the power limit of the cards, in W."
    ),
    modules: str | None = typer.Option(
        None, "-m", "--modules", metavar="0,1,..", help="With --cap: only these modules."
    ),
    undo: bool = typer.Option(False, "--undo", help="Restore the limits that --cap changed."),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="With --cap: print the commands, change nothing."
    ),
    yes: bool = typer.Option(False, "-y", "--yes", help="Change the limits without confirmation."),
    days: int = typer.Option(7, "--days", metavar="N", help="Energy of the last N days."),
    machine: str | None = typer.Option(
        None,
        "--machine",
        metavar="FILE|simulated:NAME",
        help="Cards of a snapshot or simulated machine.",
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Show W of cards and services, joules per token and the energy of each day; set power limits.

    Only measured values count. A limit is set by hl-smi's documented option, recorded in the
    doctor's journal, and restored by --undo. A product without a documented range is refused.
    """
    from gaudi_launch.app import power as case
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.power import show, to_json
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.planning.placement import parse_modules

    if cap is not None and undo:
        raise LaunchError("power.cap_or_undo", ExitCode.USAGE)
    if cap is None and (modules is not None or dry_run):
        raise LaunchError("power.needs_cap", ExitCode.USAGE)
    if machine is not None and (undo or (cap is not None and not dry_run)):
        raise LaunchError("power.not_this_machine", ExitCode.USAGE)
    if undo:
        return _finish(case.undo_caps(), as_json)
    if cap is None:
        report = case.report(machine, days)
        if as_json:
            return emit_json(to_json(report))
        return show(report)
    changes = case.planned_cap(cap, mapped(parse_modules, modules), machine)
    if dry_run:
        return _show_commands(changes, as_json)
    _confirm(changes, yes)
    return _finish(case.set_cap(changes), as_json)


def _show_commands(changes: Sequence[CapChange], as_json: bool) -> None:
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.power import commands

    lines = commands(changes)
    if as_json:
        emit_json({"schema": 1, "commands": lines})
    else:
        print("\n".join(lines))


def _confirm(changes: Sequence[CapChange], yes: bool) -> None:
    import sys

    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text

    if yes:
        return
    if not sys.stdin.isatty():
        raise LaunchError("power.yes", ExitCode.USAGE, count=len(changes))
    watts = changes[0].after_w
    if not typer.confirm(text("power.confirm", count=len(changes), watts=watts), err=True):
        raise typer.Exit(int(ExitCode.INTERRUPTED))


def _finish(outcomes: Sequence[CapOutcome], as_json: bool) -> None:
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.power import outcomes_to_json, show_outcomes
    from gaudi_launch.errors import ExitCode

    if as_json:
        emit_json(outcomes_to_json(outcomes))
    else:
        show_outcomes(outcomes)
    if any(each.status == "failed" for each in outcomes):
        raise typer.Exit(int(ExitCode.FAILED))
