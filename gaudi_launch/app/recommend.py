"""The use case of ``gaudi-launch recommend``: options, search, plan."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gaudi_launch.app.fields import text
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gaudi_launch.app.prepare import Prepared
    from gaudi_launch.capacity.search import Targets
    from gaudi_launch.capacity.traffic import Traffic
    from gaudi_launch.host.hardware import Host
    from gaudi_launch.models.model import Model
    from gaudi_launch.planning.plan import Plan
    from gaudi_launch.recommend.finder import Recommendation
    from gaudi_launch.recommend.goal import Goal, GoalName
    from gaudi_launch.recommend.space import Candidate, CardPool, SearchCase, SearchedEngine

_log = logging.getLogger(__name__)

DEFAULT_INPUT, DEFAULT_OUTPUT = 1024, 256
_MOST_NODES, _MOST_CLIENTS = 100_000, 100_000_000
_MOST_START = 7 * 24 * 3600.0
_MOST_TOP = 20

# these cards cannot
UNMET = ExitCode.MACHINE

# after -- they decide, and serve would warn of another value
_ENGINE_OPTIONS = {
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "max_model_len": "--max-model-len",
    "max_prefill_seqs": "--max-num-prefill-seqs",
}

_GOAL, _TRAFFIC, _SHOW = "Goal", "Traffic", "Output"


@dataclass(frozen=True)
class RecommendOptions:
    """The goal and the traffic as typed; empty where not given."""

    goal: str = text(
        "--for", help="balanced, throughput, latency, context or cost.", panel=_GOAL, metavar="GOAL"
    )
    ttft: str = text(
        "--ttft", help="Time to first token: 1.5s, 800ms.", panel=_GOAL, metavar="TIME"
    )
    tpot: str = text(
        "--tpot", help="Time per output token: 0.05, 50ms.", panel=_GOAL, metavar="TIME"
    )
    e2e: str = text("--e2e", help="Time to the last token: 20s.", panel=_GOAL, metavar="TIME")
    percentile: str = text(
        "--percentile",
        help="Percentage of requests within the targets.",
        panel=_GOAL,
        metavar="P",
        default="95",
    )
    max_start: str = text(
        "--max-start", help="Maximum warm-up time: 90s, 10m.", panel=_GOAL, metavar="TIME"
    )
    rate: str = text(
        "--rate", help="Total request rate: 50/s, 3000/m, 2e6/d.", panel=_TRAFFIC, metavar="RATE"
    )
    concurrency: str = text(
        "--concurrency",
        help="Clients that each wait for an answer, instead of --rate.",
        panel=_TRAFFIC,
        metavar="N",
    )
    trace: str = text(
        "--trace",
        help="Past requests: CSV, JSON lines, /metrics page or URL.",
        panel=_TRAFFIC,
        metavar="FILE|URL",
    )
    arrivals: str = text(
        "--arrivals",
        help="poisson, or trace: the times of a trace with times (its default).",
        panel=_TRAFFIC,
        metavar="HOW",
    )
    accelerator: str = text(
        "--accelerator",
        help="gaudi2, gaudi3... (default: this machine).",
        panel="Cards",
        metavar="NAME",
    )
    nodes: str = text("--nodes", help="Number of servers of this kind.", panel="Cards", metavar="N")
    top: str = text("--top", help="Also show the best N configurations.", panel=_SHOW, metavar="N")


@dataclass(frozen=True)
class RecommendCase:
    """A search with its goal.

    ``options`` are those of the launch, ``machine`` is the one to plan for, ``top`` the number of
    configurations to list (0: none).
    """

    search: SearchCase
    goal: Goal
    options: LaunchOptions
    machine: str | None
    top: int


@dataclass(frozen=True)
class Recommended:
    """The answer with its plan.

    ``plan`` is None where no configuration meets the targets.

    ``launch`` are the options of one replica: those of ``serve``.
    """

    case: RecommendCase
    found: Recommendation
    launch: LaunchOptions | None
    plan: Plan | None


def read(options: LaunchOptions, given: RecommendOptions) -> RecommendCase:
    """Return the case of these options. Raises LaunchError for an impossible one."""
    from gaudi_launch.app.fit import (
        ServedLengths,
        check_writes,
        data_types,
        read_dtype,
        request_for,
        sized_model,
    )
    from gaudi_launch.app.unknown_model import unknown_model
    from gaudi_launch.planning.parse import number
    from gaudi_launch.recommend.space import CARDS, SearchCase, SearchedEngine

    if not options.model:
        raise LaunchError("plan.no_model", ExitCode.USAGE)
    if options.tuning == "reference":
        raise LaunchError("recommend.reference", ExitCode.USAGE)
    read_dtype(options.dtype or "")
    name, goal_targets = _goal_name(given), _targets(given)
    top = number("--top", given.top, 1, _MOST_TOP) if given.top else 0
    notes: list[Message] = []
    machine, host = _machine(options, given, notes)
    model = sized_model(options.model)
    check_writes(model)
    if not options.force:
        # lengths that the model or -l does not have are refused as in fit
        ranges = (options.input_range or "", options.output_range or "")
        request_for(model, ServedLengths(options.max_model_len or "", "", *ranges))
    unknown = unknown_model(options.model, model)
    if unknown is not None:
        notes.append(unknown)
    load = _load(options, given, model, notes)
    goal = _goal(name, goal_targets, given, load)
    prepared = _prepared(options, machine)
    engine = prepared.engine
    cards: tuple[int, ...] = CARDS
    if options.cards or options.modules:
        cards = (_cards_given(options),)
    searched = SearchedEngine(
        engine,
        prepared.request,
        tuple(data_types(model, prepared.request.dtype or "", engine)),
    )
    search = SearchCase(
        model=model,
        pool=_pool(host, options, given, goal),
        engines=(searched,),
        traffic=load.traffic,
        lengths=load.lengths,
        cards=cards,
        longest=load.longest,
        context=goal.name == "context",
        notes=tuple(notes),
        others=_other_engines(options, prepared, model),
    )
    return RecommendCase(search, goal, options, machine, top)


def solve(case: RecommendCase, progress: Callable[[int, int], None] | None = None) -> Recommended:
    """Search, and plan the best answer that can be planned.

    Raises LaunchError where the model fits no number of these cards.
    """
    from gaudi_launch.buckets.warmup_time import FILE_NAME, read_measured
    from gaudi_launch.paths import state_dir
    from gaudi_launch.recommend.finder import find, without

    found = find(case.search, case.goal, progress, read_measured(state_dir() / FILE_NAME))
    while found.winner is not None:
        launch = launch_options(case, found.winner.candidate)
        try:
            plan = _planned(case, launch)
            _check_start(case.goal, plan)
            return Recommended(case, found, launch, plan)
        except LaunchError as error:
            _log.debug("the best configuration has no plan: %s", error)
            found = without(found, found.winner, error.text)
    return Recommended(case, found, None, None)


def save(found: Recommended, given: RecommendOptions, file: Path) -> bool:
    """Write the answer for ``--plan``; return False where there is none.

    Its load is that of one replica. Raises LaunchError.
    """
    from gaudi_launch.app.saved_plan import SavedTraffic, write

    winner = found.found.winner
    if found.launch is None or found.plan is None or winner is None or winner.served is None:
        return False
    goal, replicas = found.case.goal, winner.served.replicas
    clients = -(-goal.clients // replicas) if goal.clients else winner.candidate.batch
    traffic = SavedTraffic(
        input=found.launch.input_range or str(DEFAULT_INPUT),
        output=found.launch.output_range or str(DEFAULT_OUTPUT),
        rate=f"{goal.rate / replicas:.6g}" if goal.rate else "",
        concurrency="" if goal.rate else str(clients),
        trace=given.trace,
    )
    write(file, found.launch, found.plan, goal=goal.name, traffic=traffic)
    return True


def launch_options(case: RecommendCase, candidate: Candidate) -> LaunchOptions:
    """Return the options of ``serve`` for one replica of a candidate.

    Every given option is among them.
    """
    from gaudi_launch.recommend.space import prefix_arguments, ranges_of, takes

    options, search = case.options, case.search
    searched = search.engine(candidate.engine)
    engine = searched.engine.innermost
    inputs, outputs = ranges_of(search, candidate)
    changes: dict[str, str] = {
        "max_num_seqs": str(candidate.batch),
        "max_model_len": str(candidate.length),
    }
    if not options.modules:
        changes["cards"] = str(candidate.cards)
    if takes(engine, "-t"):
        changes["max_num_batched_tokens"] = str(candidate.tokens)
    if takes(engine, "--max-prefill-seqs"):
        changes["max_prefill_seqs"] = str(candidate.prompts)
    if takes(engine, "-i") and not options.input_range:
        changes["input_range"] = f"{inputs[0]},{inputs[1]}"
    if takes(engine, "-o") and not options.output_range:
        changes["output_range"] = f"{outputs[0]},{outputs[1]}"
    if candidate.padding:
        changes["padding_limit"] = candidate.padding
    if not options.dtype and candidate.dtype not in (search.model.quantization, "bfloat16"):
        changes["dtype"] = candidate.dtype
    args = searched.request.args
    kept = {
        name: value
        for name, value in changes.items()
        if not args.has(_ENGINE_OPTIONS.get(name, "--"))
    }
    return replace(options, extra=(*options.extra, *prefix_arguments(searched, candidate)), **kept)  # type: ignore[arg-type]


def serve_command(launch: LaunchOptions) -> tuple[str, ...]:
    """Return the command line of ``serve`` with these options, for this machine."""
    from dataclasses import fields

    from gaudi_launch.app.fields import option_of

    found = ["gaudi-launch", "serve", launch.model or ""]
    for field in fields(launch):
        option, value = option_of(field), getattr(launch, field.name)
        if option is None or not option.names or not value or field.name in ("model", "machine"):
            continue
        found += [option.names[0]] if option.switch else [option.names[0], str(value)]
    return (*found, "--", *launch.extra) if launch.extra else tuple(found)


def _check_start(goal: Goal, plan: Plan) -> None:
    """Raise LaunchError (MACHINE) for a plan whose warm-up takes too long."""
    if (
        goal.most_start is None
        or plan.estimate is None
        or plan.estimate.high_seconds <= goal.most_start
    ):
        return
    seconds = f"{plan.estimate.high_seconds:.0f}"
    raise LaunchError(
        "recommend.slow_start", ExitCode.MACHINE, seconds=seconds, most=f"{goal.most_start:.0f}"
    )


def _planned(case: RecommendCase, launch: LaunchOptions) -> Plan:
    """Return the plan as ``plan`` makes it. Raises LaunchError."""
    from gaudi_launch.app.prepare import prepare

    return prepare(replace(launch, machine=case.machine)).plan()


def _prepared(options: LaunchOptions, machine: str | None) -> Prepared:
    """Return the inputs of the plans, without the number of cards."""
    from gaudi_launch.app.prepare import prepare
    from gaudi_launch.engines import registry

    # without a number, prepare would look for the fewest cards
    cards = options.cards or (None if options.modules else "1")
    prepared = prepare(replace(options, cards=cards, machine=machine))
    if not registry.takes_cards(prepared.engine.identity.label):
        known = ", ".join(registry.names_with_cards())
        raise LaunchError(
            "fit.engine", ExitCode.USAGE, found=prepared.engine.identity.label, known=known
        )
    return prepared


def _other_engines(
    options: LaunchOptions, prepared: Prepared, model: Model
) -> tuple[SearchedEngine, ...]:
    """Return the engines that run the model too, where none is named or installed."""
    from gaudi_launch.app.fit import data_types
    from gaudi_launch.engines import registry
    from gaudi_launch.recommend.space import SearchedEngine

    if registry.is_decided(prepared.request.engine, prepared.installed):
        return ()
    found: list[SearchedEngine] = []
    for name in registry.names_with_cards():
        engine = registry.find(name)
        request = replace(prepared.request, engine=name)
        same = engine.identity.name == prepared.engine.identity.name
        if same or engine.in_container or engine.support(model).refused:
            continue
        try:
            engine.refuse(request, prepared.host, model)
        except LaunchError as error:
            _log.debug("%s is not compared: %s", name, error)
            continue
        found.append(
            SearchedEngine(engine, request, tuple(data_types(model, request.dtype or "", engine)))
        )
    return tuple(found)


def _cards_given(options: LaunchOptions) -> int:
    from gaudi_launch.app.options import to_request

    request = to_request(options)
    if request.modules is not None:
        return len(request.modules)
    assert request.cards is not None, "one of both was given"
    return request.cards


def _machine(
    options: LaunchOptions, given: RecommendOptions, notes: list[Message]
) -> tuple[str | None, Host]:
    """Return the machine to plan for, and what it is.

    A full server of the product where it is named, or where this machine has no card.
    """
    from gaudi_launch.app.fit import product_for
    from gaudi_launch.app.machine import load
    from gaudi_launch.host.simulated import server_of

    if given.accelerator and options.machine:
        raise LaunchError("recommend.one_machine", ExitCode.USAGE)
    if not given.accelerator:
        host = load(options.machine)
        if host.cards or options.machine:
            return options.machine, host
    product = product_for(given.accelerator)
    machine = server_of(product.id)
    if machine is None:
        raise LaunchError("recommend.no_server", ExitCode.USAGE, found=product.id)
    if not given.accelerator:
        notes.append(
            message("recommend.assumed_machine", product=product.title, cards=product.cards)
        )
    return machine, load(machine)


def _pool(host: Host, options: LaunchOptions, given: RecommendOptions, goal: Goal) -> CardPool:
    """Return the cards of the answer: free ones of a machine, or servers."""
    from gaudi_launch.host.accelerators import accelerator_of
    from gaudi_launch.planning.parse import number
    from gaudi_launch.planning.placement import parse_visible
    from gaudi_launch.recommend.space import CardPool

    product = accelerator_of(host)
    if product is None:
        raise LaunchError("recommend.unknown_card", ExitCode.MACHINE, machine=host.origin)
    nodes = number("--nodes", given.nodes, 1, _MOST_NODES) if given.nodes else None
    if given.accelerator:
        # as many servers as the load needs
        return CardPool(product, product.cards, nodes or (None if goal.demand else 1))
    free = host.free_modules
    if options.modules:
        return CardPool(product, _cards_given(options), nodes or 1)
    if options.machine is None:
        import os

        visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))
        free = tuple(module for module in free if visible is None or module in visible)
    if not free:
        raise LaunchError("recommend.no_free_card", ExitCode.MACHINE, machine=host.origin)
    return CardPool(product, len(free), nodes or 1)


@dataclass(frozen=True)
class _Load:
    """The traffic, its longest requests, and its rate or clients."""

    traffic: Traffic
    lengths: tuple[int, int]
    longest: int
    rate: float
    clients: int


def _load(
    options: LaunchOptions, given: RecommendOptions, model: Model, notes: list[Message]
) -> _Load:
    from gaudi_launch.app.capacity import CapacityOptions, rate_of_trace, read_rate, traffic_of
    from gaudi_launch.buckets.past_requests import read_timed
    from gaudi_launch.planning.parse import number

    if given.rate and given.concurrency:
        raise LaunchError("capacity.one_demand", ExitCode.USAGE)
    clients = (
        number("--concurrency", given.concurrency, 1, _MOST_CLIENTS) if given.concurrency else 0
    )
    past, timed = read_timed(given.trace) if given.trace else (None, False)
    arrivals = given.arrivals or ("trace" if timed else "poisson")
    if arrivals not in ("poisson", "trace") or (arrivals == "trace" and not timed):
        raise LaunchError("capacity.arrivals", ExitCode.USAGE, found=arrivals)
    rate = read_rate(given.rate) if given.rate else 0.0
    if timed and not (rate or clients) and given.goal in ("", "cost"):
        rate = rate_of_trace(past, notes)
    inputs, outputs = options.input_range or "", options.output_range or ""
    if past is None and not (inputs and outputs):
        inputs, outputs = inputs or str(DEFAULT_INPUT), outputs or str(DEFAULT_OUTPUT)
        notes.append(message("recommend.assumed_lengths", input=inputs, output=outputs))
    words = CapacityOptions(inputs=inputs, outputs=outputs, arrivals=arrivals)
    traffic = traffic_of(past, words, notes)
    longest_input = max(tokens for _, tokens, _ in traffic.requests)
    longest_output = max(output for _, _, output in traffic.requests)
    if past is None:
        return _Load(traffic, (longest_input, longest_output), 0, rate, clients)
    longest = max(tokens + output for _, tokens, output in past)
    if model.max_position_embeddings:
        longest = min(longest, model.max_position_embeddings)
    return _Load(traffic, (min(longest_input, longest - 1), longest_output), longest, rate, clients)


def _goal_name(given: RecommendOptions) -> GoalName | None:
    from gaudi_launch.recommend.goal import GOALS

    if not given.goal:
        return None
    for name in GOALS:
        if name == given.goal:
            return name
    raise LaunchError("recommend.goal", ExitCode.USAGE, found=given.goal, known=", ".join(GOALS))


def _targets(given: RecommendOptions) -> Targets:
    from gaudi_launch.app.capacity import read_latency, read_percentile
    from gaudi_launch.capacity.search import Targets

    return Targets(
        read_latency("--ttft", given.ttft) if given.ttft else None,
        read_latency("--tpot", given.tpot) if given.tpot else None,
        read_percentile(given.percentile),
        read_latency("--e2e", given.e2e) if given.e2e else None,
    )


def _goal(name: GoalName | None, targets: Targets, given: RecommendOptions, load: _Load) -> Goal:
    """Return the goal; without a name the one that load and targets mean."""
    from gaudi_launch.planning.parse import seconds
    from gaudi_launch.recommend.goal import Goal

    start = seconds("--max-start", given.max_start, most=_MOST_START) if given.max_start else None
    found = Goal(name or "balanced", targets, load.rate, load.clients, start)
    if name is not None:
        return found
    if found.demand:
        return replace(found, name="cost")
    return replace(found, name="throughput") if found.has_targets else found
