"""Views of bench: progress of a run, its figures and histogram, and a comparison."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import console, emit_json, say, table
from gaudi_launch.cli.progress import ProgressDisplay, ProgressState
from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.cli.streams import shows
from gaudi_launch.cli.views.run_record import run_line
from gaudi_launch.cli.views.speed import speed_json, summary
from gaudi_launch.cli.work_progress import work_columns
from gaudi_launch.core.base.messages import Message, text
from gaudi_launch.extensions.bench.case import BenchReport
from gaudi_launch.extensions.bench.statistics import TIMES, errors

if TYPE_CHECKING:
    from rich.text import Text

    from gaudi_launch.core.predict.learned import LearnedConstants
    from gaudi_launch.extensions.bench.compare import ComparedFigure
    from gaudi_launch.extensions.bench.learn import LearnOutcome
    from gaudi_launch.extensions.bench.replay import Going
    from gaudi_launch.extensions.bench.run_file import BenchRun

_PARTS = ("mean", "p50", "p90", "p95", "p99", "max")


def show_differences(differences: Sequence[Message]) -> None:
    """Print what was given in place of the load of --plan, on stderr."""
    for difference in differences:
        say(text("plan.warning", what=difference.render()))


class Watching:
    """The progress of a run, on stderr."""

    def __init__(self, quiet: bool) -> None:
        self._display = ProgressDisplay(work_columns, quiet=quiet)
        self._quiet = quiet

    def __enter__(self) -> Watching:
        self._display.open(text("measure.preparing"))
        if not self._quiet and not self._display.is_open:
            self._display.say(text("measure.preparing"))
        self._display.postpone()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.close()

    def say(self, line: str) -> None:
        """Print a line on stderr."""
        say(line)

    def going(self, state: Going) -> None:
        words = text(
            "measure.going",
            under_way=state.sent - state.done,
            failed=state.failed,
            tokens=state.tokens,
        )
        line = text("common.pair", label=f"{state.done}/{state.total}", value=words)
        self._display.show(ProgressState(line, state.done, state.total, words))


def show_benchmarker(argv: Sequence[str], as_json: bool) -> None:
    """Print the docker command of inference-benchmarker."""
    from gaudi_launch.core.services.endpoint import api_key

    if as_json:
        emit_json({"schema": 1, "tool": "inference-benchmarker", "argv": list(argv)})
        return
    if api_key():
        say(text("measure.benchmarker_key"))
    print(shlex.join(argv))


def show_report(report: BenchReport, as_json: bool, *, complete: bool = False) -> None:
    """Print a run's figures with the predicted ones, and what was learned from it.

    As JSON all but its single requests. ``complete``: with the plots. A disk that filled up costs
    the file, not the figures.
    """
    if report.problem is not None:
        with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
            _show(BenchReport(report.run), complete=False)
        raise report.problem
    if as_json:
        emit_json(_report_json(report))
    else:
        _show(report, complete=complete)


def _report_json(report: BenchReport) -> dict[str, Any]:
    run = report.run
    listed = [
        {"error": what, "count": count, "example": detail}
        for what, count, detail in errors(run.samples)
    ]
    document = {**run.to_json(), "errors": listed, "file": str(report.path)}
    if report.predicted is not None:
        document["predicted"] = speed_json(report.predicted)
    if report.learned is not None:
        document["learned"] = report.learned.to_json()
    return document


def _show(report: BenchReport, *, complete: bool) -> None:
    run, path = report.run, report.path
    tail, plots = [_headline(run)], _plot_lines(run)
    if plots and not complete:
        tail.append(text("measure.more"))
    if report.predicted is not None:
        tail.append(text("estimate.predicted", what=summary(report.predicted)))
    if path is not None:
        tail.append(text("measure.kept", path=path))
    notes = _notes(run)
    for what, count, detail in errors(run.samples)[:5]:
        notes.append(text("measure.error_line", count=count, what=what, detail=detail))
    columns, rows = _figures(run)
    head: list[str | Text] = [_rates(run)]
    if path is not None:
        head.append(next_line(shlex.join(["gaudi-launch", "bench", "compare", str(path), "AFTER"])))
    page = ShortPage(
        head,
        columns,
        rows,
        right=range(1, 7),
        tail=tail,
        warnings=notes,
        left_out="page.notes",
    )
    page.show(complete=complete)
    for line in plots if complete else []:
        console().print(line)
    if report.learned is not None:
        show_learning(report.learned, False)


def show_learning(outcome: LearnOutcome, as_json: bool) -> None:
    """Print what was learned from each file."""
    if as_json:
        emit_json(outcome.to_json())
        return
    show_learned(outcome.learned, False)
    for result in outcome.results:
        if result.why_not is not None:
            line = text("learn.file_without", path=result.path, why=result.why_not.render())
        else:
            line = text("learn.file", path=result.path, count=len(result.measurements))
        console().print(line)


def show_learned(learned: LearnedConstants | None, as_json: bool) -> None:
    """Print the learned constants next to the shipped ones."""
    from gaudi_launch.extensions.bench.learn import learned_json

    document = learned_json(learned)
    if as_json:
        emit_json(document)
        return
    out = console()
    if learned is None:
        out.print(text("learn.none"))
        return
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(learned.learned_at))
    count = len(learned.measurements)
    out.print(text("learn.version", version=learned.version, when=when, count=count))
    factors = {"before": f"{learned.before:.2f}", "after": f"{learned.typical:.2f}"}
    out.print(text("learn.typical", **factors, left=learned.left_out))
    columns = [text(f"learn.column_{name}") for name in ("name", "shipped", "learned", "unit")]
    rows = [
        [row["name"], f"{row['shipped']:.4g}", f"{row['learned']:.4g}", row["unit"]]
        for row in document["constants"]
    ]
    out.print(table("", columns, rows, right=(1, 2)))


def _headline(run: BenchRun) -> str:
    facts, workload = run.facts, run.workload
    arrivals = text(
        f"measure.arrivals_{workload['arrivals']}",
        rate=f"{workload['rate']:g}" if workload.get("rate") else "-",
        limit=workload.get("concurrency") or text("measure.unlimited"),
    )
    return text(
        "measure.bench_title",
        model=facts.get("model"),
        url=facts.get("url"),
        tool=facts.get("tool"),
        source=_source(str(workload.get("source"))),
        arrivals=arrivals,
    )


def _source(source: str) -> str:
    from gaudi_launch.extensions.bench.workload import MADE_UP

    words = source.removeprefix(MADE_UP).split(":")
    if not source.startswith(MADE_UP) or len(words) != 3:
        return source
    return text("measure.source_made_up", input=words[0], output=words[1], seed=words[2])


def _figures(run: BenchRun) -> tuple[list[str], list[NotedRow]]:
    rows = []
    for name in TIMES:
        spread = run.summary.get(name)
        if spread:
            cells = [milliseconds(spread[part]) if part in spread else "-" for part in _PARTS]
            rows.append(NotedRow((text(f"measure.name_{name}"), *cells)))
    columns = [text("measure.column_ms"), text("measure.part_mean"), "p50", "p90", "p95", "p99"]
    return [*columns, text("measure.part_max")], rows


def milliseconds(seconds: float) -> str:
    """Return milliseconds with about three significant digits."""
    value = 1000 * seconds
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 1:
        return f"{value:.1f}"
    return f"{value:.2f}"


def _rates(run: BenchRun) -> str:
    summary = run.summary
    counts = {
        "completed": summary.get("completed"),
        "requests": summary.get("requests"),
        "seconds": f"{summary.get('seconds') or 0:.1f}",
    }
    names = {"rate": "request_rate", "output": "output_rate", "total": "total_rate"}
    rates = {key: summary.get(name) for key, name in names.items()}
    if any(rate is None for rate in rates.values()):
        return text("measure.rates_none", **counts)
    shown = {key: f"{rate:,.2f}" for key, rate in rates.items()}
    return text("measure.rates", **counts, **shown)


def _notes(run: BenchRun) -> list[str]:
    notes = [note["message"] for note in run.workload.get("notes", ())]
    if run.facts.get("simulated"):
        notes.append(text("measure.note_simulated"))
        of_cards = run.facts.get("simulated_run")
        if of_cards:
            notes.append(text("measure.note_scaled", scale=f"{of_cards['time_scale']:g}"))
            notes.append(run_line(of_cards))
        else:
            notes.append(text("measure.note_scale"))
    if run.facts.get("interrupted"):
        counts = {"done": run.summary.get("requests"), "planned": run.workload.get("requests")}
        notes.append(text("measure.note_interrupted", **counts))
    if run.workload.get("left_out"):
        notes.append(text("measure.note_left_out", count=run.workload["left_out"]))
    good = [sample for sample in run.samples if sample.ok]
    short = sum(sample.output < sample.wanted_output for sample in good)
    if short:
        notes.append(text("measure.note_short", count=short, total=len(good)))
    ruler = run.facts.get("ruler")
    if isinstance(ruler, dict) and not ruler.get("measured"):
        notes.append(text("measure.note_ruler"))
    late = run.summary.get("late")
    limited = run.workload.get("concurrency") is not None
    if run.workload.get("arrivals") != "closed" and late and late["p99"] > 0.05:
        id = "measure.note_queue" if limited else "measure.note_late"
        notes.append(text(id, late=milliseconds(late["p99"])))
    return notes


def _plot_lines(run: BenchRun) -> list[str]:
    from gaudi_launch.extensions.bench.plot import terminal

    titles = (text("measure.plot_spread"), text("measure.plot_course"))
    lines = terminal(run.samples, titles, ascii=not shows(sys.stdout, "█"))
    return ["", *lines, ""] if lines else []


def show_comparison(
    before: BenchRun, after: BenchRun, as_json: bool, *, complete: bool = False
) -> None:
    """Print the figures of both runs, means first, with difference and verdict."""
    from gaudi_launch.extensions.bench.compare import compare, doubts

    rows, remarks = compare(before, after), doubts(before, after)
    if as_json:
        emit_json(
            {
                "schema": 1,
                "before": before.to_json(),
                "after": after.to_json(),
                "rows": [row.to_json() for row in rows],
                "doubts": [remark.to_json() for remark in remarks],
            }
        )
        return
    lines = []
    for row in sorted(rows, key=lambda each: each.part not in ("", "mean")):
        timed = bool(row.part)
        part = text("measure.part_mean") if row.part == "mean" else row.part
        name = f"{text(f'measure.name_{row.name}')} {part}".rstrip()
        shown = [
            milliseconds(v) if timed else f"{v:,.2f}"
            for v in (row.before, row.after, row.difference)
        ]
        if row.difference > 0:
            shown[2] = "+" + shown[2]
        percent = f"{row.percent:+.1f} %" if row.percent is not None else "-"
        cells = (name, *shown, percent, text(f"measure.verdict_{row.verdict}"))
        lines.append(NotedRow(cells))
    ids = ("figure", "before", "after", "difference", "percent", "verdict")
    columns = [text(f"measure.column_{id}") for id in ids]
    page = ShortPage(
        [_answer(rows)] if rows else [],
        columns,
        lines,
        right=(1, 2, 3, 4),
        tail=[text("measure.compare_basis")],
        warnings=[remark.render() for remark in remarks],
        left_out="page.notes",
    )
    page.show(complete=complete)


def _answer(rows: Sequence[ComparedFigure]) -> str:
    """Return a sentence about the first mean or rate that differs."""
    order = ("tpot", "ttft", "itl", "latency", "output_rate", "total_rate", "request_rate")
    means = sorted(
        (row for row in rows if row.part in ("", "mean")), key=lambda row: order.index(row.name)
    )
    row = next((row for row in means if row.verdict != "same"), means[0])
    values = [
        f"{milliseconds(each)} ms" if row.part else f"{each:,.2f}"
        for each in (row.before, row.after)
    ]
    return text(
        f"measure.answer_{row.verdict}",
        percent=f"{row.percent or 0:+.1f}",
        name=text(f"measure.name_{row.name}"),
        before=values[0],
        after=values[1],
    )
