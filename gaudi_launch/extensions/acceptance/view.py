"""The page of an acceptance test, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import console, emit_json, known, table
from gaudi_launch.core.base import codec
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.host.files import printable
from gaudi_launch.extensions.acceptance.case import exit_code
from gaudi_launch.extensions.acceptance.judge import facts
from gaudi_launch.extensions.acceptance.records import STATUSES

if TYPE_CHECKING:
    from rich.console import Console

    from gaudi_launch.extensions.acceptance.evidence import RunChange
    from gaudi_launch.extensions.acceptance.records import AcceptanceRun, StepResult
    from gaudi_launch.extensions.acceptance.steps import Step

_STYLES = {"fail": "bold red", "wrong": "bold red", "broken": "bold red", "warn": "yellow"}
_SHOWN = ("level", "product", "cards", "left_out", "scale")
_TROUBLE = ("fail", "wrong", "broken", "warn")


def report_json(run: AcceptanceRun, path: Path, strict: bool) -> dict[str, Any]:
    """Return the report for programs."""
    shown = {name: value for name, value in codec.write(run).items() if name in _SHOWN}
    more = {"summary": _counts(run.results), "exit_code": int(exit_code(run.results, strict))}
    steps = [
        {**codec.write(each), "notes": [note.to_json() for note in each.notes]}
        for each in run.results
    ]
    return {"schema": 1, **shown, "evidence": str(path), "steps": steps, **more}


def show_steps(steps: Sequence[Step], as_json: bool) -> None:
    """Print the steps with their level, measured seconds, needs and limit."""
    limits = facts()["limits"]
    rows = [
        {
            **{"name": each.name, "title": each.title.render(), "level": each.level},
            **{"needs": list(each.needs), **facts()["steps"][each.name]},
            "limit": limits.get(each.name),
        }
        for each in steps
    ]
    if as_json:
        emit_json({"schema": 1, "steps": rows})
        return
    cells = []
    for row in rows:
        shares = row["limit"]["products"] if row["limit"] else {}
        least = ", ".join(f"{who} {100 * share['ok']:.0f} %" for who, share in shares.items())
        shown = (row["name"], row["title"], str(row["level"]), str(row["timeout"]))
        cells.append((*shown, ", ".join(row["needs"]), least))
    columns = text("accept.show.list_columns").split("|")
    console().print(table("", columns, cells, right=(2, 3)))


def _counts(results: Sequence[StepResult]) -> dict[str, int]:
    return {status: sum(each.status == status for each in results) for status in STATUSES}


def show(run: AcceptanceRun, path: Path, strict: bool) -> None:
    """Print the page: the steps, what is wrong, what to do, the file."""
    out = console()
    cards = ", ".join(run.cards) or text("accept.show.cpu")
    out.print(text("accept.show.head", level=run.level, product=run.product or "-", cards=cards))
    for card, users in run.left_out.items():
        out.print(printable(text("accept.show.left_out", card=card, users=users)))
    if run.scale != 1:
        out.print(text("accept.show.scaled", scale=f"{run.scale:g}"))
    rows = [_row(each) for each in run.results]
    out.print(table("", text("accept.show.columns").split("|"), rows, right=(2, 3)))
    _show_troubles(out, run.results)
    _show_verdict(out, run, strict)
    out.print(text("accept.show.evidence", path=str(path)))


def _row(result: StepResult) -> tuple[str, ...]:
    title = text(f"accept.step.{result.name}")
    figure, share, rest = "-", "-", ""
    if result.values and result.unit:
        least, most = min(result.values.values()), max(result.values.values())
        figure = f"{least:.4g}" if least == most else f"{least:.4g}-{most:.4g}"
        figure += f" {result.unit}"
    if result.shares:
        share = f"{100 * min(result.shares.values()):.0f} %"
    if result.slowest and result.spread:
        rest = text("accept.show.slowest", who=result.slowest, spread=f"{100 * result.spread:.1f}")
    if not result.unit and result.values:
        rest = ", ".join(f"{who} {known(value, '{:.4g}')}" for who, value in result.values.items())
    if result.status == "skipped":
        rest = result.notes[0].render()
    return title, text(f"accept.status.{result.status}"), figure, share, printable(rest)


def _show_troubles(out: Console, results: Sequence[StepResult]) -> None:
    troubled = [each for each in results if each.status in _TROUBLE]
    if not troubled:
        return
    out.print(text("accept.show.troubles"))
    remedies: dict[str, None] = {}
    for each in sorted(troubled, key=lambda each: _TROUBLE.index(each.status)):
        for note in each.notes:
            line = text("common.pair", label=text(f"accept.step.{each.name}"), value=note.render())
            out.print(f"  {printable(line)}", style=_STYLES[each.status])
        word = "wrong" if each.status == "wrong" else facts()["steps"][each.name].get("remedy")
        remedies |= {word: None} if word else {}
    out.print(text("accept.show.to_do"))
    for number, word in enumerate(remedies, 1):
        out.print(f"  {number}. {text(f'accept.do.{word}')}")


def _show_verdict(out: Console, run: AcceptanceRun, strict: bool) -> None:
    counts = _counts(run.results)
    out.print(text("accept.show.counts", None, **counts))
    not_run = counts["skipped"] + counts["broken"]
    if exit_code(run.results, strict):
        ran = len(run.results) > not_run
        out.print(text("accept.show.failed" if ran else "accept.show.nothing"), style="bold red")
    elif not run.product:
        out.print(text("accept.show.no_cards"), style="bold")
    elif not_run:
        out.print(text("accept.show.partial", count=not_run), style="bold")
    else:
        out.print(text("accept.show.passed"), style="bold green")


def changes_json(rows: Sequence[RunChange]) -> list[dict[str, Any]]:
    """Return the differences of two runs for programs."""
    return [{**asdict(row), "ratio": row.ratio, "differs": row.differs} for row in rows]


def show_changes(rows: Sequence[RunChange]) -> None:
    """Print two runs side by side, and what differs."""
    out = console()
    cells = []
    for row in rows:
        ratio = "-" if row.ratio is None else f"{100 * row.ratio:+.1f} %"
        before, after = known(row.before, "{:.4g}"), known(row.after, "{:.4g}")
        verdicts = " -> ".join(dict.fromkeys(row.statuses))
        cells.append(
            (row.step, before, after, row.unit, ratio, verdicts, "*" if row.differs else "")
        )
    columns = text("accept.show.compare_columns").split("|")
    out.print(table(text("accept.show.compare"), columns, cells, right=(1, 2, 4)))
    differing = ", ".join(row.step for row in rows if row.differs)
    if differing:
        out.print(text("accept.show.differ", steps=differing))
    else:
        out.print(text("accept.show.same"))
