"""The doctor's findings and changes, for people.

The command itself is `cli.commands.doctor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from gaudi_launch.doctor.findings import DoctorFacts, Finding
    from gaudi_launch.doctor.remedies import Change, RemedyOutcome

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim", "unknown": "magenta"}
# reasons to skip all checks of an area: the row of cards.present or driver.loaded shows it already
_SAID_ONCE = ("doctor.needs.gaudi", "doctor.needs.cards", "doctor.needs.driver")
_INDENT = 10
_WORD_WIDTH = 7
_ID_WIDTH = 28
# below it, columns only waste space
_WIDE = 60


def _detail(out: Console, line: str, style: str | None = None) -> None:
    """Print text below a row.

    It is folded under the indent at a terminal, and never folded where a program reads.
    """
    from rich.padding import Padding
    from rich.text import Text

    from gaudi_launch.host.files import printable

    if out.is_terminal:
        out.print(Padding(Text(printable(line), style=style or ""), (0, 0, 0, _INDENT), expand=False))
    else:
        _command(out, line, style)


def _command(out: Console, line: str, style: str | None = None) -> None:
    """Print a line to be copied: never folded."""
    from rich.markup import escape

    from gaudi_launch.host.files import printable

    out.print(" " * _INDENT + escape(printable(line)), style=style, soft_wrap=True)


def show_head(out: Console, facts: DoctorFacts) -> None:
    from rich.markup import escape

    from gaudi_launch.host.files import printable
    from gaudi_launch.messages import text

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
    out.print(escape(printable(line)))
    if host.in_container:
        out.print(escape(text("doctor.show.inside")), style="dim")


def _word(status: str) -> str:
    from gaudi_launch.messages import text

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
    from rich.markup import escape

    from gaudi_launch.doctor.findings import shown
    from gaudi_launch.host.files import printable
    from gaudi_launch.messages import text

    word = _padded(_word(finding.status))
    style = _STYLES[finding.status]
    found = shown(finding.found)
    id_width = _ID_WIDTH if out.width >= _WIDE else 0
    line = f"{finding.id:<{id_width}} {finding.title.render()}"
    if found and finding.status == "ok":
        line += f": {found}"
    elif finding.status == "skip" and finding.message.id not in _SAID_ONCE and not verbose:
        line += f": {finding.message.render()}"
    out.print(f"[{style}]{escape(word)}[/] {escape(printable(line))}", soft_wrap=not out.is_terminal)
    if verbose or finding.status in ("warn", "fail", "unknown"):
        _detail(out, finding.message.render())
    if verbose:
        if finding.found or finding.expected:
            values = text("doctor.show.values", found=found or "-", expected=shown(finding.expected) or "-")
            _detail(out, values, "dim")
        why = text("doctor.show.why", why=finding.why.render(), source=finding.source)
        _detail(out, why, "dim")
    if finding.remedy is not None:
        _show_remedy(out, finding)


def _show_remedy(out: Console, finding: Finding) -> None:
    from gaudi_launch.messages import text

    remedy = finding.remedy
    assert remedy is not None
    words = remedy.text.render()
    if finding.on_host:
        _detail(out, text("doctor.show.remedy_host", text=words))
    else:
        _detail(out, text("doctor.show.remedy", text=words))
    for number, step in enumerate(remedy.steps, 1):
        _detail(out, f"  {number}. {step.render()}")
    for command in remedy.commands:
        _command(out, "  " + text("doctor.show.now", command=command))
    for command in remedy.persist:
        _command(out, "  " + text("doctor.show.persist", command=command))
    if remedy.reboot and not remedy.steps:
        _detail(out, "  " + text("doctor.show.reboot"))
    if remedy.fix and not finding.on_host:
        _detail(out, "  " + text("doctor.show.fixable"))


def show_findings(out: Console, findings: Sequence[Finding], *, everything: bool, verbose: bool) -> None:
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

    from gaudi_launch.cli.console import beside
    from gaudi_launch.host.files import printable
    from gaudi_launch.messages import text

    sentence = printable(text("screen.doctor_row", check=finding.id, message=finding.message.render()))
    for line in beside(Text(_padded(_word("warn")), style=_STYLES["warn"]), Text(sentence), out):
        out.print(line, soft_wrap=not out.is_terminal)


def _show_counted(out: Console, findings: Sequence[Finding]) -> None:
    """Print the ids without a result, and the skipped ones by reason."""
    from rich.text import Text

    from gaudi_launch.cli.console import beside
    from gaudi_launch.messages import text

    unknown = ", ".join(finding.id for finding in _of(findings, "unknown"))
    rows = [("unknown", text("screen.doctor_unknown", checks=unknown))] if unknown else []
    reasons: dict[str, int] = {}
    for finding in _of(findings, "skip"):
        reason = finding.message.render()
        reasons[reason] = reasons.get(reason, 0) + 1
    rows += [("skip", text("screen.doctor_skipped", count=n, reason=why)) for why, n in reasons.items()]
    for status, sentence in rows:
        for line in beside(Text(_padded(_word(status)), style=_STYLES[status]), Text(sentence), out):
            out.print(line, soft_wrap=not out.is_terminal)


def show_verdict(
    out: Console, facts: DoctorFacts, findings: Sequence[Finding], *, partial: bool, folded: bool = False
) -> None:
    """Print the counts, the failures by id, what they mean and the next command.

    ``partial``: only some checks ran; ``folded``: not every finding was printed.
    """
    from rich.markup import escape

    from gaudi_launch.doctor import remedies, runner
    from gaudi_launch.messages import text

    counts = runner.summary(findings)
    failures = ", ".join(finding.id for finding in _of(findings, "fail"))
    may_fix = facts.live and not facts.host.in_container
    can_fix = may_fix and bool(remedies.planned(findings, facts.config, facts.wants))
    command = "gaudi-launch doctor --fix" if can_fix else "gaudi-launch serve -w MODEL"
    out.print()
    out.print(escape(text("doctor.show.counts", None, **counts)))
    if folded:
        id = "screen.doctor_all_warnings" if counts["warn"] else "screen.doctor_all"
        out.print(escape(text(id)), style="dim")
    if failures:
        out.print(escape(text("screen.doctor_failures", checks=failures)), style="bold red")
    if [f.id for f in findings if f.status == "fail"] == ["cards.present"] and not facts.gaudi:
        sentence, style = text("doctor.show.no_cards"), "bold"
        command = "gaudi-launch plan -w MODEL --machine simulated:hls2"
    elif counts["fail"]:
        sentence, style = text("doctor.show.cannot"), "bold red"
    elif counts["warn"]:
        sentence, style = text("doctor.show.slower"), "bold yellow"
    elif partial:
        sentence, style = text("doctor.show.partial"), "bold"
        command = "gaudi-launch doctor"
    elif counts["unknown"]:
        sentence, style = text("doctor.show.unsure", unknown=counts["unknown"]), "bold"
    else:
        sentence, style = text("doctor.show.ready"), "bold green"
    out.print(escape(sentence), style=style)
    if counts["fail"] and sentence != text("doctor.show.no_cards") and not can_fix:
        out.print(escape(text("doctor.show.next_read")))
    else:
        out.print(escape(text("doctor.show.next", command=command)))


def _shown_value(value: str | None) -> str:
    from gaudi_launch.messages import text

    if value is None:
        return text("doctor.fix.absent")
    lines = [line for line in value.strip().splitlines() if not line.startswith("#")]
    return "; ".join(lines)


def show_changes(out: Console, root: Path, changes: Sequence[Change]) -> None:
    from rich.markup import escape

    from gaudi_launch.doctor import remedies
    from gaudi_launch.doctor.journal import journal_path
    from gaudi_launch.messages import text

    out.print(escape(text("doctor.fix.will", journal=str(journal_path()))))
    groups: dict[tuple[str, str, str], list[Change]] = {}
    for change in changes:
        now = _shown_value(remedies.content(root, change.path))
        key = change.path if not change.kernel else change.fix
        groups.setdefault((key, now, _shown_value(change.content)), []).append(change)
    for (_, now, wanted), same in groups.items():
        values = {"path": str(root / same[0].path), "before": now, "after": wanted}
        if len(same) > 1:
            out.print(escape("  " + text("doctor.fix.and_more", count=len(same) - 1, **values)))
        else:
            out.print(escape("  " + text("doctor.fix.write", **values)))


def show_outcomes(out: Console, outcomes: Sequence[RemedyOutcome]) -> None:
    from rich.markup import escape

    from gaudi_launch.messages import text

    groups: dict[tuple[str, str, str, str], list[RemedyOutcome]] = {}
    for outcome in outcomes:
        # the same change on two hundred CPUs is one line
        stem = (
            "".join(c for c in outcome.path if not c.isdigit()) if outcome.path.startswith("sys/") else outcome.path
        )
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
        out.print(escape(lines[status]), style="bold red" if status == "failed" else None)


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
    from rich.markup import escape

    from gaudi_launch.doctor.findings import shown
    from gaudi_launch.messages import text

    rows = fixed_rows(before, after)
    if not rows or not changes:
        return
    found = {finding.id: shown(finding.found) for finding in after}
    out.print(escape(text("doctor.fix.again")))
    for row in rows:
        line = text(
            "doctor.fix.row",
            check=row["id"],
            before=_word(row["before"]),
            after=_word(row["after"]),
            found=found.get(row["id"], "-"),
        )
        out.print(escape(f"  {line}"))
    if any(change.fix == "limits" for change in changes):
        out.print(escape(text("doctor.fix.login")))
