"""The use cases of ``gaudi-launch doctor``: check, repair, undo, collect.

Results are collected for support.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gaudi_launch.commands.doctor import remedies
from gaudi_launch.commands.doctor.remedies import Change, RemedyOutcome
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.steps import step
from gaudi_launch.core.doctor import runner
from gaudi_launch.core.doctor.findings import (
    DoctorFacts,
    EngineFacts,
    Finding,
    GatewayFacts,
    Wants,
    Weights,
)
from gaudi_launch.core.doctor.weights import read_weights
from gaudi_launch.core.engines.doctor_facts import engine_facts
from gaudi_launch.core.engines.entries import detect_engine, exact_name, installation
from gaudi_launch.core.host import hl_smi, host_config, snapshot
from gaudi_launch.core.host.files import Files, FolderFiles
from gaudi_launch.core.host.host_config import load_config
from gaudi_launch.core.host.machine import SIMULATED, load
from gaudi_launch.core.host.simulated import build
from gaudi_launch.core.models.config import looks_like_hub_id

_log = logging.getLogger(__name__)

_SHOWN_PATHS = 3


@dataclass(frozen=True)
class DoctorRequest:
    """The inputs of the checks: machine, engine, model folder, selection, launch."""

    machine: str | None = None
    python: str | None = None
    weights: str | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    wants: Wants = field(default_factory=Wants)

    @property
    def partial(self) -> bool:
        """Report whether only some checks run."""
        return bool(self.only or self.skip)


@dataclass(frozen=True)
class DoctorReport:
    """The facts of a machine and what the checks found in them."""

    facts: DoctorFacts
    findings: tuple[Finding, ...]

    def exit_code(self, strict: bool) -> ExitCode:
        """Return the exit code; ``strict``: warnings count as failures."""
        return runner.exit_code(self.findings, strict)


@dataclass(frozen=True)
class FixPlan:
    """The repairs that the findings ask for."""

    request: DoctorRequest
    before: DoctorReport
    changes: tuple[Change, ...]

    @property
    def root(self) -> Path:
        """Return the folder that is used as ``/``."""
        return Path(self.before.facts.config.root)


@dataclass(frozen=True)
class FixResult:
    """The result of each repair, and the findings after them."""

    plan: FixPlan
    outcomes: tuple[RemedyOutcome, ...]
    after: DoctorReport

    def exit_code(self, strict: bool) -> ExitCode:
        """Return failed when a repair failed, else the exit code of the findings."""
        if has_failed(self.outcomes):
            return ExitCode.FAILED
        return self.after.exit_code(strict)


def has_failed(outcomes: Sequence[RemedyOutcome]) -> bool:
    """Report whether any change failed."""
    return any(outcome.status == "failed" for outcome in outcomes)


def check(request: DoctorRequest) -> DoctorReport:
    """Read the machine and run the checks.

    Raises LaunchError (USAGE) for an unknown check before that.
    """
    runner.select(request.only, request.skip)
    with step("screen.step_machine"):
        facts = collect(request)
    with step("screen.step_checks"):
        return _run(request, facts)


def _run(request: DoctorRequest, facts: DoctorFacts) -> DoctorReport:
    checks = runner.select(request.only, request.skip)
    return DoctorReport(facts, tuple(runner.run(checks, facts, named=request.only)))


def _weights(path: str) -> Weights:
    """Return the facts of a model's folder, or why its hub refused it."""
    from gaudi_launch.core.models.hub.local import find_local
    from gaudi_launch.core.planning.known_model import known_model

    found = None
    if looks_like_hub_id(path) and not Path(path).is_dir():
        found = find_local(path)
        unread = known_model(path, must_exist=False).unread
        if found is None and unread is not None:
            return Weights(path, problem=unread.render().rstrip(".。"))
    return read_weights(str(found or path))


def collect(request: DoctorRequest) -> DoctorFacts:
    """Read everything that the checks look at, once. Raises LaunchError."""
    machine, live = request.machine, request.machine is None
    host, config = load(machine), load_config(machine)
    ask = hl_smi.find() if live else None
    files: Files | None = FolderFiles(Path(config.root)) if live else None
    if machine is not None and machine.startswith(SIMULATED):
        built = build(machine.removeprefix(SIMULATED))
        ask = built.ask if built.hl_smi is not None else None
        files = built.view
    return DoctorFacts(
        host,
        config,
        request.wants,
        engine=_engine(request, serves=live and bool(host.cards) and not request.wants.image),
        weights=_weights(request.weights) if request.weights else None,
        ask=ask,
        live=live,
        files=files,
        gateway=_gateway() if live else None,
    )


def _gateway() -> GatewayFacts | None:
    """Return what `setup gateway` installed here; None where it was not run."""
    made = installation("gateway")
    folder = made.environment()
    if not folder.is_dir():
        return None
    return GatewayFacts(str(folder), made.expected, made.answer())


def _engine(request: DoctorRequest, *, serves: bool) -> EngineFacts | None:
    """Return what the interpreter has.

    Without --python and without an engine only where ``serves``: serve would stop there.
    """
    from gaudi_launch.core.engines.conditions import Condition, of_packages
    from gaudi_launch.core.engines.pins import compare_pins

    python = request.python
    if python is None and request.machine is not None:
        return None
    try:
        found = detect_engine(python)
    except LaunchError as error:
        if python is None:
            _log.debug("no interpreter to check: %s", error)
            return None
        if error.exit_code is ExitCode.USAGE and error.id == "engines.no_python":
            raise
        return EngineFacts(python, problem=str(error))
    if found is None or (python is None and not found.engine and not serves):
        return None
    known: tuple[Condition, ...] = ()
    if found.engine:
        known = of_packages(exact_name(found), found.packages)
    sentences = tuple(each.sentence for each in known)
    return replace(engine_facts(found), pins=compare_pins(found), conditions=sentences)


def plan_fix(request: DoctorRequest) -> FixPlan:
    """Check, and return the repairs that may be applied.

    Raises LaunchError inside a container.
    """
    before = _run(request, collect(request))
    facts, findings = before.facts, before.findings
    if facts.host.in_container and any(f.remedy and f.remedy.fix for f in findings):
        raise LaunchError("doctor.fix.container", ExitCode.MACHINE)
    return FixPlan(request, before, tuple(remedies.planned(findings, facts.config, request.wants)))


def check_rights(plan: FixPlan) -> None:
    """Raise LaunchError with the commands for root where a file may not be written.

    Nothing is changed.
    """
    refused = remedies.refused(plan.root, plan.changes)
    if not refused:
        return
    fixes = {change.fix for change in plan.changes}
    commands = ["sudo gaudi-launch doctor --fix"]
    for finding in plan.before.findings:
        if finding.remedy and finding.remedy.fix in fixes and finding.status in ("warn", "fail"):
            commands += (*finding.remedy.commands, *finding.remedy.persist)
    paths = ", ".join(refused[:_SHOWN_PATHS])
    if len(refused) > _SHOWN_PATHS:
        paths += f" (+{len(refused) - _SHOWN_PATHS})"
    # one finding may name a command twice: for now and for the next boot
    detail = "\n".join(f"  {command}" for command in dict.fromkeys(commands))
    raise LaunchError("doctor.fix.root", ExitCode.FAILED, detail=detail, paths=paths)


def apply(plan: FixPlan) -> FixResult:
    """Apply the repairs and check again."""
    if not plan.changes:
        return FixResult(plan, (), plan.before)
    outcomes = remedies.apply(plan.root, plan.changes)
    return FixResult(plan, tuple(outcomes), _run(plan.request, collect(plan.request)))


def undo() -> tuple[Path, Sequence[RemedyOutcome]]:
    """Revert the repairs; return the machine's root and what became of each change."""
    from gaudi_launch.core.base import paths

    root = paths.machine_root()
    return root, remedies.undo(root)


def write_bundle(
    facts: DoctorFacts, report: Mapping[str, Any], path: Path, *, keep_names: bool
) -> int:
    """Write a file for support and return the number of files in it.

    The names of the host and the user are removed unless ``keep_names``.
    """
    from gaudi_launch.commands.doctor import bundle

    redactor = bundle.redactor_of(facts.host.hostname, keep_names=keep_names)
    files = bundle.contents(
        snapshot.to_json(facts.host), host_config.to_json(facts.config), report, redactor
    )
    bundle.write(path, files)
    return len(files)
