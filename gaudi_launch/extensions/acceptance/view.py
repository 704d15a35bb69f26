"""The page of an acceptance test, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import console, known, table
from gaudi_launch.core.base import codec
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.host.files import printable
from gaudi_launch.extensions.acceptance.case import exit_code
from gaudi_launch.extensions.acceptance.records import STATUSES

if TYPE_CHECKING:
    from rich.console import Console

    from gaudi_launch.extensions.acceptance.evidence import RunChange
    from gaudi_launch.extensions.acceptance.records import AcceptanceRun, StepResult

_STYLES = {"fail": "bold red", "wrong": "bold red", "broken": "bold red", "warn": "yellow"}
_SHOWN = ("level", "product", "cards", "left_out", "scale")
_TROUBLE = ("fail", "wrong", "broken", "warn")
# what to do, by the step with the trouble
_REMEDIES = {
    "accept.do.checks": ("checks",),
    "accept.do.firmware": ("firmware",),
    "accept.do.card": ("memory_size", "memory_rate", "memory_fill", "events"),
    "accept.do.cooling": ("matrix_bf16", "matrix_fp8", "sustained", "heat"),
    "accept.do.slot": ("host_to_card", "qual_pcie"),
    "accept.do.links": ("all_reduce", "all_reduce_pairs", "all_reduce_fours", "qual_links"),
    "accept.do.served": ("served_small", "served_model"),
}


def report_json(run: AcceptanceRun, path: Path, strict: bool) -> dict[str, Any]:
    """Return the report for programs."""
    shown = {name: value for name, value in codec.write(run).items() if name in _SHOWN}
    more = {"summary": _counts(run.results), "exit_code": int(exit_code(run.results, strict))}
    steps = [_step_json(each) for each in run.results]
    return {"schema": 1, **shown, "evidence": str(path), "steps": steps, **more}


def _step_json(result: StepResult) -> dict[str, Any]:
    row: dict[str, Any] = codec.write(result)
    row["notes"] = [each.to_json() for each in result.notes]
    return row


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


def _word(status: str) -> str:
    words = {
        "pass": text("accept.status.pass"),
        "warn": text("accept.status.warn"),
        "fail": text("accept.status.fail"),
        "reported": text("accept.status.reported"),
        "wrong": text("accept.status.wrong"),
        "broken": text("accept.status.broken"),
        "skipped": text("accept.status.skipped"),
    }
    return words[status]


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
    return title, _word(result.status), figure, share, printable(rest)


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
        named = [id for id, names in _REMEDIES.items() if each.name in names]
        remedies |= dict.fromkeys(["accept.do.wrong"] if each.status == "wrong" else named)
    out.print(text("accept.show.to_do"))
    for number, id in enumerate(remedies, 1):
        out.print(f"  {number}. {text(id)}")


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
