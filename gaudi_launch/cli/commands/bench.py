"""``gaudi-launch bench``: measure a server under load, save and compare runs."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import CommandApp

app = CommandApp()

_LOAD, _HOW, _SHOW = "Load", "How to ask", "Output"


@app.command()
def bench(
    ctx: typer.Context,
    words: list[str] = typer.Argument(
        None, metavar="URL|NAME | compare A B", help="A server, or two saved runs to compare."
    ),
    trace: str = typer.Option(
        "",
        "--trace",
        metavar="FILE",
        help="Replay past requests at their recorded times: CSV or JSON lines.",
        rich_help_panel=_LOAD,
    ),
    rate: str | None = typer.Option(
        None,
        "--rate",
        metavar="R",
        help="Requests per second, independent of answers.",
        rich_help_panel=_LOAD,
    ),
    concurrency: str | None = typer.Option(
        None,
        "--concurrency",
        metavar="N",
        help="Maximum concurrent requests (default 4).",
        rich_help_panel=_LOAD,
    ),
    requests: str | None = typer.Option(
        None,
        "--requests",
        metavar="N",
        help="Number of requests (default 40; a trace: all).",
        rich_help_panel=_LOAD,
    ),
    seconds: str | None = typer.Option(
        None,
        "--seconds",
        metavar="TIME",
        help="Use only this first part of the trace: 90, 5m.",
        rich_help_panel=_LOAD,
    ),
    input: str = typer.Option(
        "256",
        "-i",
        "--input",
        metavar="N[,N]",
        help="Input tokens: one length or MIN,MAX.",
        rich_help_panel=_LOAD,
    ),
    output: str = typer.Option(
        "64",
        "-o",
        "--output",
        metavar="N[,N]",
        help="Output tokens: one length or MIN,MAX.",
        rich_help_panel=_LOAD,
    ),
    seed: str | None = typer.Option(
        None,
        "--seed",
        metavar="N",
        help="Random seed of lengths and texts (default: new texts).",
        rich_help_panel=_LOAD,
    ),
    plan_file: Path | None = typer.Option(
        None,
        "--plan",
        metavar="FILE",
        help="The load and the address of a plan that --save wrote.",
        rich_help_panel=_LOAD,
    ),
    tool: str = typer.Option(
        "auto",
        "--tool",
        help="auto, builtin, guidellm, vllm or inference-benchmarker (prints its docker command).",
        rich_help_panel=_HOW,
    ),
    form: str = typer.Option(
        "auto", "--form", help="auto, chat, completions or generate (TGI).", rich_help_panel=_HOW
    ),
    model: str | None = typer.Option(
        None, "--model", help="The model's name in requests.", rich_help_panel=_HOW
    ),
    tokenizer: str | None = typer.Option(
        None,
        "--tokenizer",
        metavar="MODEL",
        help="For other tools: folder or hub ID.",
        rich_help_panel=_HOW,
    ),
    stop_early: bool = typer.Option(
        False, "--stop-early", help="Let the model end answers early.", rich_help_panel=_HOW
    ),
    timeout: str = typer.Option(
        "600",
        "--patience",
        metavar="TIME",
        help="Timeout without data of a request: 90, 5m.",
        rich_help_panel=_HOW,
    ),
    save: Path | None = typer.Option(
        None,
        "--save",
        metavar="FILE",
        help="File for the run (default: state folder).",
        rich_help_panel=_SHOW,
    ),
    plot: Path | None = typer.Option(
        None,
        "--plot",
        metavar="FILE.png|.svg",
        help="Draw a chart to this file.",
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
    options = use_case.BenchOptions(
        trace=trace,
        rate=rate,
        concurrency=concurrency,
        requests=requests,
        seconds=seconds,
        input=input if _typed(ctx, "input") else "",
        output=output if _typed(ctx, "output") else "",
        seed=seed,
        tool=tool,
        form=form,
        model=model,
        tokenizer=tokenizer,
        stop_early=stop_early,
        timeout=timeout,
        save=save,
        plot=plot,
        plan_file=plan_file,
    )
    case = use_case.prepare(words, options)
    view.show_differences(case.differences)
    if case.tool == use_case.PRINTED_ONLY:
        view.show_benchmarker(use_case.benchmarker_command(case), as_json)
        return
    with view.Watching(quiet=as_json or not case.with_our_client) as watching:
        outcome = use_case.measure(case, watching)
    view.show_report(use_case.kept(case, outcome), as_json)
    raise typer.Exit(int(outcome.exit_code))


def _typed(ctx: typer.Context, name: str) -> bool:
    """Return True for an option that is given, False where its default applies."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
