"""``gaudi-launch doctor``: check whether this machine is ready to serve.

It also shows remedies.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.command_app import CommandApp

if TYPE_CHECKING:
    from gaudi_launch.doctor.findings import DoctorFacts, EngineFacts, Finding, Wants
    from gaudi_launch.doctor.remedies import Change, RemedyOutcome
    from gaudi_launch.host.files import Files

app = CommandApp()

_BUNDLE = typer.Option(None, "--bundle", metavar="FILE.tar.gz", help="Write all results to one file for support.")


@dataclass(frozen=True)
class _Asked:
    """The options of the command, except for the actions."""

    machine: str | None
    python: str | None
    weights: str | None
    only: tuple[str, ...]
    skip: tuple[str, ...]
    deep: bool
    wants: Wants


@dataclass(frozen=True)
class _Shown:
    """Options of the display; ``everything``: also findings that need no attention."""

    as_json: bool
    everything: bool
    verbose: bool


@app.command()
def doctor(
    machine: str | None = typer.Option(
        None, "--machine", metavar="FILE|simulated:NAME", help="Check a snapshot or a simulated machine."
    ),
    only: str = typer.Option("", "--only", metavar="ID,..", help="Only these checks or areas (see --list)."),
    skip: str = typer.Option("", "--skip", metavar="ID,..", help="Leave these checks or areas out."),
    show_list: bool = typer.Option(False, "--list", help="List all checks and run none."),
    deep: bool = typer.Option(False, "--deep", help="Also run long tests that use the cards."),
    strict: bool = typer.Option(False, "--strict", help="Warnings count as failures in the exit code."),
    python: str | None = typer.Option(None, "--python", help="The engine's interpreter."),
    weights: str | None = typer.Option(None, "-w", "--weights", metavar="FOLDER", help="Check this model folder."),
    port: int | None = typer.Option(None, "--port", min=1, max=65535, help="Check that this port is free."),
    cards: int | None = typer.Option(None, "-n", "--cards", min=1, help="Cards that the launch needs."),
    modules: str | None = typer.Option(None, "-m", "--modules", metavar="0,1,..", help="Selected module IDs."),
    nodes: int = typer.Option(1, "--nodes", min=1, help="Number of servers."),
    hugepages: int | None = typer.Option(
        None, "--hugepages", min=1, help="Expected 2 MiB huge pages (default: 15000 for eight cards)."
    ),
    image: str | None = typer.Option(None, "--image", help="Container image that will run the engine."),
    fix: bool = typer.Option(False, "--fix", help="Apply the reversible repairs, after a confirmation."),
    undo: bool = typer.Option(False, "--undo", help="Revert the changes of --fix."),
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask for confirmation."),
    bundle: Path | None = _BUNDLE,
    keep_names: bool = typer.Option(False, "--keep-names", help="Leave names and addresses in the bundle."),
    show_everything: bool = typer.Option(False, "--all", help="Also show the passed and skipped checks."),
    verbose: bool = typer.Option(False, "-v", "--verbose", help="Details of every check."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Check BIOS, OS, memory, driver, cards, network, containers, engine, weights and cache; change nothing
    unless --fix is given. Exit code 0: no failures, 3: this machine cannot serve."""
    from gaudi_launch.doctor.findings import Wants
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.planning.placement import parse_modules

    if sum((fix, undo, show_list, bundle is not None)) > 1:
        raise LaunchError("doctor.fix.both", ExitCode.USAGE)
    if machine is not None and (fix or undo):
        raise LaunchError("doctor.fix.machine", ExitCode.USAGE, machine=machine)
    if as_json and fix and not yes:
        raise LaunchError("doctor.fix.json", ExitCode.USAGE)
    wants = Wants(
        cards=cards,
        modules=parse_modules(modules) if modules is not None else (),
        nodes=nodes,
        port=port,
        hugepages=hugepages,
        container=image is not None,
        image=image,
    )
    asked = _Asked(machine, python, weights, _words(only), _words(skip), deep, wants)
    # whoever names checks wants to see each of them
    shown = _Shown(as_json, everything=show_everything or verbose or bool(only), verbose=verbose)
    if show_list:
        _list(asked, as_json)
    elif undo:
        _undo(as_json)
    elif fix:
        _fix(asked, yes, as_json, verbose, strict)
    else:
        _check(asked, shown, strict, bundle, keep_names)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _collect(asked: _Asked) -> DoctorFacts:
    """Return the inputs of the checks, read once."""
    from gaudi_launch.doctor.findings import DoctorFacts
    from gaudi_launch.doctor.weights import read_weights
    from gaudi_launch.host import hl_smi
    from gaudi_launch.host.files import FolderFiles
    from gaudi_launch.host.host_config import load_config
    from gaudi_launch.host.machine import SIMULATED, load

    host, config = load(asked.machine), load_config(asked.machine)
    ask = hl_smi.find() if asked.machine is None else None
    files: Files | None = FolderFiles(Path(config.root)) if asked.machine is None else None
    if asked.machine is not None and asked.machine.startswith(SIMULATED):
        from gaudi_launch.host.simulated import build

        built = build(asked.machine.removeprefix(SIMULATED))
        ask = built.ask if built.hl_smi is not None else None
        files = built.view
    return DoctorFacts(
        host,
        config,
        asked.wants,
        engine=_engine(asked.python, live=asked.machine is None),
        weights=read_weights(asked.weights) if asked.weights else None,
        ask=ask,
        live=asked.machine is None,
        files=files,
    )


def _engine(python: str | None, live: bool) -> EngineFacts | None:
    """Return the facts of the interpreter.

    Without --python only an installed engine counts, and only on this machine.
    """
    from gaudi_launch.doctor.findings import EngineFacts
    from gaudi_launch.engines.detect import detect
    from gaudi_launch.errors import ExitCode, LaunchError

    if python is None and not live:
        return None
    try:
        found = detect(python)
    except LaunchError as error:
        if python is None:
            return None
        if error.exit_code is ExitCode.USAGE and error.id == "engines.no_python":
            raise
        return EngineFacts(python, problem=str(error))
    if found is None or (python is None and not found.engine):
        return None
    from gaudi_launch.app.prepare import engine_facts

    return engine_facts(found)


def _run(asked: _Asked, facts: DoctorFacts, show: Any = None) -> list[Finding]:
    from gaudi_launch.doctor import runner

    levels = ("quick", "slow", "deep") if asked.deep else ("quick", "slow")
    checks = runner.select(asked.only, asked.skip, levels)
    return runner.run(checks, facts, named=asked.only, on_finding=show)


def _report(facts: DoctorFacts, findings: Sequence[Finding], strict: bool) -> dict[str, Any]:
    from gaudi_launch.doctor import runner

    host = facts.host
    return {
        "schema": 1,
        "machine": {
            "origin": host.origin,
            "root": host.root,
            "hostname": host.hostname,
            "product": host.product,
            "os": host.os_name,
            "kernel": host.kernel,
            "driver": host.driver_version,
            "hl_smi": host.hl_smi_version,
            "cards": len(host.cards),
            "in_container": host.in_container,
            "virtual_machine": host.virtual_machine,
        },
        "findings": [finding.to_json() for finding in findings],
        "summary": dict(runner.summary(findings)),
        "exit_code": int(runner.exit_code(findings, strict)),
    }


def _check(asked: _Asked, shown: _Shown, strict: bool, bundle: Path | None, keep_names: bool) -> None:
    from gaudi_launch.app.steps import step
    from gaudi_launch.cli.console import console, emit_json
    from gaudi_launch.cli.views import doctor as doctor_view
    from gaudi_launch.doctor import runner

    runner.select(asked.only, asked.skip)  # unknown names are refused here, before anything is read
    with step("screen.step_machine"):
        facts = _collect(asked)
    with step("screen.step_checks"):
        findings = _run(asked, facts)
    if shown.as_json:
        emit_json(_report(facts, findings, strict))
    else:
        out = console()
        doctor_view.show_head(out, facts)
        doctor_view.show_findings(out, findings, everything=shown.everything, verbose=shown.verbose)
        partial = bool(asked.only or asked.skip)
        doctor_view.show_verdict(out, facts, findings, partial=partial, folded=not shown.everything)
    if bundle is not None:
        _bundle(facts, _report(facts, findings, strict), bundle, keep_names)
    raise typer.Exit(int(runner.exit_code(findings, strict)))


def _bundle(facts: DoctorFacts, report: Mapping[str, Any], path: Path, keep_names: bool) -> None:
    import getpass

    from gaudi_launch.doctor import bundle
    from gaudi_launch.host import host_config, snapshot
    from gaudi_launch.messages import text

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    # "root" identifies no person, and a host with a common English name would turn the text into
    # brackets
    names = tuple(n for n in (facts.host.hostname, user) if n and n not in ("root", "localhost") and len(n) > 2)
    files = bundle.contents(
        snapshot.to_json(facts.host), host_config.to_json(facts.config), report, bundle.Redactor(keep_names, names)
    )
    bundle.write(path, files)
    kept = text("doctor.bundle.names_kept") if keep_names else text("doctor.bundle.names_removed")
    typer.echo(text("doctor.bundle.written", path=str(path), files=len(files), names=kept), err=True)


def _list(asked: _Asked, as_json: bool) -> None:
    from gaudi_launch.cli.console import console, emit_json, table
    from gaudi_launch.doctor import runner
    from gaudi_launch.messages import text

    checks = runner.select(asked.only, asked.skip)
    if as_json:
        rows = [
            {
                "id": check.id,
                "level": check.level,
                "title": check.title.render(),
                "why": check.why.render(),
                "source": check.source,
                "needs": list(check.needs),
            }
            for check in checks
        ]
        emit_json({"schema": 1, "checks": rows})
        return
    cells = [(check.id, check.level, check.title.render(), ", ".join(check.needs)) for check in checks]
    console().print(table("", text("doctor.list.columns").split("|"), cells))


def _fix(asked: _Asked, yes: bool, as_json: bool, verbose: bool, strict: bool) -> None:
    from gaudi_launch.cli.console import console, emit_json
    from gaudi_launch.cli.views import doctor as doctor_view
    from gaudi_launch.doctor import remedies, runner
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text

    facts = _collect(asked)
    # nothing that a fix changes needs hl-smi again or the cards
    before = _run(replace(asked, deep=False), facts)
    if facts.host.in_container and any(f.remedy and f.remedy.fix for f in before):
        raise LaunchError("doctor.fix.container", ExitCode.MACHINE)
    root = Path(facts.config.root)
    changes = remedies.planned(before, facts.config, asked.wants)
    out = console(stderr=as_json)
    if not changes:
        out.print(text("doctor.fix.nothing"))
        outcomes: list[RemedyOutcome] = []
    else:
        doctor_view.show_changes(out, root, changes)
        _stop_without_rights(root, changes, before)
        if not _agreed(yes):
            out.print(text("doctor.fix.declined"))
            raise typer.Exit(int(ExitCode.DONE))
        outcomes = remedies.apply(root, changes)
    after_facts = _collect(asked) if changes else facts
    after = _run(replace(asked, deep=False), after_facts) if changes else before
    failed = any(outcome.status == "failed" for outcome in outcomes)
    if as_json:
        report = _report(after_facts, after, strict)
        report["fixed"] = doctor_view.fixed_rows(before, after)
        report["changes"] = [_outcome_json(outcome) for outcome in outcomes]
        emit_json(report)
    else:
        doctor_view.show_outcomes(out, outcomes)
        doctor_view.show_again(out, before, after, changes)
        if verbose:
            for finding in after:
                doctor_view.show_row(out, finding, verbose)
        doctor_view.show_verdict(out, after_facts, after, partial=bool(asked.only or asked.skip))
    raise typer.Exit(int(ExitCode.FAILED if failed else runner.exit_code(after, strict)))


def _agreed(yes: bool) -> bool:
    """Return whether the user agrees: by --yes, or at the terminal.

    Raises LaunchError without a terminal.
    """
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text

    if yes:
        return True
    if not sys.stdin.isatty():
        raise LaunchError("doctor.fix.no_answer", ExitCode.USAGE)
    return typer.confirm(text("doctor.fix.ask"), default=False, err=True)


def _stop_without_rights(root: Path, changes: Sequence[Change], findings: Sequence[Finding]) -> None:
    """Stop before the first write if a right is missing, and show the commands."""
    from gaudi_launch.doctor import remedies
    from gaudi_launch.errors import ExitCode, LaunchError

    refused = remedies.refused(root, changes)
    if not refused:
        return
    fixes = {change.fix for change in changes}
    commands = ["sudo gaudi-launch doctor --fix"]
    for finding in findings:
        if finding.remedy and finding.remedy.fix in fixes and finding.status in ("warn", "fail"):
            commands += [c for c in (*finding.remedy.commands, *finding.remedy.persist) if c not in commands]
    shown = ", ".join(refused[:3]) + (f" (+{len(refused) - 3})" if len(refused) > 3 else "")
    raise LaunchError("doctor.fix.root", ExitCode.FAILED, detail="\n".join(f"  {c}" for c in commands), paths=shown)


def _outcome_json(outcome: RemedyOutcome) -> dict[str, Any]:
    return {
        "path": f"/{outcome.path}",
        "status": outcome.status,
        "before": outcome.before,
        "after": outcome.after,
        "reason": outcome.reason,
    }


def _undo(as_json: bool) -> None:
    from gaudi_launch import paths
    from gaudi_launch.cli.console import console, emit_json
    from gaudi_launch.cli.views import doctor as doctor_view
    from gaudi_launch.doctor import remedies
    from gaudi_launch.errors import ExitCode
    from gaudi_launch.messages import text

    root = paths.machine_root()
    outcomes = remedies.undo(root)
    failed = any(outcome.status == "failed" for outcome in outcomes)
    code = ExitCode.FAILED if failed else ExitCode.DONE
    if as_json:
        changes = [_outcome_json(outcome) for outcome in outcomes]
        emit_json({"schema": 1, "changes": changes, "exit_code": int(code)})
    elif outcomes:
        doctor_view.show_outcomes(console(), outcomes)
    else:
        typer.echo(text("doctor.undo.nothing", root=str(root)))
    raise typer.Exit(int(code))
