"""``gaudi-launch bench``: measure a server under load, save and compare runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gaudi_launch.cli.command_app import OUTPUT_JSON, CommandApp
from gaudi_launch.cli.record_options import RecordCommand, record
from gaudi_launch.cli.shared_options import ALL
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.predict.learned import read_learned
from gaudi_launch.extensions.bench import case as use_case
from gaudi_launch.extensions.bench.case import BenchReport
from gaudi_launch.extensions.bench.options import BenchOptions

if TYPE_CHECKING:
    from gaudi_launch.extensions.bench.learn import LearnOutcome

app = CommandApp()

_SHOW = "Output"
_Bench = record(BenchOptions())


@app.command(cls=RecordCommand)
def bench(
    words: list[str] = typer.Argument(
        None,
        metavar="[URL|NAME] | compare A B | FILE...",
        help="A server (default: the only running service); two saved runs to compare; with "
        "--learn files.",
    ),
    given: BenchOptions = _Bench,
    learn: bool = typer.Option(
        False,
        "--learn",
        help="Correct predictions by this run, or by files: saved runs, results of vllm bench "
        "serve, logs, /metrics pages.",
        rich_help_panel=_SHOW,
    ),
    learned: bool = typer.Option(
        False, "--learned", help="Print the learned constants.", rich_help_panel=_SHOW
    ),
    unlearn: bool = typer.Option(
        False, "--unlearn", help="Return to the shipped constants.", rich_help_panel=_SHOW
    ),
    plot: Path | None = typer.Option(
        None,
        "--plot",
        metavar="FILE.png|.svg",
        help="With compare: draw both runs to this file.",
        rich_help_panel=_SHOW,
    ),
    everything: bool = ALL,
    as_json: bool = OUTPUT_JSON,
) -> None:
    """Measure a server: TTFT, TPOT and tokens per second, with percentiles.

    With --trace or --rate each request is sent at its own time, however slow the answers are, and
    latencies count from that time. Ctrl-C stops early and keeps the results. 'bench compare A B'
    shows the differences.

    With --learn each command predicts by the measurements of this host. 'bench --learn run.json'
    measures nothing; 'bench NAME --learn engine.log' names the service of a file. A few runs move
    the shipped constants little, and a run that does not fit the others is left out.

    A trace is CSV with a header line, or JSON lines, also as .gz. Columns: timestamp (seconds, or a
    date; without it one request per second), input_tokens, output_tokens. Other names of these
    columns: docs/traces.md.
    """
    from gaudi_launch.extensions.bench import view

    words = list(words or ())
    if learned or unlearn:
        if words or [learn, learned, unlearn].count(True) != 1:
            raise LaunchError("learn.alone", ExitCode.USAGE)
        if unlearn:
            from gaudi_launch.extensions.bench import learn as bench_learn

            bench_learn.unlearn()
        view.show_learned(read_learned(), as_json)
    elif learn and (outcome := _learned_of(words)) is not None:
        view.show_learning(outcome, as_json)
    elif words[:1] == ["compare"] and len(words) > 1 and not learn:
        view.show_comparison(*use_case.comparison(words[1:], plot), as_json, complete=everything)
    elif plot is not None:
        raise LaunchError("measure.plot_compare", ExitCode.USAGE)
    else:
        _measure(words, given, as_json, learn=learn, complete=everything)


def _learned_of(words: list[str]) -> LearnOutcome | None:
    """Learn from the files among the arguments; None without files."""
    # the constants are fitted with numpy
    from gaudi_launch.extensions.bench.learn import learn, service_and_files

    service, files = service_and_files(words)
    if not files:
        return None
    return learn(files, service)


def _measure(
    words: list[str], given: BenchOptions, as_json: bool, *, learn: bool, complete: bool
) -> None:
    """Measure a server and show the report, or the command of a tool that is not run."""
    from gaudi_launch.extensions.bench import view

    case = use_case.prepare(words, given)
    view.show_differences(case.differences)
    if case.tool == use_case.PRINTED_ONLY:
        view.show_benchmarker(use_case.benchmarker_command(case), as_json)
        return
    with view.Watching(quiet=as_json or not case.with_our_client) as watching:
        run = use_case.measure(case, watching)
    report = use_case.kept(case, run)
    if learn:
        report = with_learned(report)
    view.show_report(report, as_json, complete=complete)
    raise typer.Exit(int(run.exit_code))


def with_learned(report: BenchReport) -> BenchReport:
    """Learn from a run that was kept."""
    if report.path is None:
        return report
    try:
        return replace(report, learned=_learned_of([str(report.path)]))
    except LaunchError as error:
        return replace(report, problem=error)
