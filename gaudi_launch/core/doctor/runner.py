"""Run checks: a fixed order, applicable ones only, time limits.

All readers get one list of findings.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.doctor import (
    cards,
    container,
    cpu,
    driver,
    engine,
    guides,
    kernel,
    memory,
    network,
    weights,
)
from gaudi_launch.core.doctor.findings import (
    LEVELS,
    STATUSES,
    Check,
    DoctorFacts,
    EngineFacts,
    Finding,
    Verdict,
    Wants,
)
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.host_config import HostConfig

_log = logging.getLogger(__name__)

# in the order in which they are shown
_AREAS = [cpu, kernel, memory, driver, cards, network, container, engine, weights]
# long ones last
CHECKS: tuple[Check, ...] = tuple(
    sorted(
        (each for area in _AREAS for each in vars(area).values() if isinstance(each, Check)),
        key=lambda check: LEVELS.index(check.level),
    )
)


def select(
    only: Collection[str] = (), without: Collection[str] = (), levels: Collection[str] = LEVELS
) -> list[Check]:
    """Return checks by ID or area, in their order.

    Raises LaunchError (USAGE) for a value that names none.
    """
    known = {check.id for check in CHECKS} | {check.area for check in CHECKS}
    for word in (*only, *without):
        if word not in known:
            areas = ", ".join(dict.fromkeys(check.area for check in CHECKS))
            raise LaunchError("doctor.unknown_check", ExitCode.USAGE, found=word, known=areas)
    return [
        check
        for check in CHECKS
        if (check.id in only or check.area in only or (not only and check.level in levels))
        and check.id not in without
        and check.area not in without
    ]


def applies(check: Check, facts: DoctorFacts, named: Collection[str] = ()) -> bool:
    """Return whether this check applies.

    Its inputs are given, or it (or its area) was named.
    """
    told = {
        "engine": facts.engine is not None,
        "weights": facts.weights is not None,
        "image": facts.wants.image is not None,
        "port": facts.wants.port is not None,
        "gateway": facts.gateway is not None,
        "named": bool(facts.config.packages),
    }
    return (
        check.id in named
        or check.area in named
        or all(told[need] for need in check.needs if need in told)
    )


_NEEDS = {
    "gaudi": "doctor.needs.gaudi",
    "cards": "doctor.needs.cards",
    "engine": "doctor.needs.engine",
    "weights": "doctor.needs.weights",
    "image": "doctor.needs.image",
    "port": "doctor.needs.port",
}


def _barred(check: Check, facts: DoctorFacts) -> Verdict | None:
    """Return why a probe may not run."""
    has = {
        "gaudi": facts.gaudi,
        "cards": bool(facts.host.cards),
        "engine": facts.engine is not None,
        "weights": facts.weights is not None,
        "image": facts.wants.image is not None,
        "port": facts.wants.port is not None,
    }
    for need in check.needs:
        if has.get(need, True):
            continue
        if need == "cards" and not facts.gaudi:
            need = "gaudi"
        return Verdict.skip(_NEEDS[need])
    return None


def judge(check: Check, facts: DoctorFacts) -> Finding:
    """Return the finding of one check on one machine.

    Never raises: a probe that breaks has no result.
    """
    verdict = _barred(check, facts)
    if verdict is None:
        try:
            verdict = check.probe(facts)
        except Exception as error:
            _log.debug("the check %s failed", check.id, exc_info=True)
            verdict = Verdict.unknown("doctor.broken", error=f"{type(error).__name__}: {error}")
    return _finding(check, facts, verdict)


def _finding(check: Check, facts: DoctorFacts, verdict: Verdict) -> Finding:
    return Finding(
        id=check.id,
        title=check.title,
        why=check.why,
        source=check.source,
        on_host="host" in check.needs and bool(facts.host.in_container),
        **vars(verdict),
    )


def run(
    checks: Sequence[Check],
    facts: DoctorFacts,
    *,
    named: Collection[str] = (),
) -> list[Finding]:
    """Return all findings in the order of the checks.

    Slow checks run in parallel with the fast ones.
    """
    wanted = [check for check in checks if applies(check, facts, named)]
    slow = {check.id: _start(check, facts) for check in wanted if check.level == "slow"}
    findings = []
    for check in wanted:
        if check.level == "quick":
            finding = judge(check, facts)
        else:
            finding = _await(slow.get(check.id) or _start(check, facts), check, facts)
        findings.append(finding)
    return guides.with_boot_steps(facts, findings)


_Started = tuple[threading.Thread, list[Finding]]


def _start(check: Check, facts: DoctorFacts) -> _Started:
    findings: list[Finding] = []
    return in_background(lambda: findings.append(judge(check, facts))), findings


def _await(started: _Started, check: Check, facts: DoctorFacts) -> Finding:
    worker, findings = started
    worker.join(check.seconds)
    if findings:
        return findings[0]
    return _finding(check, facts, Verdict.unknown("doctor.timeout", seconds=f"{check.seconds:g}"))


def quick(
    host: Host, config: HostConfig, wants: Wants | None = None, engine: EngineFacts | None = None
) -> list[Finding]:
    """Return the fast checks for ``serve`` and ``plan``.

    No process is started and no file read. With ``wants.gaudi`` False (the embedded CPU engine)
    nothing about cards or their host is checked.
    """
    facts = DoctorFacts(host, config, wants or Wants(), engine)
    checks = select(levels=("quick",))
    if not facts.wants.gaudi:
        checks = [
            c
            for c in checks
            if c.area in ("network", "engine", "weights", "cache") and "gaudi" not in c.needs
        ]
    return run(checks, facts)


def summary(findings: Iterable[Finding]) -> Mapping[str, int]:
    """Return the number of findings by status, every status named."""
    count = Counter(finding.status for finding in findings)
    return {status: count[status] for status in STATUSES}


def exit_code(findings: Iterable[Finding], strict: bool = False) -> ExitCode:
    """Return MACHINE for any failure (``strict``: also any warning), else DONE."""
    bad = {"fail", "warn"} if strict else {"fail"}
    if any(finding.status in bad for finding in findings):
        return ExitCode.MACHINE
    return ExitCode.DONE


def stop_on_failures(findings: Iterable[Finding]) -> None:
    """Raise LaunchError (MACHINE) that names every failure, if any.

    ``serve`` calls it before it starts anything.
    """
    failed = [finding for finding in findings if finding.status == "fail"]
    if failed:
        lines = "\n".join(f"  {finding.id}: {finding.message.render()}" for finding in failed)
        ids = ",".join(finding.id for finding in failed)
        raise LaunchError(
            "doctor.stops", ExitCode.MACHINE, detail=lines, count=len(failed), ids=ids
        )
