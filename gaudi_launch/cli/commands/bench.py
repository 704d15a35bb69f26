"""``gaudi-launch bench``: measure a server under load, save and compare runs."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.app.bench import BenchOptions
from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.record_options import RecordCommand, record
from gaudi_launch.errors import ExitCode, LaunchError

app = CommandApp()

_SHOW = "Output"
_Bench = record(BenchOptions())


@app.command(cls=RecordCommand)
def bench(
    words: list[str] = typer.Argument(
        None, metavar="URL|NAME | compare A B", help="A server, or two saved runs to compare."
    ),
    given: BenchOptions = _Bench,
    plot: Path | None = typer.Option(
        None,
        "--plot",
        metavar="FILE.png|.svg",
        help="With compare: draw both runs to this file.",
        rich_help_panel=_SHOW,
    ),
    as_json: bool = typer.Option(
        False, "--json", help="One JSON object on stdout.", rich_help_panel=_SHOW
    ),
) -> None:
    """Measure a server: TTFT, TPOT and tokens per second, with percentiles.

    With --trace or --rate each request is sent at its own time, however slow the answers are, and
    latencies count from that time. Ctrl-C stops early and keeps the results. 'bench compare A B'
    shows the differences.

    A trace is CSV with a header line, or JSON lines, also as .gz. Columns: timestamp (seconds, or a
    date; without it one request per second), input_tokens, output_tokens. Other names of these
    columns: docs/traces.md.
    """
    from gaudi_launch.app import bench as use_case
    from gaudi_launch.cli.views import bench as view

    words = list(words or ())
    if words and words[0] == "compare" and len(words) > 1:
        view.show_comparison(*use_case.comparison(words[1:], plot), as_json)
        return
    if plot is not None:
        raise LaunchError("measure.plot_compare", ExitCode.USAGE)
    case = use_case.prepare(words, given)
    view.show_differences(case.differences)
    if case.tool == use_case.PRINTED_ONLY:
        view.show_benchmarker(use_case.benchmarker_command(case), as_json)
        return
    with view.Watching(quiet=as_json or not case.with_our_client) as watching:
        outcome = use_case.measure(case, watching)
    view.show_report(use_case.kept(case, outcome), as_json)
    raise typer.Exit(int(outcome.exit_code))
