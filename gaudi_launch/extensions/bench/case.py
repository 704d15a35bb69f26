"""The use case of ``gaudi-launch bench``: measure a server under load.

Our client or another tool measures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import OptionRecord, switch, text, value
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.base.plotting import check_picture, write_picture
from gaudi_launch.core.launch.prediction import of_record
from gaudi_launch.core.launch.saved_plan import read
from gaudi_launch.core.planning import parse
from gaudi_launch.core.predict.load import from_ranges
from gaudi_launch.core.services.endpoint import Target, api_key, target
from gaudi_launch.core.services.state import registry
from gaudi_launch.extensions.bench import external_tools, measurement, protocols, server
from gaudi_launch.extensions.bench.client import Client, ServerError
from gaudi_launch.extensions.bench.measurement import (
    child_environment,
    default_file,
    problem,
    server_facts,
)
from gaudi_launch.extensions.bench.plot import picture, titles
from gaudi_launch.extensions.bench.run_file import (
    BenchRun,
    BenchWorkload,
    check_writable,
    load,
    save,
)
from gaudi_launch.extensions.bench.server import new_seed
from gaudi_launch.extensions.bench.workload import (
    CONCURRENCY,
    BenchNumbers,
    from_trace,
    made_up,
)

if TYPE_CHECKING:
    from gaudi_launch.core.launch.prediction import SpeedEstimate
    from gaudi_launch.core.services.run_record import RunRecord
    from gaudi_launch.extensions.bench.learn import LearnOutcome
    from gaudi_launch.extensions.bench.replay import Going

BUILTIN = "builtin"
_ENGINES_CLIENT = "vllm"
PRINTED_ONLY = "inference-benchmarker"
_REQUESTS = 40
_INPUT, _OUTPUT = (256, 256), (64, 64)

_LOAD, _HOW = "Load", "How to ask"


def _rate(flag: str, text: str) -> float:
    return float(parse.fraction(flag, text, 0.0001, 1e6))


@dataclass(frozen=True)
class BenchOptions(OptionRecord):
    """The server, the load and the tool; ``form`` and ``tool`` may be ``auto``."""

    trace: str = text(
        "--trace",
        help="Replay past requests at their recorded times: CSV or JSON lines.",
        panel=_LOAD,
        metavar="FILE",
    )
    rate: float | None = value(
        "--rate",
        help="Requests per second, independent of answers.",
        panel=_LOAD,
        metavar="RATE",
        read=_rate,
    )
    concurrency: int | None = value(
        "--concurrency",
        help="Maximum concurrent requests (default 4).",
        panel=_LOAD,
        metavar="N",
        read=partial(parse.number, most=10_000),
    )
    requests: int | None = value(
        "--requests",
        help="Number of requests (default 40; a trace: all).",
        panel=_LOAD,
        metavar="N",
        read=partial(parse.number, most=10**6),
    )
    seconds: float | None = value(
        "--seconds",
        help="Use only this first part of the trace: 90, 5m.",
        panel=_LOAD,
        metavar="TIME",
        read=partial(parse.seconds, least=0.0001, most=1e6),
    )
    input: tuple[int, int] | None = value(
        "-i",
        "--input",
        help="Input tokens: one length or MIN,MAX (default 256).",
        panel=_LOAD,
        metavar="RANGE",
        read=parse.pair,
    )
    output: tuple[int, int] | None = value(
        "-o",
        "--output",
        help="Output tokens: one length or MIN,MAX (default 64).",
        panel=_LOAD,
        metavar="RANGE",
        read=parse.pair,
    )
    seed: int | None = value(
        "--seed",
        help="Random seed of lengths and texts (default: new texts).",
        panel=_LOAD,
        metavar="N",
        read=partial(parse.number, least=0, most=10**6),
    )
    tool: str = text(
        "--tool",
        help="auto, builtin, vllm or inference-benchmarker (prints its docker command).",
        panel=_HOW,
        metavar="TOOL",
        default="auto",
    )
    form: str = text(
        "--form",
        help="auto, chat, completions or generate (TGI).",
        panel=_HOW,
        metavar="FORM",
        default="auto",
    )
    model: str | None = value(
        "--model", help="The model's name in requests.", panel=_HOW, metavar="NAME"
    )
    tokenizer: str | None = value(
        "--tokenizer", help="For other tools: folder or hub ID.", panel=_HOW, metavar="MODEL"
    )
    stop_early: bool = switch("--stop-early", help="Let the model end answers early.", panel=_HOW)
    timeout: float = text(
        "--timeout",
        help="Timeout without data of a request: 90, 5m.",
        panel=_HOW,
        metavar="TIME",
        default="600",
        read=parse.seconds,
    )
    save: str | None = value(
        "--save",
        help="File for the run (default: state folder).",
        panel="Output",
        metavar="FILE",
    )
    plan_file: str | None = value(
        "--plan",
        help="The load and the address of a plan that --save wrote.",
        panel=_LOAD,
        metavar="FILE",
    )


@dataclass(frozen=True)
class BenchCase:
    """A measurement: the server, the load and the tool.

    ``program`` is that of another tool, ``differences`` what was given in place of the load of
    --plan.
    """

    options: BenchOptions
    found: Target
    numbers: BenchNumbers
    tool: str
    program: str = ""
    differences: tuple[Message, ...] = ()

    @property
    def with_our_client(self) -> bool:
        """Report whether our own client sends the requests."""
        return self.tool == BUILTIN

    @property
    def model(self) -> str:
        """Return the model's name in requests."""
        assert self.found.model is not None, "for_tool queries it"
        return self.found.model

    @property
    def tokenizer(self) -> str:
        """Return a folder or hub ID for other tools, by default that of the plan's model."""
        path = mapping(self.found.plan.get("model")).get("path")
        return self.options.tokenizer or self.found.tokenizer or str(path or self.model)


@dataclass(frozen=True)
class BenchOutcome:
    """A run, and whether Ctrl-C ended it early."""

    run: BenchRun
    interrupted: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code of the measurement.

        DONE when every request succeeded, FAILED when some failed, ENGINE when all did,
        INTERRUPTED after Ctrl-C.
        """
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if not self.run.summary.get("failed"):
            return ExitCode.DONE
        if self.run.summary.get("completed"):
            return ExitCode.FAILED
        return ExitCode.ENGINE


@dataclass(frozen=True)
class BenchReport:
    """A run with its files, what was predicted of it, and what was learned from it.

    ``problem`` where its file cannot be written, or nothing can be learned from it.
    """

    run: BenchRun
    path: Path | None = None
    predicted: SpeedEstimate | None = None
    problem: LaunchError | None = None
    learned: LearnOutcome | None = None


class BenchWatcher(Protocol):
    """Receives what a measurement reports."""

    def say(self, line: str) -> None:
        """Receive a line of progress."""

    def going(self, state: Going) -> None:
        """Receive the progress of the launcher's client."""


def prepare(words: Sequence[str], options: BenchOptions) -> BenchCase:
    """Read the options, find the server and choose the tool.

    Raises LaunchError before anything is sent.
    """
    differences: tuple[Message, ...] = ()
    if options.plan_file is not None:
        words, options, differences = _of_saved(words, options, Path(options.plan_file))
    if len(words) > 1:
        raise LaunchError("measure.one_server", ExitCode.USAGE, found=" ".join(words))
    if options.tool not in external_tools.TOOLS:
        known = ", ".join(external_tools.TOOLS)
        raise LaunchError("measure.tool", ExitCode.USAGE, found=options.tool, known=known)
    if options.save is not None:
        check_writable(Path(options.save))
    numbers = _numbers(options)
    if options.trace and options.tool not in ("auto", BUILTIN):
        raise LaunchError("measure.tool_no_trace", ExitCode.USAGE, tool=options.tool)
    if options.seconds is not None and not options.trace:
        raise LaunchError("measure.seconds_trace", ExitCode.USAGE)
    found = target(words[0] if words else None)
    tool, program = _choose(options, found, numbers)
    return BenchCase(options, found, numbers, tool, program, differences)


def _of_saved(
    words: Sequence[str], options: BenchOptions, file: Path
) -> tuple[Sequence[str], BenchOptions, tuple[Message, ...]]:
    """Return server and load of a saved plan; what is given wins, and is listed.

    Raises LaunchError (USAGE).
    """
    saved = read(file)
    load = saved.traffic.to_json()
    if not load:
        raise LaunchError("saved.no_traffic", ExitCode.USAGE, path=str(file))
    if not words and not saved.url:
        raise LaunchError("saved.no_server", ExitCode.USAGE, path=str(file))
    differences: list[Message] = []
    # a load is one of these; a given one replaces the saved one
    demands = ("rate", "concurrency")
    given_demand = next((name for name in demands if getattr(options, name)), None)
    changes: dict[str, Any] = {}
    for name, before in load.items():
        given = options.text(name)
        if given and given != before:
            differences.append(
                message(
                    "saved.traffic",
                    option=f"--{name}",
                    now=given,
                    saved=before,
                    file=file.name,
                )
            )
        elif not given and not (name in demands and given_demand):
            changes[name] = before
    return words or (_service_at(saved.url),), replace(options, **changes), tuple(differences)


def _service_at(url: str) -> str:
    """Return the running service at this address, else the address."""
    return next(
        (each.name for each in registry.services() if each.url == url and each.phase == "ready"),
        url,
    )


def _numbers(options: BenchOptions) -> BenchNumbers:
    texts = options.seed
    if texts is None:
        # a run of the same texts would be answered from the prefix cache, and look like a faster
        # server
        texts = new_seed()
    return BenchNumbers(
        input=options.input or _INPUT,
        output=options.output or _OUTPUT,
        rate=options.rate,
        concurrency=options.concurrency,
        requests=options.requests,
        seconds=options.seconds,
        seed=options.seed or 0,
        texts=texts,
        timeout=options.timeout,
    )


def _choose(options: BenchOptions, found: Target, numbers: BenchNumbers) -> tuple[str, str]:
    """Return the tool and its program.

    auto: the engine's client, else ours. Only ours supports ranges of lengths, a limit in addition
    to a rate, a trace, an API, and answers of any length.
    """
    wanted, python = options.tool, found.python
    if wanted not in ("auto", _ENGINES_CLIENT):
        return wanted, ""
    if not _is_plain(options, numbers):
        if wanted == _ENGINES_CLIENT:
            raise LaunchError("measure.tool_plain", ExitCode.USAGE, tool=wanted)
        return BUILTIN, ""
    if python is not None and external_tools.has_vllm_client(python):
        return _ENGINES_CLIENT, python
    if wanted == _ENGINES_CLIENT:
        raise LaunchError("measure.no_vllm", ExitCode.FAILED, python=python or "-")
    return BUILTIN, ""


def _is_plain(options: BenchOptions, numbers: BenchNumbers) -> bool:
    """Return True for a load that other tools can make."""
    if options.trace or options.form != "auto" or options.stop_early:
        return False
    limited_rate = numbers.rate is not None and numbers.concurrency is not None
    return numbers.fixed_lengths and not limited_rate


def measure(case: BenchCase, watcher: BenchWatcher) -> BenchOutcome:
    """Measure with the chosen tool; of simulated cards in the time of cards.

    Raises LaunchError.
    """
    before = _run_so_far(case.found)
    scale = 1.0 if before is None else before.time_scale
    if case.with_our_client:
        outcome = _with_our_client(case, watcher.going, scale)
    else:
        outcome = _with_tool(case, watcher.say, scale)
    after = _run_so_far(case.found)
    if before is None or after is None:
        return outcome
    facts = {**outcome.run.facts, "simulated_run": after.after(before).to_json()}
    return replace(outcome, run=replace(outcome.run.slowed(scale), facts=facts))


def _run_so_far(found: Target) -> RunRecord | None:
    """Return the record of simulated cards; None for other services and for a URL."""
    from gaudi_launch.core.services.run_record import run_so_far

    if found.name is None or mapping(found.plan.get("engine")).get("simulated") is not True:
        return None
    service = registry.find(found.name)
    return run_so_far(service.folder, service.state.get("engine_began"))


def _with_our_client(case: BenchCase, going: Callable[[Going], None], scale: float) -> BenchOutcome:
    options, numbers = case.options, case.numbers
    workload = _workload(options.trace, numbers)
    form = options.form
    if form not in ("auto", *protocols.FORMS):
        known = ", ".join(("auto", *protocols.FORMS))
        raise LaunchError("measure.form", ExitCode.USAGE, found=form, known=known)
    client = Client(case.found.url, api_key=api_key(), timeout=numbers.timeout)
    manner = measurement.RequestManner(
        form=None if form == "auto" else form,  # type: ignore[arg-type]
        model=options.model,
        ignore_eos=not options.stop_early,
        texts=numbers.texts,
        time_scale=scale,
    )
    made, interrupted = asyncio.run(
        measurement.builtin(client, case.found, workload, going, manner)
    )
    return BenchOutcome(made, interrupted)


def _workload(trace: str, numbers: BenchNumbers) -> BenchWorkload:
    if trace:
        return from_trace(
            trace,
            rate=numbers.rate,
            requests=numbers.requests,
            seconds=numbers.seconds,
            concurrency=numbers.concurrency,
        )
    return made_up(
        requests=numbers.requests or _REQUESTS,
        input=numbers.input,
        output=numbers.output,
        rate=numbers.rate,
        concurrency=numbers.most_at_once,
        seed=numbers.seed,
    )


def for_tool(case: BenchCase) -> BenchCase:
    """Return the measurement for another tool, with all that it has to be given.

    The server is queried for its model's name if that is unknown.
    """
    found, numbers = case.found, case.numbers
    name = case.options.model or found.model
    if name is None:
        try:
            name = asyncio.run(server.look(Client(found.url, api_key=api_key(), timeout=10))).model
        except ServerError as error:
            raise problem(error, found.url) from None
    requests = numbers.requests or _REQUESTS
    complete = replace(numbers, requests=requests, concurrency=numbers.most_at_once)
    return replace(case, found=replace(found, model=name), numbers=complete)


def _with_tool(case: BenchCase, say: Callable[[str], None], scale: float) -> BenchOutcome:
    """Measure with another tool, after our own client saw that the server answers.

    Raises LaunchError.
    """
    case, key = for_tool(case), api_key()
    _check_server(case, key)
    say(message("measure.tool_runs", tool=case.tool, program=case.program).render())
    began = time.time()
    sent, environment = case.numbers, child_environment(case.found.url, key)
    if sent.rate is not None:
        sent = replace(sent, rate=sent.rate * scale)
    report = external_tools.run_vllm(case.program, case.found, case.tokenizer, sent, environment)
    facts = {"tool": case.tool, **server_facts(case.found, case.model), "form": "completions"}
    facts |= {"began": began, "interrupted": False}
    summary = external_tools.vllm_summary(report)
    planned = _workload("", case.numbers).to_json()
    return BenchOutcome(BenchRun(facts, planned, summary, (), report))


def _check_server(case: BenchCase, key: str | None) -> None:
    """Refuse a server that does not answer, writes nothing, or takes no such lengths.

    Another tool would count failures, or measure something else. Raises LaunchError.
    """

    async def ask() -> None:
        client = Client(case.found.url, api_key=key)
        served = await server.look(client, case.model)
        await server.pick_form(client, served)
        tokens = case.numbers.input[1] + case.numbers.output[1]
        if served.longest is not None and tokens > served.longest:
            raise LaunchError("measure.all_too_long", ExitCode.USAGE, longest=served.longest)

    try:
        asyncio.run(ask())
    except ServerError as error:
        raise problem(error, case.found.url) from None


def benchmarker_command(case: BenchCase) -> tuple[str, ...]:
    """Return the docker command of inference-benchmarker; it is shown, never run."""
    case, results = for_tool(case), state_dir() / "bench" / PRINTED_ONLY
    return tuple(external_tools.benchmarker_words(case.found, case.tokenizer, results))


def kept(case: BenchCase, outcome: BenchOutcome) -> BenchReport:
    """Write a run; return it with the prediction for this load."""
    run = outcome.run
    if case.options.save is None:
        path = default_file(case.found.label, float(run.facts["began"]))
    else:
        path = Path(case.options.save)
    try:
        save(run, path)
    except LaunchError as error:
        return BenchReport(run, problem=error)
    return BenchReport(run, path, _predicted(case))


def _predicted(case: BenchCase) -> SpeedEstimate | None:
    """Return what the step-time model expects of this load.

    Return None for a trace, and for a server that is not a service of this machine.
    """
    numbers = case.numbers
    if case.options.trace or not case.found.plan or numbers.output[1] < 2:
        return None
    load = from_ranges(numbers.input, numbers.output)
    if numbers.rate is not None:
        return of_record(case.found.plan, load.at_rate(numbers.rate))
    return of_record(case.found.plan, load.of_clients(numbers.concurrency or CONCURRENCY))


def comparison(files: Sequence[str], plot: Path | None) -> tuple[BenchRun, BenchRun]:
    """Read two saved runs, and draw both when there is a picture to write.

    Raises LaunchError.
    """
    if len(files) != 2:
        raise LaunchError("measure.two_runs", ExitCode.USAGE, found=len(files))
    if plot is not None:
        check_picture(plot)
    before, after = (load(Path(name)) for name in files)
    if plot is not None:
        title, subtitle = titles([before, after])
        samples = [(f"A: {Path(files[0]).stem}", before.samples)]
        samples.append((f"B: {Path(files[1]).stem}", after.samples))
        write_picture(plot, picture(samples, title, subtitle, plot.suffix.lower()))
    return before, after
