"""The page of an acceptance test, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import emit_json
from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.core.base import codec
from gaudi_launch.core.base.durations import rough
from gaudi_launch.core.base.messages import printable, text
from gaudi_launch.extensions.acceptance.case import exit_code
from gaudi_launch.extensions.acceptance.evidence import RunChange
from gaudi_launch.extensions.acceptance.records import (
    STATUSES,
    AcceptanceRun,
    Step,
    StepResult,
    all_steps,
    figure,
)

if TYPE_CHECKING:
    from rich.text import Text


# what is wrong, the worst first
_STYLES = {"fail": "bold red", "wrong": "bold red", "broken": "bold red", "warn": "yellow"}
_SHOWN = ("level", "product", "cards", "left_out", "scale")


def report_json(run: AcceptanceRun, path: Path, strict: bool) -> dict[str, Any]:
    """Return the report for programs."""
    shown = {name: value for name, value in codec.write(run).items() if name in _SHOWN}
    more = {"summary": _counts(run.results), "exit_code": int(exit_code(run.results, strict))}
    steps = [
        {**codec.write(each), "notes": [note.to_json() for note in each.notes]}
        for each in run.results
    ]
    return {"schema": 1, **shown, "evidence": str(path), "steps": steps, **more}


def show_steps(steps: Sequence[Step], as_json: bool, *, complete: bool) -> None:
    """Print the steps with their level, longest time and limit."""
    if as_json:
        rows = [
            {**codec.write(each), "title": each.title.render(), "limit": each.limit or None}
            for each in steps
        ]
        emit_json({"schema": 1, "steps": rows})
        return
    shown = []
    for each in steps:
        least = sorted({100 * share["ok"] for share in each.limit.get("products", {}).values()})
        limit = " - ".join(f"{share:.0f} %" for share in dict.fromkeys((*least[:1], *least[-1:])))
        cells = (each.title.render(), str(each.level), f"{each.timeout:g}", limit)
        shown.append(NotedRow(cells))
    level = max((each.level for each in steps), default=1)
    head: list[str | Text] = [
        text("accept.show.steps", count=len(steps), time=rough(sum(e.timeout for e in steps))),
        next_line(f"gaudi-launch doctor --deep --level {level}"),
    ]
    columns = text("accept.show.list_columns").split("|")
    ShortPage(head, columns, shown, right=(1, 2)).show(complete=complete)


def _counts(results: Sequence[StepResult]) -> dict[str, int]:
    return {status: sum(each.status == status for each in results) for status in STATUSES}


def show(run: AcceptanceRun, path: Path, strict: bool, *, complete: bool) -> None:
    """Print the verdict, what is wrong and what to do, the steps, the file."""
    cards = ", ".join(run.cards) or ("-" if run.product else text("accept.show.cpu"))
    head: list[str | Text] = [
        _verdict(run, strict),
        text("accept.show.counts", None, **_counts(run.results)),
        text("accept.show.head", level=run.level, product=run.product or "-", cards=cards),
    ]
    if run.scale != 1:
        head.append(text("accept.show.scaled", scale=f"{run.scale:g}"))
    notes = [
        printable(text("accept.show.left_out", card=card, users=users))
        for card, users in run.left_out.items()
    ]
    # the rows that are left out of a short page are passed ones
    order = [*dict.fromkeys((*_STYLES, *STATUSES))]
    results = sorted(run.results, key=lambda each: order.index(each.status))
    ShortPage(
        [*head, *_troubles(results)],
        text("accept.show.columns").split("|"),
        [NotedRow(_row(each)) for each in (run.results if complete else results)],
        right=(2, 3),
        tail=[text("accept.show.evidence", path=str(path))],
        warnings=notes,
    ).show(complete=complete)


def _row(result: StepResult) -> tuple[str, ...]:
    title = text(f"accept.step.{result.name}")
    shown, share, rest = "-", "-", ""
    if result.values and result.unit:
        ends = (min(result.values.values()), max(result.values.values()))
        shown = f"{'-'.join(dict.fromkeys(map(figure, ends)))} {result.unit}"
    elif result.values:
        rest = ", ".join(f"{who} {figure(value)}" for who, value in result.values.items())
    if result.shares:
        share = f"{100 * min(result.shares.values()):.0f} %"
    if result.slowest and result.spread:
        rest = text("accept.show.slowest", who=result.slowest, spread=f"{100 * result.spread:.1f}")
    if result.status == "skipped":
        rest = result.notes[0].render()
    return title, text(f"accept.status.{result.status}"), shown, share, printable(rest)


def _troubles(results: Sequence[StepResult]) -> list[Text]:
    """Return what is wrong, the worst first, and what to do."""
    from rich.text import Text

    lines: list[Text] = []
    remedies: dict[str, None] = {}
    for each in results:
        if each.status not in _STYLES:
            continue
        for note in each.notes:
            line = text("common.pair", label=text(f"accept.step.{each.name}"), value=note.render())
            lines.append(Text(f"  {printable(line)}", style=_STYLES[each.status]))
        word = "wrong" if each.status == "wrong" else all_steps()[each.name].remedy
        remedies |= {word: None} if word else {}
    to_do = [Text(f"  {n}. {text(f'accept.do.{word}')}") for n, word in enumerate(remedies, 1)]
    return [*lines, Text(text("accept.show.to_do")), *to_do] if to_do else lines


def _verdict(run: AcceptanceRun, strict: bool) -> Text:
    from rich.text import Text

    counts = _counts(run.results)
    not_run = counts["skipped"] + counts["broken"]
    if exit_code(run.results, strict):
        ran = len(run.results) > not_run
        return Text(text("accept.show.failed" if ran else "accept.show.nothing"), style="bold red")
    if not run.product:
        return Text(text("accept.show.no_cards"), style="bold")
    if not_run:
        return Text(text("accept.show.partial", count=not_run), style="bold")
    return Text(text("accept.show.passed"), style="bold green")


def show_changes(rows: Sequence[RunChange], *, complete: bool) -> None:
    """Print what differs between two runs, then both side by side."""
    shown = []
    for row in sorted(rows, key=lambda row: not row.differs):
        ratio = "-" if row.ratio is None else f"{100 * row.ratio:+.1f} %"
        before, after = ("-" if n is None else figure(n) for n in (row.before, row.after))
        verdicts = " -> ".join(dict.fromkeys(row.statuses))
        mark = "*" if row.differs else ""
        shown.append(NotedRow((row.step, before, after, row.unit, ratio, verdicts, mark)))
    steps = ", ".join(row.step for row in rows if row.differs)
    head = text("accept.show.differ", steps=steps) if steps else text("accept.show.same")
    columns = text("accept.show.compare_columns").split("|")
    ShortPage([head], columns, shown, right=(1, 2, 4)).show(complete=complete)
