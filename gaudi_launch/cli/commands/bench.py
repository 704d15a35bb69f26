"""``gaudi-launch bench``: measure a server under a load, keep the run, compare two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.command_app import CommandApp

if TYPE_CHECKING:
    from gaudi_launch.app.estimate import SpeedEstimate
    from gaudi_launch.bench.external_tools import ToolLoad
    from gaudi_launch.bench.run_file import BenchRun, BenchWorkload
    from gaudi_launch.services.endpoint import Target

app = CommandApp()

_LOAD, _HOW, _SHOW = "Load", "How to ask", "Output"
_CONCURRENCY = 4


@app.command()
def bench(
    words: list[str] = typer.Argument(
        ..., metavar="URL|NAME | compare A B", help="A server, or two saved runs to compare."
    ),
    trace: str = typer.Option(
        "",
        "--trace",
        metavar="FILE",
        help="Replay past requests at their recorded times: CSV or JSON lines.",
        rich_help_panel=_LOAD,
    ),
    rate: str | None = typer.Option(
        None, "--rate", metavar="R", help="Requests per second, independent of answers.", rich_help_panel=_LOAD
    ),
    concurrency: str | None = typer.Option(
        None, "--concurrency", metavar="N", help="Maximum concurrent requests (default 4).", rich_help_panel=_LOAD
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
    tool: str = typer.Option(
        "auto",
        "--tool",
        help="auto, builtin, guidellm, vllm or inference-benchmarker (prints its docker command).",
        rich_help_panel=_HOW,
    ),
    form: str = typer.Option(
        "auto", "--form", help="auto, chat, completions or generate (TGI).", rich_help_panel=_HOW
    ),
    model: str | None = typer.Option(None, "--model", help="The model's name in requests.", rich_help_panel=_HOW),
    tokenizer: str | None = typer.Option(
        None, "--tokenizer", metavar="MODEL", help="For other tools: folder or hub ID.", rich_help_panel=_HOW
    ),
    stop_early: bool = typer.Option(
        False, "--stop-early", help="Let the model end answers early.", rich_help_panel=_HOW
    ),
    patience: str = typer.Option(
        "600", "--patience", metavar="TIME", help="Timeout without data of a request: 90, 5m.", rich_help_panel=_HOW
    ),
    save: Path | None = typer.Option(
        None, "--save", metavar="FILE", help="File for the run (default: state folder).", rich_help_panel=_SHOW
    ),
    plot: Path | None = typer.Option(
        None, "--plot", metavar="FILE.png", help="Draw a chart to this file.", rich_help_panel=_SHOW
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout.", rich_help_panel=_SHOW),
) -> None:
    """Measure a server: TTFT, TPOT and tokens per second, with percentiles.

    With --trace or --rate each request is sent at its own time, however slow the answers are, and latencies count
    from that time. Ctrl-C stops early and keeps the results. 'bench compare A B' shows the differences.
    """
    if words[0] == "compare" and len(words) > 1:
        return _compare(words[1:], plot, as_json)
    from gaudi_launch.bench import external_tools
    from gaudi_launch.bench.run import default_file
    from gaudi_launch.bench.run_file import check_writable
    from gaudi_launch.bench.run_file import save as keep
    from gaudi_launch.bench.server import new_seed
    from gaudi_launch.cli.views import bench as bench_view
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.planning.parse import number, pair
    from gaudi_launch.planning.parse import seconds as read_seconds
    from gaudi_launch.services.endpoint import target

    if len(words) != 1:
        raise LaunchError("measure.one_server", ExitCode.USAGE, found=" ".join(words))
    if tool not in external_tools.TOOLS:
        raise LaunchError("measure.tool", ExitCode.USAGE, found=tool, known=", ".join(external_tools.TOOLS))
    check_picture(plot)
    if save is not None:
        check_writable(save)
    numbers: dict[str, Any] = {
        "rate": _positive("--rate", rate),
        "seconds": None if seconds is None else read_seconds("--seconds", seconds, least=0.0001, most=1e6),
        "concurrency": number("--concurrency", concurrency, most=10_000) if concurrency is not None else None,
        "requests": number("--requests", requests, most=10**6) if requests is not None else None,
        "input": pair("--input", input),
        "output": pair("--output", output),
        "seed": number("--seed", seed, least=0, most=10**6) if seed is not None else 0,
        "patience": read_seconds("--patience", patience),
    }
    # a run of the same texts would be answered from the cache of prefixes, and look like a better server
    numbers["texts"] = numbers["seed"] if seed is not None else new_seed()
    if trace and tool not in ("auto", "builtin"):
        raise LaunchError("measure.tool_no_trace", ExitCode.USAGE, tool=tool)
    if seconds is not None and not trace:
        raise LaunchError("measure.seconds_trace", ExitCode.USAGE)
    found = target(words[0])
    chosen, program = _choose(tool, found, numbers, ours=bool(trace) or form != "auto" or stop_early)
    if chosen == "inference-benchmarker":
        return _print_benchmarker(_load(found, numbers, model, tokenizer), as_json)
    interrupted = False
    if chosen == "builtin":
        run, interrupted = _builtin(found, _workload(trace, numbers), numbers, form, model, not stop_early, as_json)
    else:
        run = _other(chosen, program, found, _load(found, numbers, model, tokenizer), numbers["seed"])
    path = save if save is not None else default_file(found.label, float(run.facts["began"]))
    try:
        keep(run, path)
        if plot is not None:
            draw(plot, [(found.label, run)])
    except LaunchError:
        # a disk that filled up costs the file, not the figures
        bench_view.show(run, None, None, False)
        raise
    predicted = None if trace else _predicted(found, numbers)
    bench_view.show(run, path, plot, as_json, predicted)
    raise typer.Exit(int(bench_view.exit_code(run, interrupted)))


def _predicted(found: Target, numbers: dict[str, Any]) -> SpeedEstimate | None:
    """Return what the step-time model expects of this load; None for a server that is not a service here."""
    from gaudi_launch.app.estimate import DEFAULT_MOST, of_record
    from gaudi_launch.performance.prediction import Load

    prompt, answer = (sum(numbers[name]) // 2 for name in ("input", "output"))
    if not found.plan or answer < 2:
        return None
    most = numbers["concurrency"]
    if numbers["rate"] is not None:
        return of_record(found.plan, Load("rate", prompt, answer, most or DEFAULT_MOST, numbers["rate"]))
    return of_record(found.plan, Load("concurrency", prompt, answer, most or _CONCURRENCY))


def _positive(flag: str, text: str | None) -> float | None:
    from gaudi_launch.planning.parse import fraction

    return float(fraction(flag, text, 0.0001, 1e6)) if text is not None else None


def check_picture(plot: Path | None) -> None:
    """Refuse a picture's name before anything is measured."""
    from gaudi_launch.bench.run_file import check_writable
    from gaudi_launch.errors import ExitCode, LaunchError

    if plot is None:
        return
    if plot.suffix.lower() != ".png":
        raise LaunchError("measure.plot_name", ExitCode.USAGE, found=str(plot))
    check_writable(plot)


def draw(plot: Path, runs: list[tuple[str, BenchRun]]) -> None:
    """Write the picture. Raises LaunchError (FAILED)."""
    from gaudi_launch.bench.plot import png
    from gaudi_launch.errors import ExitCode, LaunchError

    try:
        plot.write_bytes(png([(name, run.samples) for name, run in runs]))
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("measure.save", ExitCode.FAILED, path=str(plot), why=why) from None


def _choose(tool: str, found: Target, numbers: dict[str, Any], *, ours: bool) -> tuple[str, str]:
    """The tool and its program. auto: guidellm, else the engine's own client, else ours. Only ours can do ranges of
    lengths, a limit next to a rate, and what ``ours`` stands for (a trace, a form, answers of their own length)."""
    from gaudi_launch.bench import external_tools
    from gaudi_launch.errors import ExitCode, LaunchError

    plain = (
        not ours
        and numbers["input"][0] == numbers["input"][1]
        and numbers["output"][0] == numbers["output"][1]
        and not (numbers["rate"] is not None and numbers["concurrency"] is not None)
    )
    if tool in ("guidellm", "vllm") and not plain:
        raise LaunchError("measure.tool_plain", ExitCode.USAGE, tool=tool)
    if tool == "guidellm" or (tool == "auto" and plain):
        program = external_tools.find_guidellm()
        if program is not None:
            return "guidellm", program
        if tool == "guidellm":
            raise LaunchError("measure.no_guidellm", ExitCode.FAILED)
    if tool == "vllm" or (tool == "auto" and plain):
        python = found.python
        if python is not None and external_tools.has_vllm_client(python):
            return "vllm", python
        if tool == "vllm":
            raise LaunchError("measure.no_vllm", ExitCode.FAILED, python=python or "-")
    return ("builtin" if tool == "auto" else tool), ""


def _workload(trace: str, numbers: dict[str, Any]) -> BenchWorkload:
    from gaudi_launch.bench.workload import from_trace, made_up

    rate, limit = numbers["rate"], numbers["concurrency"]
    if trace:
        return from_trace(
            trace, rate=rate, requests=numbers["requests"], seconds=numbers["seconds"], concurrency=limit
        )
    return made_up(
        requests=numbers["requests"] or 40,
        input=numbers["input"],
        output=numbers["output"],
        rate=rate,
        concurrency=limit if rate is not None else limit or _CONCURRENCY,
        seed=numbers["seed"],
    )


def _builtin(
    found: Target,
    workload: BenchWorkload,
    numbers: dict[str, Any],
    form: str,
    model: str | None,
    ignore_eos: bool,
    quiet: bool,
) -> tuple[BenchRun, bool]:
    import asyncio

    from gaudi_launch.bench import protocols, run
    from gaudi_launch.bench.client import Client
    from gaudi_launch.cli.views.bench import Watching
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.services.endpoint import api_key

    if form not in ("auto", *protocols.FORMS):
        raise LaunchError("measure.form", ExitCode.USAGE, found=form, known=", ".join(("auto", *protocols.FORMS)))
    client = Client(found.url, api_key=api_key(), patience=numbers["patience"])
    with Watching(quiet) as watching:
        return asyncio.run(
            run.builtin(
                client,
                found,
                workload,
                watching.going,
                form=None if form == "auto" else form,  # type: ignore[arg-type]
                model=model,
                ignore_eos=ignore_eos,
                texts=numbers["texts"],
            )
        )


def _load(found: Target, numbers: dict[str, Any], model: str | None, tokenizer: str | None) -> ToolLoad:
    """What the other tools are told. The model's name is asked of the server when nobody knows it."""
    import asyncio

    from gaudi_launch.bench import server
    from gaudi_launch.bench.client import Client, ServerError
    from gaudi_launch.bench.external_tools import ToolLoad
    from gaudi_launch.bench.run import problem
    from gaudi_launch.services.endpoint import api_key

    name = model or found.model
    if name is None:
        try:
            name = asyncio.run(server.look(Client(found.url, api_key=api_key(), patience=10))).model
        except ServerError as error:
            raise problem(error, found.url) from None
    planned = found.plan.get("model")
    path = planned.get("path") if isinstance(planned, dict) else None
    return ToolLoad(
        found.url,
        name,
        tokenizer or (path if isinstance(path, str) and path else name),
        numbers["input"][1],
        numbers["output"][1],
        numbers["requests"] or 40,
        numbers["rate"],
        numbers["concurrency"] if numbers["rate"] is not None else numbers["concurrency"] or _CONCURRENCY,
        numbers["texts"],
    )


def _other(tool: str, program: str, found: Target, load: ToolLoad, seed: int) -> BenchRun:
    """A run by another tool; ``seed`` names its workload, as for our own client."""
    import sys
    import time

    from gaudi_launch.bench import external_tools
    from gaudi_launch.bench.run import child_environment, server_facts
    from gaudi_launch.bench.run_file import BenchRun
    from gaudi_launch.bench.workload import made_up
    from gaudi_launch.messages import text
    from gaudi_launch.services.endpoint import api_key

    key = api_key()
    _check_server(found, load, key)
    print(text("measure.tool_runs", tool=tool, program=program), file=sys.stderr, flush=True)
    began = time.time()
    environment = child_environment(load.url, key)
    if tool == "guidellm":
        report = external_tools.run_guidellm(program, load, environment, key)
        summary = external_tools.guidellm_summary(report)
    else:
        report = external_tools.run_vllm(program, load, environment)
        summary = external_tools.vllm_summary(report)
    planned = made_up(
        requests=load.requests,
        input=(load.input, load.input),
        output=(load.output, load.output),
        rate=load.rate,
        concurrency=load.concurrency,
        seed=seed,
    )
    form = "chat" if tool == "guidellm" else "completions"
    facts = {"tool": tool, **server_facts(found, load.model), "form": form, "began": began, "interrupted": False}
    return BenchRun(facts, planned.to_json(), summary, (), report)


def _check_server(found: Target, load: ToolLoad, key: str | None) -> None:
    """Refuse a server that does not answer, writes nothing, or takes no such lengths: another tool would count
    failures, or measure what was not asked for. Raises LaunchError."""
    import asyncio

    from gaudi_launch.bench import server
    from gaudi_launch.bench.client import Client, ServerError
    from gaudi_launch.bench.run import problem
    from gaudi_launch.errors import ExitCode, LaunchError

    async def ask() -> None:
        client = Client(found.url, api_key=key)
        served = await server.look(client, load.model)
        await server.pick_form(client, served)
        if served.longest is not None and load.input + load.output > served.longest:
            raise LaunchError("measure.all_too_long", ExitCode.USAGE, longest=served.longest)

    try:
        asyncio.run(ask())
    except ServerError as error:
        raise problem(error, found.url) from None


def _print_benchmarker(load: ToolLoad, as_json: bool) -> None:
    import shlex
    import sys

    from gaudi_launch.bench.external_tools import benchmarker_words
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.messages import text
    from gaudi_launch.paths import state_dir
    from gaudi_launch.services.endpoint import api_key

    argv = benchmarker_words(load, state_dir() / "bench" / "inference-benchmarker")
    if as_json:
        return emit_json({"schema": 1, "tool": "inference-benchmarker", "argv": argv})
    if api_key():
        print(text("measure.benchmarker_key"), file=sys.stderr)
    return print(shlex.join(argv))


def _compare(files: list[str], plot: Path | None, as_json: bool) -> None:
    from gaudi_launch.bench.run_file import load
    from gaudi_launch.cli.views import bench as bench_view
    from gaudi_launch.errors import ExitCode, LaunchError

    if len(files) != 2:
        raise LaunchError("measure.two_runs", ExitCode.USAGE, found=len(files))
    check_picture(plot)
    before, after = (load(Path(name)) for name in files)
    if plot is not None:
        draw(plot, [("A: " + Path(files[0]).stem, before), ("B: " + Path(files[1]).stem, after)])
    bench_view.show_comparison(before, after, as_json)
