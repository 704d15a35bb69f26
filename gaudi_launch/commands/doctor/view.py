"""The doctor's findings and changes, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from gaudi_launch.cli.console import beside, console, emit_json, say
from gaudi_launch.cli.short_page import SCREEN, NotedRow, ShortPage, command_line, next_line
from gaudi_launch.cli.wrapping import padded
from gaudi_launch.commands.doctor import remedies
from gaudi_launch.commands.doctor.case import DoctorReport, FixPlan, FixResult, has_failed
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import printable, text
from gaudi_launch.core.doctor import guides, runner
from gaudi_launch.core.doctor.findings import shown
from gaudi_launch.core.doctor.journal import journal_path

if TYPE_CHECKING:
    from rich.console import Console

    from gaudi_launch.commands.doctor.remedies import Change, RemedyOutcome
    from gaudi_launch.core.doctor.findings import Check, DoctorFacts, Finding

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim", "unknown": "magenta"}
# reasons to skip all checks of an area: the row of cards.present or driver.loaded shows it already
_SAID_ONCE = ("doctor.needs.gaudi", "doctor.needs.cards", "doctor.needs.driver")
_INDENT = 10
_WORD_WIDTH = 7


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


def show_report(
    report: DoctorReport,
    *,
    everything: bool,
    verbose: bool,
    partial: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Print the machine, the findings and the verdict.

    ``everything``: also findings that need no attention; ``partial``: only some checks ran.
    """
    if as_json:
        emit_json(report_json(report, strict))
        return
    out, facts, findings = console(), report.facts, report.findings
    head = [*_answer(facts, findings, partial=partial), *_machine_lines(facts)]
    if everything:
        rows = [line for each in findings for line in _row(out, each, verbose)]
    else:
        rows = _screen(out, findings, SCREEN - _rows_of(head, out))
    _print(out, [*head, *rows])


def show_bundle(path: Path, files: int, kept_names: bool) -> None:
    """Print on stderr what was written for support."""
    names = text("doctor.bundle.names_kept" if kept_names else "doctor.bundle.names_removed")
    say(text("doctor.bundle.written", path=str(path), files=files, names=names))


def show_checks(checks: Sequence[Check], *, complete: bool, as_json: bool) -> None:
    """Print the checks that exist: names by area, or with ``complete`` all titles."""
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
    areas: dict[str, list[str]] = {}
    for check in checks:
        area, _, name = check.id.partition(".")
        areas.setdefault(area, []).append(name)
    head: list[str | Text] = [text("doctor.list.answer", n=len(checks), areas=len(areas))]
    columns = text("doctor.list.columns").split("|")
    cells = [(check.id, check.title.render()) for check in checks]
    if not complete:
        head.append(next_line("gaudi-launch doctor --list --all"))
        columns = text("doctor.list.area_columns").split("|")
        cells = [(area, ", ".join(names)) for area, names in areas.items()]
    ShortPage(head, columns, [NotedRow(each) for each in cells]).show(complete=complete)


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
        _print(out, [line for each in after for line in _row(out, each, verbose)])
    partial = result.plan.request.partial
    left = [] if verbose else _of(after, "fail")
    remedies = [line for each in left for line in _failure(out, each, complete=True)]
    _print(out, [Text(), *_answer(result.after.facts, after, partial=partial), *remedies])


def show_undone(root: Path, outcomes: Sequence[RemedyOutcome], as_json: bool) -> ExitCode:
    """Print what became of each change that was reverted, and return the exit code."""
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
    return {**asdict(outcome), "path": f"/{outcome.path}"}


def _print(out: Console, lines: Sequence[Text]) -> None:
    """Print lines; those to be copied are never folded."""
    for line in lines:
        out.print(line, soft_wrap=line.no_wrap or None)


def _rows_of(lines: Sequence[Text], out: Console) -> int:
    return sum(len(out.render_lines(line, pad=False)) for line in lines)


def _detail(out: Console, line: str, style: str = "") -> list[Text]:
    """Return text below a row, folded under the indent where the console folds."""
    return beside(Text(" " * (_INDENT - 1)), Text(printable(line), style=style), out)


def _command(line: str) -> Text:
    """Return a line to be copied: never folded."""
    return command_line(" " * _INDENT + printable(line))


def _answer(facts: DoctorFacts, findings: Sequence[Finding], *, partial: bool) -> list[Text]:
    """Return the sentence about all checks, and the next command."""
    counts = runner.summary(findings)
    failed = _of(findings, "fail")
    no_cards = [each.id for each in failed] == ["cards.present"] and not facts.gaudi
    sentence, style = _verdict(counts, no_cards=no_cards, partial=partial)
    rest = [
        text(id, n=counts[status])
        for status, id in (
            ("warn", "doctor.show.warnings"),
            ("skip", "doctor.show.skipped"),
            ("unknown", "doctor.show.unknown"),
        )
        if counts[status]
    ]
    line = text("doctor.show.answer", answer=sentence, counts=text("common.between").join(rest))
    if not rest or no_cards:
        line = text("doctor.show.alone", answer=sentence)
    command = _next(facts, findings, no_cards=no_cards, partial=partial)
    if command:
        return [Text(line, style=style), next_line(command)]
    return [Text(line, style=style), Text(text("doctor.show.next_read"))]


def _verdict(counts: Mapping[str, int], *, no_cards: bool, partial: bool) -> tuple[str, str]:
    ran = counts["ok"] + counts["warn"] + counts["fail"]
    if no_cards:
        return text("doctor.show.no_cards"), "bold"
    if counts["fail"]:
        return text("doctor.show.cannot", fail=counts["fail"], ran=ran), "bold red"
    if partial:
        return text("doctor.show.partial", ran=ran), "bold"
    if counts["warn"]:
        return text("doctor.show.slower", ok=counts["ok"]), "bold yellow"
    if counts["unknown"]:
        return text("doctor.show.unsure", ok=counts["ok"]), "bold"
    return text("doctor.show.ready", ok=counts["ok"]), "bold green"


def _next(
    facts: DoctorFacts, findings: Sequence[Finding], *, no_cards: bool, partial: bool
) -> str | None:
    """Return the next command; None where the remedies have to be read."""
    failed = _of(findings, "fail")
    may_fix = facts.live and not facts.host.in_container
    if no_cards:
        return "gaudi-launch plan MODEL --machine simulated:hls2"
    if may_fix and remedies.planned(findings, facts.config, facts.wants):
        return "gaudi-launch doctor --fix"
    if any(map(guides.waits_for_reboot, failed)):
        return "sudo reboot"
    if failed:
        return None
    if partial:
        return "gaudi-launch doctor"
    return "gaudi-launch serve MODEL"


def _machine_lines(facts: DoctorFacts) -> list[Text]:
    host = facts.host
    driver, kernel = text("doctor.show.no_driver"), text("doctor.show.no_kernel")
    if host.driver_version:
        driver = text("doctor.show.driver", version=host.driver_version)
    if host.kernel:
        kernel = text("doctor.show.kernel", version=host.kernel)
    line = text(
        "doctor.show.machine",
        name=host.hostname or text("doctor.show.no_name"),
        origin=host.origin,
        os=host.os_name or text("doctor.show.no_os"),
        kernel=kernel,
        cards=len(host.cards),
        driver=driver,
    )
    lines = [Text(printable(line), style="dim")]
    if host.in_container:
        lines.append(Text(text("doctor.show.inside"), style="dim"))
    return lines


def _word(status: str) -> str:
    words = {
        "ok": text("doctor.word.ok"),
        "warn": text("doctor.word.warn"),
        "fail": text("doctor.word.fail"),
        "skip": text("doctor.word.skip"),
        "unknown": text("doctor.word.unknown"),
    }
    return words[status]


def _marked(out: Console, status: str, sentence: str) -> list[Text]:
    """Return a sentence at the right of its status, folded."""
    mark = Text(padded(_word(status), _WORD_WIDTH), style=_STYLES[status])
    return beside(mark, Text(printable(sentence)), out)


def _row(out: Console, finding: Finding, verbose: bool) -> list[Text]:
    """Return one check; details only where something is to be read or done."""
    found = shown(finding.found)
    line = finding.title.render()
    if found and finding.status == "ok":
        line = text("common.pair", label=line, value=found)
    elif finding.status == "skip" and finding.message.id not in _SAID_ONCE and not verbose:
        line = text("common.pair", label=line, value=finding.message.render())
    lines = _marked(out, finding.status, line)
    if verbose or finding.status in ("warn", "fail", "unknown"):
        lines += _detail(out, finding.message.render())
    if verbose:
        if found:
            lines += _detail(out, text("doctor.show.found", found=found), "dim")
        if finding.expected:
            expected = shown(finding.expected)
            lines += _detail(out, text("doctor.show.expected", expected=expected), "dim")
        why = text("doctor.show.why", why=finding.why.render(), source=finding.source)
        lines += _detail(out, why, "dim")
    return lines + _remedy(out, finding, complete=True)


def _remedy(out: Console, finding: Finding, *, complete: bool) -> list[Text]:
    """Return what to do; without ``complete`` the commands that work now suffice."""
    remedy = finding.remedy
    if remedy is None:
        return []
    id = "doctor.show.remedy_host" if finding.on_host else "doctor.show.remedy"
    lines = _detail(out, text(id, text=remedy.text.render()))
    for command in remedy.commands:
        lines.append(_command("  " + text("doctor.show.now", command=command)))
    if complete:
        for command in remedy.persist:
            lines.append(_command("  " + text("doctor.show.persist", command=command)))
        for number, step in enumerate(remedy.steps, 1):
            lines += _detail(out, f"  {number}. {step.render()}")
    if remedy.reboot and not remedy.steps:
        lines += _detail(out, "  " + text("doctor.show.reboot"))
    if remedy.fix and not finding.on_host:
        lines += _detail(out, "  " + text("doctor.show.fixable"))
    return lines


def _screen(out: Console, findings: Sequence[Finding], room: int) -> list[Text]:
    """Return what needs attention, in as much detail as fits.

    Failures are shown with their remedies, with the commands of these only, or as sentences;
    warnings as sentences, or by title.
    """
    failed = _of(findings, "fail")
    end = [
        *_titles(out, findings, "unknown", "screen.doctor_unknown"),
        *_skipped(out, findings),
        Text(text("screen.doctor_all"), style="dim"),
    ]
    warned = [line for each in _of(findings, "warn") for line in _sentence(out, each)]
    titles = _titles(out, findings, "warn", "screen.doctor_warned")
    complete = [line for each in failed for line in _failure(out, each, complete=True)]
    short = [line for each in failed for line in _failure(out, each, complete=False)]
    sentences = [line for each in failed for line in _sentence(out, each)]
    for failures, warnings in ((complete, warned), (complete, titles), (short, titles)):
        if _rows_of([*failures, *warnings, *end], out) <= room:
            return [*failures, *warnings, *end]
    if _rows_of([*sentences, *titles, *end], out) > room:
        sentences = _titles(out, findings, "fail", "screen.doctor_warned")
    return [*sentences, *titles, *end]


def _failure(out: Console, finding: Finding, *, complete: bool) -> list[Text]:
    return [*_sentence(out, finding), *_remedy(out, finding, complete=complete)]


def _of(findings: Sequence[Finding], status: str) -> list[Finding]:
    return [finding for finding in findings if finding.status == status]


def _sentence(out: Console, finding: Finding) -> list[Text]:
    title, found = finding.title.render(), finding.message.render()
    return _marked(out, finding.status, text("common.pair", label=title, value=found))


def _titles(out: Console, findings: Sequence[Finding], status: str, id: str) -> list[Text]:
    """Return the titles of all checks with a status, in one sentence."""
    checks = text("common.between").join(each.title.render() for each in _of(findings, status))
    if not checks:
        return []
    return _marked(out, status, text(id, checks=checks))


def _skipped(out: Console, findings: Sequence[Finding]) -> list[Text]:
    """Return the numbers of skipped checks by reason."""
    reasons: dict[str, int] = {}
    for finding in _of(findings, "skip"):
        reason = finding.message.render()
        reasons[reason] = reasons.get(reason, 0) + 1
    lines: list[Text] = []
    for reason, count in reasons.items():
        lines += _marked(out, "skip", text("screen.doctor_skipped", count=count, reason=reason))
    return lines


def _shown_value(value: str | None) -> str:
    if value is None:
        return text("doctor.fix.absent")
    if value.startswith("{"):
        return " ".join(value.split())
    lines = [line for line in value.strip().splitlines() if not line.startswith("#")]
    return "; ".join(lines)


def show_changes(out: Console, root: Path, changes: Sequence[Change]) -> None:
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
    titles = {finding.id: finding.title.render() for finding in before}
    out.print(text("doctor.fix.again"))
    for row in rows:
        line = text(
            "doctor.fix.row",
            check=titles[row["id"]],
            before=_word(row["before"]),
            after=_word(row["after"]),
            found=found.get(row["id"], "-"),
        )
        out.print(f"  {line}")
    if any(change.fix == "limits" for change in changes):
        out.print(text("doctor.fix.login"))
