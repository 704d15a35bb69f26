"""The doctor's findings and changes, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import beside, console, emit_json, table
from gaudi_launch.commands.doctor import remedies
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.doctor import guides, runner
from gaudi_launch.core.doctor.findings import shown
from gaudi_launch.core.host.files import printable

if TYPE_CHECKING:
    from rich.console import Console

    from gaudi_launch.commands.doctor.case import DoctorReport, FixPlan, FixResult
    from gaudi_launch.commands.doctor.remedies import Change, RemedyOutcome
    from gaudi_launch.core.base.errors import ExitCode
    from gaudi_launch.core.doctor.findings import Check, DoctorFacts, Finding

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim", "unknown": "magenta"}
# reasons to skip all checks of an area: the row of cards.present or driver.loaded shows it already
_SAID_ONCE = ("doctor.needs.gaudi", "doctor.needs.cards", "doctor.needs.driver")
_INDENT = 10
_WORD_WIDTH = 7
_ID_WIDTH = 28
# below it, columns only waste space
_WIDE = 60


@dataclass(frozen=True)
class HowShown:
    """Options of the display.

    ``everything``: also findings that need no attention; ``partial``: only some checks ran.
    """

    everything: bool
    verbose: bool
    partial: bool


def report_json(report: DoctorReport, strict: bool) -> dict[str, Any]:
    """Return the findings for programs."""
    host = report.facts.host
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
        "findings": [finding.to_json() for finding in report.findings],
        "summary": dict(runner.summary(report.findings)),
        "exit_code": int(report.exit_code(strict)),
    }


def show_report(report: DoctorReport, how: HowShown, *, strict: bool, as_json: bool) -> None:
    """Print the machine, the findings and the verdict."""
    if as_json:
        emit_json(report_json(report, strict))
        return
    out, facts, findings = console(), report.facts, report.findings
    show_head(out, facts)
    show_findings(out, findings, everything=how.everything, verbose=how.verbose)
    show_verdict(out, facts, findings, partial=how.partial, folded=not how.everything)


def show_bundle(path: Path, files: int, kept_names: bool) -> None:
    """Print on stderr what was written for support."""
    names = text("doctor.bundle.names_kept" if kept_names else "doctor.bundle.names_removed")
    print(text("doctor.bundle.written", path=str(path), files=files, names=names), file=sys.stderr)


def show_checks(checks: Sequence[Check], as_json: bool) -> None:
    """Print the checks that exist."""
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
    cells = [
        (check.id, check.level, check.title.render(), ", ".join(check.needs)) for check in checks
    ]
    console().print(table("", text("doctor.list.columns").split("|"), cells))


def show_planned(plan: FixPlan, as_json: bool) -> None:
    """Print the repairs that are about to be applied."""
    out = console(stderr=as_json)
    if plan.changes:
        show_changes(out, plan.root, plan.changes)
    else:
        out.print(text("doctor.fix.nothing"))


def show_declined(as_json: bool) -> None:
    """Print that nothing was changed."""
    console(stderr=as_json).print(text("doctor.fix.declined"))


def show_fixed(result: FixResult, *, strict: bool, verbose: bool, as_json: bool) -> None:
    """Print what became of the repairs, and the findings after them."""
    before, after = result.plan.before.findings, result.after.findings
    if as_json:
        report = report_json(result.after, strict)
        report["fixed"] = fixed_rows(before, after)
        report["changes"] = [_outcome_json(outcome) for outcome in result.outcomes]
        emit_json(report)
        return
    out = console()
    show_outcomes(out, result.outcomes)
    show_again(out, before, after, result.plan.changes)
    if verbose:
        for finding in after:
            show_row(out, finding, verbose)
    show_verdict(out, result.after.facts, after, partial=result.plan.request.partial)


def show_undone(root: Path, outcomes: Sequence[RemedyOutcome], as_json: bool) -> ExitCode:
    """Print what became of each change that was reverted, and return the exit code."""
    from gaudi_launch.commands.doctor.case import has_failed
    from gaudi_launch.core.base.errors import ExitCode

    code = ExitCode.FAILED if has_failed(outcomes) else ExitCode.DONE
    if as_json:
        changes = [_outcome_json(outcome) for outcome in outcomes]
        emit_json({"schema": 1, "changes": changes, "exit_code": int(code)})
    elif outcomes:
        show_outcomes(console(), outcomes)
    else:
        print(text("doctor.undo.nothing", root=str(root)))
    return code


def _outcome_json(outcome: RemedyOutcome) -> dict[str, Any]:
    return {
        "path": f"/{outcome.path}",
        "status": outcome.status,
        "before": outcome.before,
        "after": outcome.after,
        "reason": outcome.reason,
    }


def _detail(out: Console, line: str, style: str | None = None) -> None:
    """Print text below a row.

    It is folded under the indent at a terminal, and never folded where a program reads.
    """
    from rich.text import Text

    indent = Text(" " * (_INDENT - 1))
    for folded in beside(indent, Text(printable(line), style=style or ""), out):
        out.print(folded)


def _command(out: Console, line: str, style: str | None = None) -> None:
    """Print a line to be copied: never folded."""
    out.print(" " * _INDENT + printable(line), style=style, soft_wrap=True)


def show_head(out: Console, facts: DoctorFacts) -> None:
    host = facts.host
    line = text(
        "doctor.show.machine",
        name=host.hostname or "?",
        origin=host.origin,
        os=host.os_name or "?",
        kernel=host.kernel or "?",
        cards=len(host.cards),
        driver=host.driver_version or "-",
    )
    out.print(printable(line))
    if host.in_container:
        out.print(text("doctor.show.inside"), style="dim")


def _word(status: str) -> str:
    words = {
        "ok": text("doctor.word.ok"),
        "warn": text("doctor.word.warn"),
        "fail": text("doctor.word.fail"),
        "skip": text("doctor.word.skip"),
        "unknown": text("doctor.word.unknown"),
    }
    return words[status]


def _padded(word: str) -> str:
    from rich.cells import cell_len

    return word + " " * max(0, _WORD_WIDTH - cell_len(word))


def show_row(out: Console, finding: Finding, verbose: bool) -> None:
    """Print one row; details only where something is to be read or done."""
    from rich.text import Text

    word = _padded(_word(finding.status))
    style = _STYLES[finding.status]
    found = shown(finding.found)
    id_width = _ID_WIDTH if out.width >= _WIDE else 0
    line = f"{finding.id:<{id_width}} {finding.title.render()}"
    if found and finding.status == "ok":
        line = text("common.pair", label=line, value=found)
    elif finding.status == "skip" and finding.message.id not in _SAID_ONCE and not verbose:
        line = text("common.pair", label=line, value=finding.message.render())
    out.print(Text.assemble((word, style), " ", printable(line)))
    if verbose or finding.status in ("warn", "fail", "unknown"):
        _detail(out, finding.message.render())
    if verbose:
        if finding.found or finding.expected:
            values = text(
                "doctor.show.values", found=found or "-", expected=shown(finding.expected) or "-"
            )
            _detail(out, values, "dim")
        why = text("doctor.show.why", why=finding.why.render(), source=finding.source)
        _detail(out, why, "dim")
    if finding.remedy is not None:
        _show_remedy(out, finding)


def _show_remedy(out: Console, finding: Finding) -> None:
    remedy = finding.remedy
    assert remedy is not None
    words = remedy.text.render()
    if finding.on_host:
        _detail(out, text("doctor.show.remedy_host", text=words))
    else:
        _detail(out, text("doctor.show.remedy", text=words))
    for command in remedy.commands:
        _command(out, "  " + text("doctor.show.now", command=command))
    for command in remedy.persist:
        _command(out, "  " + text("doctor.show.persist", command=command))
    for number, step in enumerate(remedy.steps, 1):
        _detail(out, f"  {number}. {step.render()}")
    if remedy.reboot and not remedy.steps:
        _detail(out, "  " + text("doctor.show.reboot"))
    if remedy.fix and not finding.on_host:
        _detail(out, "  " + text("doctor.show.fixable"))


def show_findings(
    out: Console, findings: Sequence[Finding], *, everything: bool, verbose: bool
) -> None:
    """Print the findings: failures first, then warnings.

    Passed and skipped ones only if ``everything`` is set.

    A folded warning is without its remedy; what had no result is one line of ids.
    """
    if everything:
        for finding in findings:
            show_row(out, finding, verbose)
        return
    for finding in _of(findings, "fail"):
        show_row(out, finding, verbose)
    for finding in _of(findings, "warn"):
        _show_folded(out, finding)
    _show_counted(out, findings)


def _of(findings: Sequence[Finding], status: str) -> list[Finding]:
    return [finding for finding in findings if finding.status == status]


def _show_folded(out: Console, finding: Finding) -> None:
    """Print a warning as its id and what was found."""
    from rich.text import Text

    sentence = printable(
        text("screen.doctor_row", check=finding.id, message=finding.message.render())
    )
    for line in beside(Text(_padded(_word("warn")), style=_STYLES["warn"]), Text(sentence), out):
        out.print(line)


def _show_counted(out: Console, findings: Sequence[Finding]) -> None:
    """Print the ids without a result, and the skipped ones by reason."""
    from rich.text import Text

    unknown = ", ".join(finding.id for finding in _of(findings, "unknown"))
    if unknown:
        rows = [("unknown", text("screen.doctor_unknown", checks=unknown))]
    else:
        rows = []
    reasons: dict[str, int] = {}
    for finding in _of(findings, "skip"):
        reason = finding.message.render()
        reasons[reason] = reasons.get(reason, 0) + 1
    rows += [
        ("skip", text("screen.doctor_skipped", count=n, reason=why)) for why, n in reasons.items()
    ]
    for status, sentence in rows:
        for line in beside(
            Text(_padded(_word(status)), style=_STYLES[status]), Text(sentence), out
        ):
            out.print(line)


def _partial_verdict(warnings: int) -> tuple[str, str]:
    """Return the sentence about selected checks without a failure, and its style."""
    if warnings:
        return text("doctor.show.partial_warnings"), "bold yellow"
    return text("doctor.show.partial"), "bold"


def show_verdict(
    out: Console,
    facts: DoctorFacts,
    findings: Sequence[Finding],
    *,
    partial: bool,
    folded: bool = False,
) -> None:
    """Print the counts, the failures by id, what they mean and the next command.

    ``partial``: only some checks ran; ``folded``: not every finding was printed.
    """
    counts = runner.summary(findings)
    failed = [finding.id for finding in _of(findings, "fail")]
    may_fix = facts.live and not facts.host.in_container
    can_fix = may_fix and bool(remedies.planned(findings, facts.config, facts.wants))
    no_cards = failed == ["cards.present"] and not facts.gaudi
    out.print()
    out.print(text("doctor.show.counts", None, **counts))
    if folded:
        id = "screen.doctor_all_warnings" if counts["warn"] else "screen.doctor_all"
        out.print(text(id), style="dim")
    if failed:
        failures = ", ".join(failed)
        out.print(text("screen.doctor_failures", checks=failures), style="bold red")
    if no_cards:
        sentence, style = text("doctor.show.no_cards"), "bold"
    elif partial and not failed:
        sentence, style = _partial_verdict(counts["warn"])
    else:
        sentence, style = _verdict(counts)
    out.print(sentence, style=style)
    if no_cards:
        command = "gaudi-launch plan -w MODEL --machine simulated:hls2"
    elif can_fix:
        command = "gaudi-launch doctor --fix"
    elif any(guides.waits_for_reboot(finding) for finding in _of(findings, "fail")):
        command = "sudo reboot"
    elif failed:
        out.print(text("doctor.show.next_read"))
        return
    elif partial:
        command = "gaudi-launch doctor"
    else:
        command = "gaudi-launch serve -w MODEL"
    out.print(text("doctor.show.next", command=command))


def _verdict(counts: Mapping[str, int]) -> tuple[str, str]:
    """Return the sentence about the result of all checks, and its style."""
    if counts["fail"]:
        return text("doctor.show.cannot"), "bold red"
    if counts["warn"]:
        return text("doctor.show.slower"), "bold yellow"
    if counts["unknown"]:
        return text("doctor.show.unsure", unknown=counts["unknown"]), "bold"
    return text("doctor.show.ready"), "bold green"


def _shown_value(value: str | None) -> str:
    if value is None:
        return text("doctor.fix.absent")
    if value.startswith("{"):
        return " ".join(value.split())
    lines = [line for line in value.strip().splitlines() if not line.startswith("#")]
    return "; ".join(lines)


def show_changes(out: Console, root: Path, changes: Sequence[Change]) -> None:
    from gaudi_launch.core.doctor.journal import journal_path

    out.print(text("doctor.fix.will", journal=str(journal_path())))
    groups: dict[tuple[str, str, str], list[Change]] = {}
    for change in changes:
        now = _shown_value(remedies.content(root, change.path))
        key = change.path if not change.kernel else change.fix
        groups.setdefault((key, now, _shown_value(change.content)), []).append(change)
    for (_, now, wanted), same in groups.items():
        values = {"path": str(root / same[0].path), "before": now, "after": wanted}
        if len(same) > 1:
            out.print("  " + text("doctor.fix.and_more", count=len(same) - 1, **values))
        else:
            out.print("  " + text("doctor.fix.write", **values))
        if same[0].program:
            out.print("  " + text("doctor.fix.program", program=same[0].program))


def show_outcomes(out: Console, outcomes: Sequence[RemedyOutcome]) -> None:
    groups: dict[tuple[str, str, str, str], list[RemedyOutcome]] = {}
    for outcome in outcomes:
        # the same change on two hundred CPUs is one line
        if outcome.path.startswith("sys/"):
            stem = "".join(c for c in outcome.path if not c.isdigit())
        else:
            stem = outcome.path
        key = (stem, outcome.status, _shown_value(outcome.before), _shown_value(outcome.after))
        groups.setdefault(key, []).append(outcome)
    for (_, status, before, after), same in groups.items():
        path = f"/{same[0].path}" + (f" (+{len(same) - 1})" if len(same) > 1 else "")
        values = {"path": path, "before": before, "after": after, "reason": same[0].reason}
        lines = {
            "changed": text("doctor.fix.result.changed", **values),
            "restored": text("doctor.fix.result.restored", **values),
            "same": text("doctor.fix.result.same", **values),
            "kept": text("doctor.fix.result.kept", **values),
            "failed": text("doctor.fix.result.failed", **values),
        }
        out.print(lines[status], style="bold red" if status == "failed" else None)


def fixed_rows(before: Sequence[Finding], after: Sequence[Finding]) -> list[dict[str, str]]:
    now = {finding.id: finding.status for finding in after}
    return [
        {"id": finding.id, "before": finding.status, "after": now.get(finding.id, "skip")}
        for finding in before
        if finding.status in ("warn", "fail") and finding.remedy and finding.remedy.fix
    ]


def show_again(
    out: Console, before: Sequence[Finding], after: Sequence[Finding], changes: Sequence[Change]
) -> None:
    rows = fixed_rows(before, after)
    if not rows or not changes:
        return
    found = {finding.id: shown(finding.found) for finding in after}
    out.print(text("doctor.fix.again"))
    for row in rows:
        line = text(
            "doctor.fix.row",
            check=row["id"],
            before=_word(row["before"]),
            after=_word(row["after"]),
            found=found.get(row["id"], "-"),
        )
        out.print(f"  {line}")
    if any(change.fix == "limits" for change in changes):
        out.print(text("doctor.fix.login"))
