"""The use case of ``gaudi-launch tune``: measure candidates, keep the best.

Successive halving: in each round every candidate that is left is started and measured, the better
half continues with twice the requests. The last round measures the best and the first plan three
times each: the first one stays unless the other is better by more than the repeats differ. Where
time is short, rounds are left out rather than candidates.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import OptionRecord, switch, text, value, values
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.engines.entries import entry
from gaudi_launch.core.launch import route, saved_plan
from gaudi_launch.core.launch.prepared import prepare
from gaudi_launch.core.launch.report import Reporter, Silent
from gaudi_launch.core.launch.route import checked_plan
from gaudi_launch.core.launch.saved_plan import SavedTraffic, hash_of, merged, on_this_machine, read
from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.option_table import UPSTREAM, option_table
from gaudi_launch.core.planning.parse import if_given, number
from gaudi_launch.core.planning.secret_args import refuse_secret_args
from gaudi_launch.core.predict.balance import balanced
from gaudi_launch.core.services.addresses import system_port
from gaudi_launch.core.services.state import registry
from gaudi_launch.extensions.bench import case as bench
from gaudi_launch.extensions.bench.case import BenchCase, BenchWatcher
from gaudi_launch.extensions.bench.options import BenchOptions
from gaudi_launch.extensions.bench.run_file import BenchRun
from gaudi_launch.extensions.bench.tune.state import (
    TuneCandidate,
    TuneFigure,
    TuneStart,
    TuneState,
    new_folder,
)

_log = logging.getLogger(__name__)

GOALS = ("balanced", "throughput", "latency")
_MOST_MINUTES = 7 * 24 * 60
_INPUT, _OUTPUT = "256", "64"
# more clients than this make a round long, not its result better (assumed)
_MOST_CLIENTS = 32
_ROUNDS_OF_CLIENTS, _FEWEST_REQUESTS = 2, 16
_REPEATS = 3
# assumed: repeats on one host differ by this share, also where three of them do not show it
_LEAST_NOISE = 0.03
# assumed: the same where nothing was measured twice
_UNKNOWN_NOISE = 0.1
# a trial may take this much longer than those before it
_MARGIN = 1.15

_SEARCH, _TRAFFIC = "Search", "Traffic"
_clients_of = partial(number, most=10_000)


@dataclass(frozen=True)
class TuneOptions(OptionRecord):
    """The options as typed; empty where not given."""

    plans: tuple[str, ...] = values(
        help="Files that --save wrote. Options after -- are passed to the engine unchanged.",
        metavar="PLAN.yaml... [-- ENGINE OPTIONS]",
    )
    minutes: int = text(
        "--minutes",
        help="Time for all starts and measurements.",
        panel=_SEARCH,
        metavar="N",
        default="30",
        read=partial(number, most=_MOST_MINUTES),
    )
    goal: str = text(
        "--for",
        help="balanced, throughput or latency.",
        panel=_SEARCH,
        metavar="GOAL",
        default="balanced",
    )
    no_doctor: bool = switch(
        "--no-doctor", help="Start although a check of the machine fails.", panel=_SEARCH
    )
    concurrency: int | None = value(
        "--concurrency",
        help="Clients that each wait for an answer (default: those of the first plan).",
        panel=_TRAFFIC,
        metavar="N",
        read=_clients_of,
    )
    rate: str = text(
        "--rate",
        help="Requests per second, independent of answers.",
        panel=_TRAFFIC,
        metavar="RATE",
    )
    trace: str = text(
        "--trace",
        help="Replay past requests at their recorded times.",
        panel=_TRAFFIC,
        metavar="FILE",
    )
    requests: int | None = value(
        "--requests",
        help="Requests of the first round.",
        panel=_TRAFFIC,
        metavar="N",
        read=partial(number, most=10**6),
    )


@dataclass(frozen=True)
class TuneOutcome:
    """A search with its answer.

    ``best`` and ``given`` are their last measured starts. ``noise`` is the share by which repeats
    differ; ``gain`` the best's score over that of the given plan.
    """

    state: TuneState
    best: TuneStart
    given: TuneStart | None
    noise: float
    gain: float | None
    file: Path
    in_time: bool

    @property
    def simulated(self) -> bool:
        """Report whether the cards were simulated: no time is one of Gaudi cards."""
        return is_simulated(self.state.candidates[0].options)

    @property
    def is_given(self) -> bool:
        """Report whether the given plan stays."""
        return self.best.candidate == 0

    @property
    def winner(self) -> TuneCandidate:
        return self.state.candidates[self.best.candidate]


@dataclass(frozen=True)
class TuneTrial:
    """One launch to measure: ``repeats`` runs of ``requests`` each."""

    candidate: int
    round: int
    requests: int
    repeats: int
    last: bool


Measure = Callable[[TuneState, TuneTrial, float], TuneStart]
"""Starts and measures a candidate within this many seconds, if it can."""


def is_simulated(options: LaunchOptions) -> bool:
    """Return True for an engine whose cards are simulated."""
    return bool(entry(options.engine or "auto").machine)


def tune(state: TuneState, seconds: float, save: Path | None, tools: TuneTools) -> TuneOutcome:
    """Return the measured best plan of a search, written to a file for ``--plan``.

    Raises LaunchError: (ENGINE) where no candidate could be measured, and what serve says of the
    given plan.
    """
    given = state.candidates[0].options
    checked_plan(_on_a_port(given)).refuse(no_doctor=tools.no_doctor)

    def measure(state: TuneState, trial: TuneTrial, left: float) -> TuneStart:
        return start_and_measure(state, trial, left, tools)

    return finish(*search(state, measure, seconds), save)


def begin(options: LaunchOptions, given: TuneOptions) -> TuneState:
    """Return a new search of the given files, each with these options.

    Raises LaunchError.
    """
    files = _files(options, given)
    # the best plan is a file
    refuse_secret_args(engine_args(table=option_table(UPSTREAM), user=options.extra))
    planned = [_planned(merged(replace(options, plan_file=str(file)))) for file in files]
    saved = read(files[0]).traffic
    named = given.concurrency or if_given(_clients_of, "--concurrency", saved.concurrency)
    clients = named or _clients(planned[0])
    traffic = _traffic(options, given, saved, clients)
    requests = given.requests or max(_FEWEST_REQUESTS, _ROUNDS_OF_CLIENTS * clients)
    return TuneState(
        folder=new_folder(planned[0], traffic, given.goal),
        goal=given.goal,
        traffic=traffic,
        requests=requests,
        candidates=tuple(_candidate(*each) for each in zip(files, planned, strict=True)),
    )


def _files(options: LaunchOptions, given: TuneOptions) -> list[Path]:
    """Return the files to try. Raises LaunchError (USAGE)."""
    if given.goal not in GOALS:
        raise LaunchError("tune.goal", ExitCode.USAGE, found=given.goal, known=", ".join(GOALS))
    if given.rate and given.concurrency:
        raise LaunchError("capacity.one_demand", ExitCode.USAGE)
    files = [Path(file) for file in given.plans or [options.plan_file or ""]]
    if not any(file.is_file() for file in files):
        found = " ".join(given.plans) or options.model or "-"
        raise LaunchError("tune.plans", ExitCode.USAGE, found=found)
    return files


def _traffic(
    options: LaunchOptions, given: TuneOptions, saved: SavedTraffic, clients: int
) -> SavedTraffic:
    """Return the load to measure: as given, else that of the first plan."""
    traffic = SavedTraffic(
        input=options.text("input_range") or saved.input or _INPUT,
        output=options.text("output_range") or saved.output or _OUTPUT,
        rate=given.rate,
        trace=given.trace,
    )
    if not (given.rate or given.concurrency or given.trace):
        traffic = replace(traffic, rate=saved.rate, trace=saved.trace)
    if not (traffic.rate or traffic.trace):
        traffic = replace(traffic, concurrency=str(clients))
    return traffic


def _candidate(file: Path, options: LaunchOptions) -> TuneCandidate:
    plan = prepare(options).plan()
    return TuneCandidate(file.name, options, max(1, len(plan.placement.modules)), hash_of(plan))


def _planned(options: LaunchOptions) -> LaunchOptions:
    """Return the options for this machine.

    Without -i and -o, which are the load too, where the engine has none. Raises LaunchError.
    """
    options = on_this_machine(options)
    # simulated cards run here, on whatever machine they are of
    if options.machine and not is_simulated(options):
        raise LaunchError("tune.machine", ExitCode.USAGE, found=options.machine)
    if not (options.input_range or options.output_range):
        return options
    unloaded = replace(options, input_range=None, output_range=None)
    return unloaded if "-i" in prepare(unloaded).engine.innermost.lacks else options


def _clients(options: LaunchOptions) -> int:
    """Return the number of clients that a plan serves."""
    prepared = prepare(options)
    served = prepared.engine.limits(prepared.request, prepared.host, prepared.model).max_num_seqs
    return min(served, _MOST_CLIENTS)


def search(
    state: TuneState, measure: Measure, seconds: float, clock: Callable[[], float] = time.monotonic
) -> tuple[TuneState, bool]:
    """Run the rounds for which there is time, within ``seconds``.

    Return False with the state where rounds were left out.
    """
    deadline = clock() + seconds
    halving = _Halving(state, measure, deadline, clock)
    halving.run()
    return halving.state, halving.in_time


class _Halving:
    """The rounds of one search."""

    def __init__(
        self, state: TuneState, measure: Measure, deadline: float, clock: Callable[[], float]
    ) -> None:
        self.state = state
        self.measure = measure
        self.deadline = deadline
        self.clock = clock
        self.in_time = True

    def run(self) -> None:
        """Run the rounds, and note where there was no time for all of them."""
        left = list(range(len(self.state.candidates)))
        number = 0
        requests = self.state.requests
        while len(left) > 2 and self.in_time:
            for candidate in left:
                self._try(
                    TuneTrial(candidate, number, requests, 1, last=False),
                    self._last(left, number, requests),
                )
            if self.in_time:
                ranked = sorted(left, key=lambda candidate: -self._score(candidate))
                able = [candidate for candidate in ranked if self._score(candidate) > 0]
                left = able[: max(2, (len(left) + 1) // 2)]
                number += 1
                requests *= 2
        if not self.in_time:
            # what was not measured yet, once, while there is time
            for candidate in left:
                if self.state.best_start(candidate) is None:
                    self._try(TuneTrial(candidate, 0, self.state.requests, 1, last=False), ())
        trials = self._last(left, number, requests)
        if self._is_time_for(trials):
            for trial in trials:
                self._try(trial, ())
        else:
            self.in_time = False

    def _last(self, left: Sequence[int], number: int, requests: int) -> list[TuneTrial]:
        """Return the trials of the last round: the given plan, and the best other."""
        others = [candidate for candidate in left if candidate != 0]
        best = max(others, key=self._score, default=None)
        finalists = [0] if best is None else [0, best]
        return [
            TuneTrial(candidate, number, requests, _REPEATS, last=True) for candidate in finalists
        ]

    def _try(self, trial: TuneTrial, later: Sequence[TuneTrial]) -> None:
        """Measure a candidate unless time is too short.

        ``later``: trials for which time has to be left.
        """
        if not self._is_time_for((trial, *later)):
            self.in_time = False
            return
        left = self.deadline - self.clock()
        start = self.measure(self.state, trial, left)
        self.state = replace(self.state, starts=(*self.state.starts, start))

    def _is_time_for(self, trials: Sequence[TuneTrial]) -> bool:
        return self.deadline - self.clock() >= _MARGIN * sum(
            self._seconds(trial) for trial in trials
        )

    def _seconds(self, trial: TuneTrial) -> float:
        """Return how long a trial takes, by the starts so far; 0 before the first one."""
        starts = [start for start in self.state.starts if start.figures]
        if not starts:
            return max((start.seconds for start in self.state.starts), default=0.0)
        own = [start for start in starts if start.candidate == trial.candidate] or starts
        begin = max(start.start_seconds for start in starts)
        each = max((start.seconds - start.start_seconds) / start.requests for start in own)
        return begin + each * trial.requests * trial.repeats

    def _score(self, candidate: int) -> float:
        start = self.state.best_start(candidate)
        return start.score if start is not None else 0.0


def noise_of(starts: Sequence[TuneStart]) -> float:
    """Return the share by which repeats differ at most."""
    shares: list[float] = []
    for start in starts:
        scores = [figure.score for figure in start.figures]
        if len(scores) > 1 and start.score > 0:
            shares.append((max(scores) - min(scores)) / 2 / start.score)
    if shares:
        return max(_LEAST_NOISE, *shares)
    return _UNKNOWN_NOISE


def decide(state: TuneState) -> tuple[TuneStart, TuneStart | None, float]:
    """Return the best start, that of the given plan and the noise of repeats.

    Raises LaunchError (ENGINE) where nothing was measured.
    """
    measured = state.decisive
    if not measured:
        failed = next((start.why for start in state.starts if start.why), "-")
        raise LaunchError("tune.nothing", ExitCode.ENGINE, why=failed)
    given = next((start for start in measured if start.candidate == 0), None)
    noise = noise_of(measured)
    best = max(measured, key=lambda start: start.score)
    if given is not None and best.score <= given.score * (1 + noise):
        best = given
    return best, given, noise


def finish(state: TuneState, in_time: bool, save: Path | None) -> TuneOutcome:
    """Return the answer, with its plan in a file. Raises LaunchError."""
    best, given, noise = decide(state)
    gain = None
    if given is not None and given.score:
        gain = best.score / given.score
    options = state.candidates[best.candidate].options
    made, _ = route.plan(options)
    file = save or state.folder / "best.yaml"
    saved_plan.write(file, options, made, goal=state.goal, traffic=state.traffic)
    return TuneOutcome(state, best, given, noise, gain, file, in_time)


@dataclass(frozen=True)
class TuneTools:
    """The receivers of progress; ``no_doctor``: no checks of the machine."""

    reporter: Reporter
    watcher: BenchWatcher
    no_doctor: bool = False


def start_and_measure(
    state: TuneState, trial: TuneTrial, left: float, tools: TuneTools
) -> TuneStart:
    """Start a candidate as ``serve`` does, measure it as ``bench`` does, and stop it.

    A candidate that does not start, or not within ``left`` seconds, is a failed start. Ctrl-C stops
    it, too.
    """
    from gaudi_launch.core.launch import serve

    one = state.candidates[trial.candidate]
    name = f"tune-{state.folder.parent.name[-8:]}"
    began = time.monotonic()
    tools.reporter.say(message("tune.starts", round=trial.round + 1, name=one.name).render())
    ready = 0.0
    figures: tuple[TuneFigure, ...] = ()
    why = ""
    try:
        service = serve.start(
            _on_a_port(one.options),
            serve.ServeMode(name=name, no_doctor=tools.no_doctor, quiet=True, detach=True),
            Silent(),
        )
        service.wait_ready(left)
        ready = time.monotonic() - began
        figures = _measured(state, trial, name, tools.watcher)
        _learn(state, one, figures)
    except LaunchError as error:
        why = error.text.render()
        _log.debug("candidate %s failed: %s", one.name, why)
    finally:
        _stop(name)
    seconds = time.monotonic() - began
    sent = trial.requests * trial.repeats
    start = TuneStart(trial.candidate, trial.round, trial.last, ready, seconds, sent, figures, why)
    middle = start.middle
    if middle is not None:
        words = {"tokens": f"{middle.tokens:.4g}", "ttft": f"{1000 * middle.ttft:.3g}"}
        said = message("tune.measured", name=one.name, **words, tpot=f"{1000 * middle.tpot:.3g}")
    else:
        said = message("tune.failed", name=one.name, why=why)
    tools.reporter.say(said.render())
    return start


def _measured(
    state: TuneState, trial: TuneTrial, name: str, watcher: BenchWatcher
) -> tuple[TuneFigure, ...]:
    def sent(case: BenchCase) -> BenchRun:
        run = bench.measure(case, watcher)
        if run.interrupted:
            raise KeyboardInterrupt
        return run

    # the first requests compile and allocate; they are not counted
    sent(_bench_case(state, name, _FEWEST_REQUESTS))
    found: list[TuneFigure] = []
    for repeat in range(trial.repeats):
        stem = f"{trial.round + 1}{'-last' if trial.last else ''}-{trial.candidate}-{repeat + 1}"
        file = state.folder / f"{stem}.json"
        case = _bench_case(state, name, trial.requests, file)
        run = sent(case)
        bench.kept(case, run)
        cards = state.candidates[trial.candidate].cards
        found.append(figure_of(run, file.name, state.goal, cards))
    return tuple(found)


def _bench_case(state: TuneState, name: str, requests: int, file: Path | None = None) -> BenchCase:
    load: dict[str, Any] = state.traffic.to_json()
    save = mapped(str, file)
    options = BenchOptions(**load, requests=requests, tool=bench.BUILTIN, save=save)
    return bench.prepare((name,), options)


def figure_of(run: BenchRun, file: str, goal: str, cards: int) -> TuneFigure:
    """Return the figures of one run, by the goal.

    Raises LaunchError (ENGINE) for a run in which requests failed.
    """
    summary = run.summary
    if summary.get("failed") or not summary.get("completed"):
        failed, requests = summary.get("failed"), summary.get("requests")
        raise LaunchError("tune.requests_failed", ExitCode.ENGINE, failed=failed, requests=requests)
    means = {
        name: float((summary.get(name) or {}).get("mean") or 0.0)
        for name in ("ttft", "tpot", "latency")
    }
    tokens = float(summary["output_rate"])
    return TuneFigure(file, tokens, **means, score=_score(goal, tokens, means, cards))


def _score(goal: str, tokens: float, means: dict[str, float], cards: int) -> float:
    if goal == "throughput":
        return tokens
    if goal == "latency":
        return 1 / max(means["latency"], 1e-9)
    return balanced(tokens / cards, ttft=max(means["ttft"], 1e-9), tpot=max(means["tpot"], 1e-9))


def _learn(state: TuneState, one: TuneCandidate, figures: Sequence[TuneFigure]) -> None:
    """Correct the speed model of this host; simulated cards teach nothing about it."""
    from gaudi_launch.extensions.bench.learn import learn

    if is_simulated(one.options):
        return
    try:
        learn([str(state.folder / figure.file) for figure in figures], "")
    except LaunchError as error:
        _log.debug("nothing was learned: %s", error)


def _on_a_port(options: LaunchOptions) -> LaunchOptions:
    """Return the options with a free port where none is given."""
    return replace(options, port=options.port or system_port())


def _stop(name: str) -> None:
    """Stop the service with all its processes, if there is one."""
    from gaudi_launch.core.services.stop import stop

    service = registry.read(name)
    if service is not None:
        stop(service, 0.0, lambda what, value: None)
