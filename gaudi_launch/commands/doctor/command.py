"""``gaudi-launch doctor``: check whether this machine is ready to serve.

It also shows remedies.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.machine_option import MACHINE
from gaudi_launch.cli.table import listed
from gaudi_launch.core.base.errors import ExitCode, LaunchError

if TYPE_CHECKING:
    from gaudi_launch.commands.doctor.case import DoctorRequest

app = CommandApp()

_BUNDLE = typer.Option(
    None, "--bundle", metavar="FILE.tar.gz", help="Write all results to one file for support."
)


@app.command()
def doctor(
    machine: str | None = MACHINE,
    only: str = typer.Option(
        "", "--only", metavar="ID,..", help="Only these checks or areas (see --list)."
    ),
    skip: str = typer.Option(
        "", "--skip", metavar="ID,..", help="Leave these checks or areas out."
    ),
    show_list: bool = typer.Option(
        False, "--list", help="List all checks, or the steps of --deep; run none."
    ),
    deep: bool = typer.Option(
        False, "--deep", help="Run the acceptance test of the cards; an interrupted one resumes."
    ),
    level: int = typer.Option(
        1, "--level", metavar="1|2|3", help="With --deep: about 2, 15 or 60 minutes."
    ),
    compare: list[str] = typer.Option(
        [],
        "--compare",
        metavar="FILE",
        help="Compare an acceptance test with the last one, or two with each other.",
    ),
    force: bool = typer.Option(
        False, "--force", help="With --deep: run although a service is ready."
    ),
    strict: bool = typer.Option(
        False, "--strict", help="Warnings count as failures in the exit code."
    ),
    python: str | None = typer.Option(
        None, "--python", metavar="PATH", help="The engine's interpreter."
    ),
    weights: str | None = typer.Option(
        None,
        "-w",
        "--weights",
        metavar="FOLDER",
        help="Check this model folder; with --deep and level 3: serve it.",
    ),
    port: int | None = typer.Option(
        None, "--port", metavar="PORT", min=1, max=65535, help="Check that this port is free."
    ),
    cards: int | None = typer.Option(
        None,
        "-n",
        "--cards",
        metavar="N",
        min=1,
        help="Cards that the launch needs; with --deep: number of cards.",
    ),
    modules: str | None = typer.Option(
        None, "-m", "--modules", metavar="LIST", help="Selected module IDs."
    ),
    nodes: int = typer.Option(1, "--nodes", metavar="N", min=1, help="Number of servers."),
    hugepages: int | None = typer.Option(
        None,
        "--hugepages",
        metavar="N",
        min=1,
        help="Expected 2 MiB huge pages (default: 15000 for eight cards).",
    ),
    image: str | None = typer.Option(
        None, "--image", metavar="IMAGE", help="Container image that will run the engine."
    ),
    fix: bool = typer.Option(
        False, "--fix", help="Apply the reversible repairs, after a confirmation."
    ),
    undo: bool = typer.Option(False, "--undo", help="Revert the changes of --fix."),
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask for confirmation."),
    bundle: Path | None = _BUNDLE,
    keep_names: bool = typer.Option(
        False, "--keep-names", help="Leave names and addresses in the bundle."
    ),
    show_everything: bool = typer.Option(
        False, "--all", help="Also show the passed and skipped checks."
    ),
    verbose: bool = typer.Option(False, "-v", "--verbose", help="Details of every check."),
    as_json: bool = JSON,
) -> None:
    """Check BIOS, OS, memory, driver, cards, network, containers, engine, weights and cache;
    change nothing unless --fix is given. Exit code 0: no failures, 3: this machine cannot
    serve."""
    from gaudi_launch.commands.doctor import case as use_case
    from gaudi_launch.commands.doctor import view
    from gaudi_launch.commands.doctor.case import DoctorRequest
    from gaudi_launch.core.doctor import runner
    from gaudi_launch.core.doctor.findings import Wants
    from gaudi_launch.core.planning.parse import parse_modules

    if sum((fix, undo, show_list, bundle is not None)) > 1:
        raise LaunchError("doctor.fix.both", ExitCode.USAGE)
    if fix or undo:
        _check_repair(machine, asks=as_json and fix and not yes)
    runs = sum((deep, len(compare)))
    if runs > 2:
        raise LaunchError("doctor.compared", ExitCode.USAGE, found=runs)
    wants = Wants(
        cards=cards,
        modules=parse_modules(modules) if modules is not None else (),
        nodes=nodes,
        port=port,
        hugepages=hugepages,
        container=image is not None,
        image=image,
    )
    request = DoctorRequest(machine, python, weights, _words(only), _words(skip), wants)
    if deep:
        test = listed("deep test")
        options = {"level": level, "force": force, "strict": strict, "against": compare}
        options |= {"show_list": show_list, "complete": show_everything}
        raise typer.Exit(test(request, **options, as_json=as_json))
    if compare:
        listed("compared tests")(compare, as_json, complete=show_everything)
        return
    if show_list:
        checks = runner.select(request.only, request.skip)
        complete = show_everything or bool(only)
        view.show_checks(checks, complete=complete, as_json=as_json)
        return
    if undo:
        raise typer.Exit(int(view.show_undone(*use_case.undo(), as_json)))
    if fix:
        raise typer.Exit(_fix(request, yes=yes, as_json=as_json, verbose=verbose, strict=strict))
    # whoever names checks wants to see each of them
    everything = show_everything or verbose or bool(only)
    report = use_case.check(request)
    view.show_report(
        report,
        everything=everything,
        verbose=verbose,
        partial=request.partial,
        strict=strict,
        as_json=as_json,
    )
    if bundle is not None:
        document = view.report_json(report, strict)
        files = use_case.write_bundle(report.facts, document, bundle, keep_names=keep_names)
        view.show_bundle(bundle, files, keep_names)
    raise typer.Exit(int(report.exit_code(strict)))


def _check_repair(machine: str | None, *, asks: bool) -> None:
    """Raise LaunchError (USAGE) for another machine, or a question with --json."""
    if machine is not None:
        raise LaunchError("doctor.fix.machine", ExitCode.USAGE, machine=machine)
    if asks:
        raise LaunchError("doctor.fix.json", ExitCode.USAGE)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _fix(request: DoctorRequest, *, yes: bool, as_json: bool, verbose: bool, strict: bool) -> int:
    """Apply the repairs after a confirmation, and return the exit code."""
    from gaudi_launch.commands.doctor import case as use_case
    from gaudi_launch.commands.doctor import view

    plan = use_case.plan_fix(request)
    view.show_planned(plan, as_json)
    if plan.changes:
        use_case.check_rights(plan)
        if not _agreed(yes):
            view.show_declined(as_json)
            return 0
    result = use_case.apply(plan)
    view.show_fixed(result, strict=strict, verbose=verbose, as_json=as_json)
    return int(result.exit_code(strict))


def _agreed(yes: bool) -> bool:
    """Return whether the user agrees: by --yes, or at the terminal.

    Raises LaunchError without a terminal.
    """
    from gaudi_launch.core.base.messages import text

    if yes:
        return True
    if not sys.stdin.isatty():
        raise LaunchError("doctor.fix.no_answer", ExitCode.USAGE)
    return typer.confirm(text("doctor.fix.ask"), default=False, err=True)
