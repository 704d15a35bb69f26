"""How runs are shown: progress while they go, figures and plots when they are done, two of them side by side."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.messages import text

if TYPE_CHECKING:
    from gaudi_launch.errors import ExitCode
    from gaudi_launch.measure.records import Run
    from gaudi_launch.measure.replay import Going

_PLAIN_EVERY_SECONDS = 10.0
_PARTS = ("mean", "p50", "p90", "p95", "p99", "max")


class Watching:
    """Progress on stderr: a bar on a terminal, else a line now and then."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._next = time.monotonic() + _PLAIN_EVERY_SECONDS

    def __enter__(self) -> Watching:
        from gaudi_launch.cli.output import console

        screen = console(stderr=True)
        if screen.is_terminal and not self._quiet:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=screen,
                transient=True,
            )
            self._task = self._bar.add_task(text("measure.preparing"), total=None)
            self._bar.start()
        elif not self._quiet:
            print(text("measure.preparing"), file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def going(self, state: Going) -> None:
        words = text("measure.going", under_way=state.sent - state.done, failed=state.failed, tokens=state.tokens)
        if self._bar is not None:
            self._bar.update(self._task, description=words, completed=state.done, total=state.total)
        elif not self._quiet and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PLAIN_EVERY_SECONDS
            print(f"{state.done}/{state.total}: {words}", file=sys.stderr, flush=True)


def exit_code(run: Run, interrupted: bool) -> ExitCode:
    """0 when every request went well, 1 when some failed, 4 when none went well, 130 after Ctrl-C."""
    from gaudi_launch.errors import ExitCode

    if interrupted:
        return ExitCode.INTERRUPTED
    if not run.summary.get("failed"):
        return ExitCode.DONE
    return ExitCode.FAILED if run.summary.get("completed") else ExitCode.ENGINE


def show(run: Run, path: Path | None, plot: Path | None, as_json: bool) -> None:
    """A run's figures; as JSON everything but its single requests, which are in the file."""
    from gaudi_launch.cli.output import console, emit_json
    from gaudi_launch.measure.statistics import errors

    failures = errors(run.samples)
    if as_json:
        listed = [{"error": what, "count": count, "example": detail} for what, count, detail in failures]
        emit_json({**run.to_json(), "errors": listed, "file": str(path)})
        return
    out = console()

    def say(line: str) -> None:
        out.print(line, markup=False, soft_wrap=True)

    say(_headline(run))
    out.print(_figures(run))
    say(_rates(run))
    for note in _notes(run):
        say(note)
    for what, count, detail in failures[:5]:
        say("  " + text("measure.error_line", count=count, what=what, detail=detail))
    for line in _plot_lines(run):
        say(line)
    if path is not None:
        say(text("measure.kept", path=path))
    if plot is not None:
        say(text("measure.drawn", path=plot))


def _headline(run: Run) -> str:
    facts, workload = run.facts, run.workload
    arrivals = text(
        f"measure.arrivals_{workload['arrivals']}",
        rate=f"{workload['rate']:g}" if workload.get("rate") else "-",
        limit=workload.get("concurrency") or "-",
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
    from gaudi_launch.measure.workload import MADE_UP

    words = source.removeprefix(MADE_UP).split(":")
    if not source.startswith(MADE_UP) or len(words) != 3:
        return source
    return text("measure.source_made_up", input=words[0], output=words[1], seed=words[2])


def _figures(run: Run) -> Any:
    from gaudi_launch.cli.output import table
    from gaudi_launch.measure.statistics import TIMES

    rows = []
    for name in TIMES:
        spread = run.summary.get(name)
        if spread:
            cells = [milliseconds(spread[part]) if part in spread else "-" for part in _PARTS]
            rows.append((text(f"measure.name_{name}"), *cells))
    columns = [text("measure.column_ms"), text("measure.part_mean"), "p50", "p90", "p95", "p99"]
    return table("", [*columns, text("measure.part_max")], rows, right=range(1, 7))


def milliseconds(seconds: float) -> str:
    """Milliseconds with three meaningful digits or so."""
    value = 1000 * seconds
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def _rates(run: Run) -> str:
    summary = run.summary

    def rate(name: str) -> str:
        value = summary.get(name)
        return f"{value:,.2f}" if value is not None else "-"

    return text(
        "measure.rates",
        completed=summary.get("completed"),
        requests=summary.get("requests"),
        seconds=f"{summary.get('seconds') or 0:.1f}",
        rate=rate("request_rate"),
        output=rate("output_rate"),
        total=rate("total_rate"),
    )


def _notes(run: Run) -> list[str]:
    notes = []
    if run.facts.get("interrupted"):
        planned = run.workload.get("requests")
        notes.append(text("measure.note_interrupted", done=run.summary.get("requests"), planned=planned))
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


def _plot_lines(run: Run) -> list[str]:
    from gaudi_launch.measure.plot import terminal

    try:
        "█".encode(sys.stdout.encoding or "ascii")
        ascii = False
    except UnicodeEncodeError:
        ascii = True
    titles = (text("measure.plot_spread"), text("measure.plot_course"))
    lines = terminal(run.samples, titles, ascii=ascii)
    return ["", *lines, ""] if lines else []


def show_comparison(before: Run, after: Run, as_json: bool) -> None:
    """Every figure of both runs, with its difference and a verdict."""
    from gaudi_launch.cli.output import console, emit_json, table
    from gaudi_launch.measure.compare import compare, doubts

    rows, remarks = compare(before, after), doubts(before, after)
    if as_json:
        emit_json(
            {
                "schema": 1,
                "before": before.to_json(),
                "after": after.to_json(),
                "rows": [row.to_json() for row in rows],
                "doubts": [{"id": remark.id, "message": remark.render()} for remark in remarks],
            }
        )
        return
    out = console()
    for remark in remarks:
        out.print(remark.render(), markup=False, soft_wrap=True)
    lines = []
    for row in rows:
        timed = bool(row.part)
        name = text(f"measure.name_{row.name}") + (f" {_part(row.part)}" if timed else "")
        shown = [milliseconds(v) if timed else f"{v:,.2f}" for v in (row.before, row.after, row.difference)]
        if row.difference > 0:
            shown[2] = "+" + shown[2]
        percent = f"{row.percent:+.1f} %" if row.percent is not None else "-"
        lines.append((name, *shown, percent, text(f"measure.verdict_{row.verdict}")))
    ids = ("figure", "before", "after", "difference", "percent", "verdict")
    columns = [text(f"measure.column_{id}") for id in ids]
    out.print(table(text("measure.compare_title"), columns, lines, right=(1, 2, 3, 4)))
    out.print(text("measure.compare_basis"), markup=False, soft_wrap=True)


def _part(name: str) -> str:
    return text("measure.part_mean") if name == "mean" else name
