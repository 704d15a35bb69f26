"""The use case of ``gaudi-launch bench``: measure a server under load.

Our client or another tool measures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.base.plotting import check_picture, write_picture
from gaudi_launch.core.launch.prediction import of_record
from gaudi_launch.core.launch.saved_plan import read
from gaudi_launch.core.predict.load import from_ranges
from gaudi_launch.core.predict.simulate import Outcome
from gaudi_launch.core.services.endpoint import Target, api_key, target
from gaudi_launch.core.services.run_record import RunRecord, run_so_far
from gaudi_launch.core.services.state import chosen, registry
from gaudi_launch.extensions.bench import external_tools, measurement, protocols, server
from gaudi_launch.extensions.bench.client import Client, ServerError
from gaudi_launch.extensions.bench.measurement import (
    child_environment,
    default_file,
    problem,
    server_facts,
)
from gaudi_launch.extensions.bench.options import CONCURRENCY, BenchOptions
from gaudi_launch.extensions.bench.plot import picture, titles
from gaudi_launch.extensions.bench.run_file import (
    BenchRun,
    check_writable,
    load,
    save,
)
from gaudi_launch.extensions.bench.server import new_seed
from gaudi_launch.extensions.bench.workload import REQUESTS, workload_of

if TYPE_CHECKING:
    from gaudi_launch.extensions.bench.learn import LearnOutcome
    from gaudi_launch.extensions.bench.replay import Going

BUILTIN = "builtin"
_ENGINES_CLIENT = "vllm"
PRINTED_ONLY = "inference-benchmarker"


@dataclass(frozen=True)
class BenchCase:
    """A measurement: the server, the load and the tool.

    ``program`` is that of another tool, ``differences`` what was given in place of the load of
    --plan.
    """

    options: BenchOptions
    found: Target
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
class BenchReport:
    """A run with its files, what was predicted of it, and what was learned from it.

    ``problem`` where its file cannot be written, or nothing can be learned from it.
    """

    run: BenchRun
    path: Path | None = None
    predicted: Outcome | None = None
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
    if options.trace and options.tool not in ("auto", BUILTIN):
        raise LaunchError("measure.tool_no_trace", ExitCode.USAGE, tool=options.tool)
    if options.seconds is not None and not options.trace:
        raise LaunchError("measure.seconds_trace", ExitCode.USAGE)
    found = target(words[0] if words else None)
    tool, program = _choose(options, found)
    # a run of the same texts would be answered from the prefix cache, and look like a faster
    # server
    texts = new_seed() if options.seed is None else options.seed
    return BenchCase(replace(options, texts=texts), found, tool, program, differences)


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
    if not words:
        ready = (each for each in registry.services() if each.phase == "ready")
        words = (next((each.name for each in ready if each.url == saved.url), saved.url),)
    return words, replace(options, **changes), tuple(differences)


def _choose(options: BenchOptions, found: Target) -> tuple[str, str]:
    """Return the tool and its program.

    auto: the engine's client, else ours. Only ours supports ranges of lengths, a limit in addition
    to a rate, a trace, an API, and answers of any length.
    """
    wanted, python = options.tool, found.python
    if wanted not in ("auto", _ENGINES_CLIENT):
        return wanted, ""
    if not _is_plain(options):
        if wanted == _ENGINES_CLIENT:
            raise LaunchError("measure.tool_plain", ExitCode.USAGE, tool=wanted)
        return BUILTIN, ""
    if python is not None and external_tools.has_vllm_client(python):
        return _ENGINES_CLIENT, python
    if wanted == _ENGINES_CLIENT:
        raise LaunchError("measure.no_vllm", ExitCode.FAILED, python=python or "-")
    return BUILTIN, ""


def _is_plain(options: BenchOptions) -> bool:
    """Return True for a load that other tools can make."""
    if options.trace or options.form != "auto" or options.stop_early:
        return False
    limited_rate = options.rate is not None and options.concurrency is not None
    return options.fixed_lengths and not limited_rate


def measure(case: BenchCase, watcher: BenchWatcher) -> BenchRun:
    """Measure with the chosen tool; of simulated cards in the time of cards.

    Raises LaunchError.
    """
    before = _run_so_far(case.found)
    scale = 1.0 if before is None else before.time_scale
    if case.with_our_client:
        run = _with_our_client(case, watcher.going, scale)
    else:
        run = _with_tool(case, watcher.say, scale)
    after = _run_so_far(case.found)
    if before is None or after is None:
        return run
    facts = {**run.facts, "simulated_run": after.after(before).to_json()}
    return replace(run.slowed(scale), facts=facts)


def _run_so_far(found: Target) -> RunRecord | None:
    """Return the record of simulated cards; None for other services and for a URL."""
    if found.name is None or mapping(found.plan.get("engine")).get("simulated") is not True:
        return None
    service = chosen.find(found.name)
    return run_so_far(service.folder, service.state.get("engine_began"))


def _with_our_client(case: BenchCase, going: Callable[[Going], None], scale: float) -> BenchRun:
    options = case.options
    workload = workload_of(options)
    if options.form not in ("auto", *protocols.FORMS):
        known = ", ".join(("auto", *protocols.FORMS))
        raise LaunchError("measure.form", ExitCode.USAGE, found=options.form, known=known)
    client = Client(case.found.url, api_key=api_key(), timeout=options.timeout)
    made = measurement.builtin(client, case.found, workload, options, going, scale)
    return asyncio.run(made)


def for_tool(case: BenchCase) -> BenchCase:
    """Return the measurement for another tool, with all that it has to be given.

    The server is queried for its model's name if that is unknown.
    """
    found, options = case.found, case.options
    name = options.model or found.model
    if name is None:
        try:
            name = asyncio.run(server.look(Client(found.url, api_key=api_key(), timeout=10))).model
        except ServerError as error:
            raise problem(error, found.url) from None
    requests = options.requests or REQUESTS
    complete = replace(options, requests=requests, concurrency=options.most_at_once)
    return replace(case, found=replace(found, model=name), options=complete)


def _with_tool(case: BenchCase, say: Callable[[str], None], scale: float) -> BenchRun:
    """Measure with another tool, after our own client saw that the server answers.

    Raises LaunchError.
    """
    case, key = for_tool(case), api_key()
    _check_server(case, key)
    say(message("measure.tool_runs", tool=case.tool, program=case.program).render())
    began = time.time()
    environment = child_environment(case.found.url, key)
    load = case.options
    report = external_tools.run_vllm(
        case.program, case.found, case.tokenizer, load, environment, scale
    )
    facts = {"tool": case.tool, **server_facts(case.found, case.model), "form": "completions"}
    facts |= {"began": began, "interrupted": False}
    summary = external_tools.vllm_summary(report)
    return BenchRun(facts, workload_of(case.options).to_json(), summary, (), report)


def _check_server(case: BenchCase, key: str | None) -> None:
    """Refuse a server that does not answer, writes nothing, or takes no such lengths.

    Another tool would count failures, or measure something else. Raises LaunchError.
    """

    async def ask() -> None:
        client = Client(case.found.url, api_key=key)
        served = await server.look(client, case.model)
        await server.pick_form(client, served)
        tokens = case.options.inputs[1] + case.options.outputs[1]
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


def kept(case: BenchCase, run: BenchRun) -> BenchReport:
    """Write a run; return it with the prediction for this load."""
    if case.options.save is None:
        path = default_file(case.found.label, float(run.facts["began"]))
    else:
        path = Path(case.options.save)
    try:
        save(run, path)
    except LaunchError as error:
        return BenchReport(run, problem=error)
    return BenchReport(run, path, _predicted(case))


def _predicted(case: BenchCase) -> Outcome | None:
    """Return what the step-time model expects of this load.

    Return None for a trace, and for a server that is not a service of this machine.
    """
    options = case.options
    if options.trace or not case.found.plan or options.outputs[1] < 2:
        return None
    load = from_ranges(options.inputs, options.outputs)
    if options.rate is not None:
        return of_record(case.found.plan, load.at_rate(options.rate))
    return of_record(case.found.plan, load.of_clients(options.concurrency or CONCURRENCY))


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
