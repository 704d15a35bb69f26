"""The use case of ``gaudi-launch recommend``: options, search, plan."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.fields import text
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.base.redact_values import redact_document
from gaudi_launch.core.engines import detect as detection
from gaudi_launch.core.engines import entries, needed_release, registry
from gaudi_launch.core.host.accelerators import accelerator_of
from gaudi_launch.core.launch.command_line import serve_command
from gaudi_launch.core.launch.forecast_case import data_types, is_product, read_case, read_dtype
from gaudi_launch.core.launch.launch_request import to_request
from gaudi_launch.core.launch.other_hosts import DEFAULT_NAME, request_of
from gaudi_launch.core.launch.prepared import prepare
from gaudi_launch.core.launch.saved_plan import SavedTraffic, check_path, entries_of, write
from gaudi_launch.core.launch.traffic_options import (
    TrafficOptions,
    demand_of,
    load_of,
    past_of,
    rate_of_trace,
    targets_of,
)
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.model_name import name_warning, request_name
from gaudi_launch.core.planning.parse import if_given, number, seconds
from gaudi_launch.core.planning.parse_ranges import Ranges, pair
from gaudi_launch.core.planning.passthrough import REPLICAS, refuse_layout
from gaudi_launch.core.planning.placement import check_named, parse_visible
from gaudi_launch.extensions.recommend.analytic import Group, fits
from gaudi_launch.extensions.recommend.finder import BEST, Recommendation, find
from gaudi_launch.extensions.recommend.goal import GOALS, Goal, GoalName
from gaudi_launch.extensions.recommend.space import (
    BATCHES,
    CARDS,
    Candidate,
    CardPool,
    SearchCase,
    SearchedEngine,
    own_arguments,
    ranges_of,
    takes,
)
from gaudi_launch.extensions.recommend.trial import Trial

if TYPE_CHECKING:
    from gaudi_launch.core.host.hardware import Host
    from gaudi_launch.core.hosts.parts import Cluster
    from gaudi_launch.core.launch.prepared import Prepared
    from gaudi_launch.core.models.model import Model
    from gaudi_launch.core.planning.engine import Engine
    from gaudi_launch.core.planning.plan import Plan
    from gaudi_launch.core.planning.request import Request
    from gaudi_launch.core.predict.load import Load
    from gaudi_launch.core.predict.targets import Targets

_log = logging.getLogger(__name__)

DEFAULT_INPUT, DEFAULT_OUTPUT = 1024, 256
_MOST_NODES = 100_000
# servers of one replica: no guide has more than two, and Ray's start takes longer with each
_MOST_HOSTS = 4
_MOST_START = 7 * 24 * 3600.0
# the names of plans that --save wrote
_SAVED = "[0-9]-*.yaml"

# the exit code where these cards cannot meet the targets
UNMET = ExitCode.MACHINE
# -d: the search may change the precision
ANY_TYPE = "any"

# after -- they decide, and serve would warn of another value
_ENGINE_OPTIONS = {
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "max_model_len": "--max-model-len",
    "max_prefill_seqs": "--max-num-prefill-seqs",
}

_GOAL = "Goal"


@dataclass(frozen=True)
class RecommendOptions(TrafficOptions):
    """The goal and the traffic as typed; empty where not given."""

    goal: str = text(
        "--for", help="balanced, throughput, latency, context or cost.", panel=_GOAL, metavar="GOAL"
    )
    max_start: str = text(
        "--max-start", help="Maximum warm-up time: 90s, 10m.", panel=_GOAL, metavar="TIME"
    )
    nodes: str = text("--nodes", help="Number of servers of this kind.", panel="Cards", metavar="N")


@dataclass(frozen=True)
class RecommendCase:
    """A search with its goal.

    ``options`` are those of the launch, ``machine`` is the one to plan for.
    """

    search: SearchCase
    goal: Goal
    options: LaunchOptions
    machine: str | None


@dataclass(frozen=True)
class Recommended:
    """The answer with its plan.

    ``plan`` is None where no configuration meets the targets.

    ``launch`` are the options of one replica: those of ``serve``, or of ``cluster`` for the replica
    of a ``cluster``: one with pipeline stages or over several servers.
    """

    case: RecommendCase
    found: Recommendation
    launch: LaunchOptions | None
    plan: Plan | None
    cluster: Cluster | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """Return the command line that starts one replica; empty without an answer."""
        winner = self.found.winner
        if self.launch is None or winner is None:
            return ()
        if self.cluster is not None:
            return cluster_command(self.launch, winner.candidate)
        return serve_command(self.launch)

    @property
    def stack_entry(self) -> dict[str, Any] | None:
        """Return the entry of a stack.yaml with all replicas.

        None without an answer, and for one that is not on one server.
        """
        winner = self.found.winner
        if self.launch is None or self.cluster is not None:
            return None
        if winner is None or winner.served is None or winner.served.nodes > 1:
            return None
        options = redact_document(entries_of(self.launch))
        model = options.pop("model")
        name = options.pop("served-name", request_name(model))
        # the address is the gateway's
        options.pop("host", None)
        options.pop("port", None)
        for key, value in options.items():
            if isinstance(value, str) and value.isdecimal():
                options[key] = int(value)
        replicas = winner.served.replicas
        return {"name": name, "model": model, "replicas": replicas, "options": options}


def read(
    options: LaunchOptions, given: RecommendOptions, *, over_servers: bool = False
) -> RecommendCase:
    """Return the case of these options. Raises LaunchError for an impossible one.

    ``over_servers``: the answer may be one for ``cluster``, with pipeline stages or over several
    servers.
    """
    name_or_path = options.model
    if not name_or_path:
        raise LaunchError("plan.no_model", ExitCode.USAGE)
    if options.tuning == "reference":
        raise LaunchError("recommend.reference", ExitCode.USAGE)
    any_type = options.dtype == ANY_TYPE
    options = replace(options, dtype=None if any_type else options.dtype)
    read_dtype(options.dtype or "")
    name, goal_targets = _goal_name(given), targets_of(given)
    named = read_case(options)
    machine, host, model = named.machine, named.host, named.model
    notes = [*named.notes, *name_warning(name_or_path, model)]
    load = _load(options, given, model, notes)
    goal = _goal(name, goal_targets, given, load)
    pool = _pool(host, options, given, goal)
    asked = _Asked(options, machine, model, pool, load, goal, tuple(notes), any_type)
    if not over_servers:
        return RecommendCase(_on_servers(asked), goal, options, machine)
    search, options = _on_one_or_several(asked)
    return RecommendCase(search, goal, options, machine)


def _on_one_or_several(asked: _Asked) -> tuple[SearchCase, LaunchOptions]:
    """Return a search on each server, or over several where one is too small."""
    options, pool = asked.options, asked.pool
    if asked.cards > pool.cards_per_node:
        return _over_servers(asked)
    search = replace(_on_servers(asked), staged=True)
    if pool.nodes == 1 or options.modules or fits(search):
        return search, options
    return _over_servers(asked)


@dataclass(frozen=True)
class _Asked:
    """The inputs of a search. ``any_type``: the precision may be changed."""

    options: LaunchOptions
    machine: str | None
    model: Model
    pool: CardPool
    load: _Load
    goal: Goal
    notes: tuple[Message, ...]
    any_type: bool

    @property
    def cards(self) -> int:
        """Return the given number of cards; 0 where there is none."""
        if self.options.cards or self.options.modules:
            return _cards_given(self.options)
        return 0

    def search(
        self,
        cards: tuple[int, ...],
        engines: tuple[SearchedEngine, ...],
        others: tuple[SearchedEngine, ...] = (),
    ) -> SearchCase:
        """Return the search of these numbers of cards and engines."""
        return SearchCase(
            model=self.model,
            pool=self.pool,
            engines=engines,
            load=self.load.load,
            lengths=self.load.lengths,
            cards=cards,
            longest=self.load.longest,
            context=self.goal.name == "context",
            notes=self.notes,
            others=others,
            any_type=self.any_type,
            most_batch=self.goal.clients or (1 if self.goal.has_one_client else BATCHES[-1]),
        )


def _on_servers(asked: _Asked) -> SearchCase:
    """Return the search of replicas that each are on one server."""
    options, model = asked.options, asked.model
    prepared = _prepared(options, asked.machine)
    cards = (asked.cards,) if asked.cards else CARDS
    searched = _searched(prepared.engine, prepared, model, cards)
    engines = (searched, *_other_releases(searched, prepared, model, cards))
    return asked.search(cards, engines, _other_engines(prepared, model))


def _over_servers(asked: _Asked) -> tuple[SearchCase, LaunchOptions]:
    """Return the search of replicas over several servers each, and its options.

    The options name the engine that the replicas need. Raises LaunchError where there are too few
    servers, or no engine for several.
    """
    node = asked.pool.cards_per_node
    most = min(_MOST_HOSTS, asked.pool.nodes or _MOST_HOSTS)
    cards = tuple(node * hosts for hosts in range(2, most + 1))
    if asked.cards:
        cards = tuple(each for each in cards if each == asked.cards)
    if not cards:
        raise LaunchError(
            "recommend.few_cards",
            ExitCode.MACHINE,
            cards=asked.cards,
            have=node,
            servers=asked.pool.nodes or most,
        )
    options = replace(asked.options, cards=None)
    options = replace(options, engine=_engine_over_servers(options, asked))
    prepared = _prepared(options, asked.machine)
    dtypes = tuple(data_types(asked.model, prepared.request.dtype or "", prepared.engine))
    searched = SearchedEngine(prepared.engine, prepared.request, dtypes, spreads=True)
    return replace(asked.search(cards, (searched,)), staged=True), options


def _engine_over_servers(options: LaunchOptions, asked: _Asked) -> str:
    """Return the engine that ``cluster`` would use.

    Raises LaunchError (USAGE) without one.
    """
    prepared = _prepared(options, asked.machine)
    name = registry.name_over_hosts(
        prepared.request, prepared.installed, asked.model, lambda: prepared.host
    )
    engine = registry.find(name, prepared.installed)
    if not _runs_over_servers(engine):
        known = registry.families(_runs_over_servers)
        raise LaunchError(
            "recommend.one_server_engine",
            ExitCode.USAGE,
            model=asked.model.name,
            engine=engine.identity.label,
            known=", ".join(known),
        )
    return engine.identity.label


def _runs_over_servers(engine: Engine) -> bool:
    over = engine.over_hosts
    return over is not None and over.ray and over.validated


def solve(
    case: RecommendCase,
    progress: Callable[[int, int], None] | None = None,
) -> Recommended:
    """Search, and plan the best answer that can be planned.

    Raises LaunchError where the model fits no number of these cards.
    """
    planner = CasePlanner(case)
    found = find(case.search, case.goal, planner, progress)
    winner = found.winner
    if winner is None or winner.plan is None:
        return Recommended(case, found, None, None)
    launch = launch_options(case, winner.candidate)
    return Recommended(case, found, launch, winner.plan, planner.clusters.get(winner.candidate))


class CasePlanner:
    """The plans of candidates, as ``plan`` and ``cluster plan`` make them."""

    def __init__(self, case: RecommendCase) -> None:
        self.case = case
        self.clusters: dict[Candidate, Cluster] = {}
        # each plan is for the same interpreter
        self.detect = cache(detection.detect)

    def __call__(self, candidate: Candidate) -> Trial:
        """Return a candidate with the plan of one replica. Raises LaunchError."""
        from gaudi_launch.core.launch.prediction import setup_of

        case, launch = self.case, launch_options(self.case, candidate)
        setup = None
        if candidate.needs_cluster:
            cluster = _planned_cluster(case, launch, candidate)
            self.clusters[candidate] = cluster
            plan = cluster.plan
        else:
            prepared = prepare(replace(launch, machine=case.machine), detect=self.detect)
            plan = prepared.plan()
            setup = setup_of(prepared, plan)
        if setup is None:
            # no figure is of stages, of several servers, or of this product
            searched = case.search.engine(candidate.engine)
            setup = Group(case.search, searched, candidate).setup(candidate)
            if setup is None:
                raise LaunchError("recommend.no_memory", ExitCode.MACHINE)
            blocks = (plan.num_blocks or 0) // candidate.pipeline or setup.limits.num_blocks
            setup = replace(setup, limits=replace(setup.limits, num_blocks=blocks))
        return Trial(candidate, setup, plan)


def check_folder(folder: Path) -> None:
    """Check, before a long search, that plans can be written to this folder.

    It may be new. Raises LaunchError as `write`, also for another .yaml file in it.
    """
    if folder.suffix in (".yaml", ".yml") or folder.is_file():
        why = os.strerror(errno.ENOTDIR)
        raise LaunchError("saved.not_written", ExitCode.USAGE, path=str(folder), why=why)
    if not folder.exists():
        check_path(folder)
        return
    for file in (folder / "new.yaml", *sorted(folder.glob("*.yaml"))):
        check_path(file)


def save(found: Recommended, given: RecommendOptions, folder: Path) -> tuple[Path, ...]:
    """Write the best three plans for ``serve`` to a folder; return their files.

    Each has the precision and the release of the answer. The saved load is that of one replica.
    Plans of an earlier search are replaced. Nothing is written without an answer, and for one that
    needs ``cluster``. Raises LaunchError.
    """
    winner, search = found.found.winner, found.case.search
    if winner is None or found.cluster is not None:
        return ()
    trials = []
    for trial in found.found.trials:
        alike = search.rank(trial.candidate) == search.rank(winner.candidate)
        if trial.meets and alike and not trial.candidate.needs_cluster:
            trials.append(trial)
    try:
        folder.mkdir(exist_ok=True)
        for file in folder.glob(_SAVED):
            file.unlink()
    except OSError as error:
        raise file_error("saved.not_written", error, folder) from None
    files = []
    for place, trial in enumerate(trials[:BEST], start=1):
        one = trial.candidate
        step = f"t{one.tokens}-prompts{one.prompts}"
        files.append(folder / f"{place}-n{one.cards}-{one.dtype}-b{one.batch}-{step}.yaml")
        _write(found.case, trial, given, files[-1])
    return tuple(files)


def _write(case: RecommendCase, trial: Trial, given: RecommendOptions, file: Path) -> None:
    """Write the plan of a trial that meets the targets."""
    options, goal, served = case.options, case.goal, trial.served
    assert served is not None and trial.plan is not None, "it was planned and simulated"
    launch = launch_options(case, trial.candidate)
    clients = -(-goal.clients // served.replicas) if goal.clients else trial.candidate.batch
    traffic = SavedTraffic(
        input=launch.text("input_range") or options.text("input_range") or str(DEFAULT_INPUT),
        output=launch.text("output_range") or options.text("output_range") or str(DEFAULT_OUTPUT),
        rate=f"{goal.rate / served.replicas:.6g}" if goal.rate else "",
        concurrency="" if goal.rate else str(clients),
        trace=given.trace,
    )
    launch = replace(launch, machine=case.machine)
    write(file, launch, trial.plan, goal=goal.name, traffic=traffic)


def launch_options(case: RecommendCase, candidate: Candidate) -> LaunchOptions:
    """Return the options of ``serve`` for one replica of a candidate.

    Every given option is among them.
    """
    options, search = case.options, case.search
    searched = search.engine(candidate.engine)
    engine = searched.engine.innermost
    inputs, outputs = ranges_of(search, candidate)
    changes: dict[str, Any] = {
        "max_num_seqs": candidate.batch,
        "max_model_len": candidate.length,
    }
    if not options.modules:
        # those of each host for a cluster
        changes["cards"] = candidate.world // candidate.hosts
    if takes(engine, "-t"):
        changes["max_num_batched_tokens"] = candidate.tokens
    if takes(engine, "--max-prefill-seqs"):
        changes["max_prefill_seqs"] = candidate.prompts
    for option, name, lengths in (
        ("-i", "input_range", inputs),
        ("-o", "output_range", outputs),
    ):
        if not takes(engine, option):
            # they are the load here, and no setting of this engine
            changes[name] = None
        elif not getattr(options, name):
            changes[name] = lengths
    if candidate.padding:
        changes["padding_limit"] = candidate.padding
    if searched is not search.engines[0]:
        changes["engine"] = candidate.engine
    if not options.dtype and candidate.dtype not in (search.model.quantization, "bfloat16"):
        changes["dtype"] = candidate.dtype
    args = searched.request.args
    kept = {
        name: value
        for name, value in changes.items()
        if not args.has(_ENGINE_OPTIONS.get(name, "--"))
    }
    return replace(options, extra=(*options.extra, *own_arguments(search, candidate)), **kept)


def cluster_command(launch: LaunchOptions, candidate: Candidate) -> tuple[str, ...]:
    """Return the command line of ``cluster up`` for one replica.

    Its hosts have names to be replaced.
    """
    hosts = ",".join(_host_names(candidate))
    sizes = ["--tensor-parallel", str(candidate.cards)]
    if candidate.pipeline > 1:
        sizes += ["--pipeline-parallel", str(candidate.pipeline)]
    program, _, model, *options = serve_command(launch)
    return (program, "cluster", "up", model, "--hosts", hosts, *sizes, *options)


def _host_names(candidate: Candidate) -> list[str]:
    if candidate.hosts == 1:
        return ["local"]
    return [f"HOST{number}" for number in range(1, candidate.hosts + 1)]


def _planned_cluster(case: RecommendCase, launch: LaunchOptions, candidate: Candidate) -> Cluster:
    """Return the plan of ``cluster`` on servers like the machine.

    Raises LaunchError.
    """
    from gaudi_launch.core.hosts.cluster_planner import plan_cluster
    from gaudi_launch.core.hosts.differences import Seen
    from gaudi_launch.core.hosts.inventory import Member
    from gaudi_launch.core.hosts.layout import LayoutOptions
    from gaudi_launch.core.launch.machine import load

    host = load(case.machine)
    # addresses for documentation (RFC 5737): those of the hosts are not known
    seen = [
        Seen(Member(name, name, address=f"192.0.2.{number}", interface="eth0"), host)
        for number, name in enumerate(_host_names(candidate), start=1)
    ]
    request = request_of(replace(launch, machine=None))
    sizes = LayoutOptions(candidate.cards, candidate.pipeline)
    return plan_cluster(request, seen, sizes, DEFAULT_NAME, None, None)


def _prepared(options: LaunchOptions, machine: str | None) -> Prepared:
    """Return the inputs of the plans, without the number of cards."""
    from gaudi_launch.core.planning.fit import limits_of

    unloaded = replace(options, machine=machine, input_range=None, output_range=None)
    if options.cards or options.modules:
        prepared = prepare(unloaded)
    else:
        prepared = _with_any_cards(unloaded)
    # the answer decides copies and stages
    refuse_layout(prepared.request.args, dict.fromkeys(REPLICAS, "-n"))
    # the lengths of the load, where the engine has options for them
    given, lacks = to_request(options), prepared.engine.innermost.lacks
    loaded = replace(
        prepared.request, input_range=given.input_range, output_range=given.output_range
    )
    limits_of(prepared.engine, loaded, prepared.model)
    inputs = None if "-i" in lacks else given.input_range
    outputs = None if "-o" in lacks else given.output_range
    request = replace(prepared.request, input_range=inputs, output_range=outputs)
    prepared = replace(prepared, request=request)
    if not entries.takes_cards(prepared.engine.identity.label):
        known = ", ".join(entries.names_with_cards())
        raise LaunchError(
            "fit.engine", ExitCode.USAGE, found=prepared.engine.identity.label, known=known
        )
    return prepared


def _with_any_cards(options: LaunchOptions) -> Prepared:
    """Return the inputs with the fewest cards that the engine does not refuse.

    Without a number, prepare would look for the fewest that the model fits.
    """
    try:
        return prepare(replace(options, cards=1))
    except LaunchError as error:
        try:
            # an engine that was made for complete servers
            return prepare(replace(options, cards=CARDS[-1]))
        except LaunchError:
            raise error from None


def _searched(
    engine: Engine, prepared: Prepared, model: Model, cards: tuple[int, ...]
) -> SearchedEngine:
    """Return an engine of the search, with the numbers of cards that it refuses."""
    request = prepared.request
    refused: set[int] = set()
    for count in cards:
        try:
            engine.refuse(replace(request, cards=count, modules=None), prepared.host, model)
        except LaunchError as error:
            _log.debug("%s is not searched on %d cards: %s", engine.identity.exact, count, error)
            refused.add(count)
    dtypes = tuple(data_types(model, request.dtype or "", engine))
    return SearchedEngine(engine, request, dtypes, frozenset(refused))


def _other_releases(
    first: SearchedEngine, prepared: Prepared, model: Model, cards: tuple[int, ...]
) -> list[SearchedEngine]:
    """Return the releases of the same engine that differ for this model.

    The newest of each kind; none where the engine is named or installed. Releases of one kind have
    the same memory and the same speed, so that the newest represents all of them.
    """
    request = prepared.request
    if registry.is_decided(request.engine, prepared.installed):
        return []
    known = [_kind_of(first.engine, request, model)]
    found: list[SearchedEngine] = []
    for name in needed_release.releases_of(first.engine.identity.label):
        engine = registry.find(name)
        kind = _kind_of(engine, request, model)
        if kind in known or engine.support(model).refused:
            continue
        known.append(kind)
        found.append(_searched(engine, prepared, model, cards))
    return found


def _kind_of(engine: Engine, request: Request, model: Model) -> tuple[object, ...]:
    """Return what a search sees of an engine's release."""
    support = engine.support(model)
    caches = tuple((each.kind, each.layers, each.allocates) for each in support.caches)
    return (
        support.expanded_to,
        support.cache_rules,
        caches,
        engine.scheduling,
        engine.lacks,
        engine.caches_prefixes(request, model),
        engine.cache_arguments(model),
        engine.memory_rules({}),
    )


def _other_engines(prepared: Prepared, model: Model) -> tuple[SearchedEngine, ...]:
    """Return the engines that run the model too, where none is named or installed."""
    if registry.is_decided(prepared.request.engine, prepared.installed):
        return ()
    found: list[SearchedEngine] = []
    for name in entries.names_with_cards():
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
    request = to_request(options)
    if request.modules is not None:
        check_named(request.modules, request.cards or len(request.modules))
        return len(request.modules)
    assert request.cards is not None, "one of both was given"
    return request.cards


def _pool(host: Host, options: LaunchOptions, given: RecommendOptions, goal: Goal) -> CardPool:
    """Return the cards of the answer: free ones of a machine, or servers."""
    product = accelerator_of(host)
    if product is None:
        raise LaunchError("recommend.unknown_card", ExitCode.MACHINE, machine=host.origin)
    nodes = if_given(number, "--nodes", given.nodes, 1, _MOST_NODES)
    if is_product(options.machine):
        # as many servers as the load needs
        return CardPool(product, product.cards, nodes or (None if goal.demand else 1))
    free = host.free_modules
    if options.modules:
        return CardPool(product, _cards_given(options), nodes or 1)
    if options.machine is None:
        visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))
        free = tuple(module for module in free if visible is None or module in visible)
    if not free:
        raise LaunchError("recommend.no_free_card", ExitCode.MACHINE, machine=host.origin)
    return CardPool(product, len(free), nodes or 1)


@dataclass(frozen=True)
class _Load:
    """The load, its longest requests, and how much of it there is."""

    load: Load
    lengths: tuple[int, int]
    longest: int
    rate: float
    clients: int


def _load(
    options: LaunchOptions, given: RecommendOptions, model: Model, notes: list[Message]
) -> _Load:
    rate, clients = demand_of(given)
    found = past_of(given)
    past = mapped(lambda found: found.requests, found)
    searched = given.goal in ("", "cost") and not (rate or clients)
    if searched and found is not None and found.timed:
        rate = rate_of_trace(past, notes)
    load = load_of(found, _ranges(options, notes, traced=past is not None), notes)
    longest_input, longest_output = load.input_range[1], load.output_range[1]
    if past is None:
        return _Load(load, (longest_input, longest_output), 0, rate, clients)
    longest = max(tokens + output for _, tokens, output in past)
    allowed = to_request(options).max_model_len or model.max_position_embeddings or longest
    notes += _refused(load, allowed)
    longest = min(longest, allowed)
    return _Load(load, (min(longest_input, longest - 1), longest_output), longest, rate, clients)


def _refused(load: Load, length: int) -> list[Message]:
    """Return the note about prompts that this length refuses.

    Raises LaunchError (MODEL) where it refuses all.
    """
    requests = load.requests
    refused = sum(tokens >= length for _, tokens, _ in requests)
    if refused == len(requests):
        shortest = load.input_range[0]
        raise LaunchError(
            "recommend.all_too_long", ExitCode.MODEL, length=length, shortest=shortest
        )
    if not refused:
        return []
    percent = f"{100 * refused / len(requests):.1f}"
    return [message("capacity.refused", percent=percent, length=length)]


def _ranges(options: LaunchOptions, notes: list[Message], *, traced: bool) -> Ranges:
    """Return the lengths: given ones, else assumed ones with a note."""
    given = Ranges(options.input_range, options.output_range)
    if traced or (given.input and given.output):
        return given
    input = options.text("input_range") or str(DEFAULT_INPUT)
    output = options.text("output_range") or str(DEFAULT_OUTPUT)
    notes.append(message("recommend.assumed_lengths", input=input, output=output))
    return Ranges(pair("-i", input), pair("-o", output))


def _goal_name(given: RecommendOptions) -> GoalName | None:
    if not given.goal:
        return None
    for name in GOALS:
        if name == given.goal:
            return name
    raise LaunchError("recommend.goal", ExitCode.USAGE, found=given.goal, known=", ".join(GOALS))


def _goal(name: GoalName | None, targets: Targets, given: RecommendOptions, load: _Load) -> Goal:
    """Return the goal; without a name the one that load and targets mean."""
    start = if_given(seconds, "--max-start", given.max_start, most=_MOST_START)
    found = Goal(name or "balanced", targets, load.rate, load.clients, start)
    if name is not None:
        return found
    if found.demand:
        return replace(found, name="cost")
    return replace(found, name="throughput") if found.has_targets else found
