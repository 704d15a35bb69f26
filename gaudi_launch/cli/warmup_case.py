"""From the options of ``gaudi-launch warmup`` to its answer."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message

if TYPE_CHECKING:
    from gaudi_launch.models.records import Model
    from gaudi_launch.planning.request import Request
    from gaudi_launch.warmup.cost import StepTime
    from gaudi_launch.warmup.delivery import Delivered
    from gaudi_launch.warmup.estimate import Span
    from gaudi_launch.warmup.limits import EngineLimits
    from gaudi_launch.warmup.planner import Ask
    from gaudi_launch.warmup.simulate import Shapes
    from gaudi_launch.warmup.strategies import Judged
    from gaudi_launch.warmup.watch import Compiled

_SECONDS = {"s": 1, "m": 60, "h": 3600}
# --model is optional here; the request needs a word
_NO_MODEL = "-"


@dataclass(frozen=True)
class Wish:
    """The ways to ask for a plan, as typed (0 and "" where not)."""

    graphs: int
    overhead: str
    budget: str
    price: float


@dataclass(frozen=True)
class Case:
    """What a plan is wanted for, with everything that had to be assumed."""

    engine: str
    request: Request
    model: Model
    cards: int
    limits: EngineLimits
    cost: StepTime
    workload: list[tuple[float, int, int]] | None
    trace_share: float
    wish: Wish
    choose_prefill_seqs: bool
    with_limit: bool
    assumptions: list[Message]


@dataclass(frozen=True)
class Result:
    """The answer: plans side by side, what a graph takes, and what there is to say."""

    delivered: Delivered
    chosen: Judged
    shapes: Shapes
    per_graph: Span
    per_graph_cached: Span
    notes: list[Message]
    compiled: list[Compiled] = field(default_factory=list)


def read(
    asked: dict[str, Any], *, trace: str, wish: Wish, trace_share: float, blocks: int, constants: list[str]
) -> Case:
    """The case of these options. Raises LaunchError for what cannot be."""
    from gaudi_launch.cli.options import to_request
    from gaudi_launch.models.records import Model
    from gaudi_launch.profiles import known_model
    from gaudi_launch.warmup.cost import step_time_for
    from gaudi_launch.warmup.workload import read_workload

    request = to_request({**asked, "model": asked["model"] or _NO_MODEL})
    model = known_model(request.model, False) if asked["model"] else Model(path="", name="")
    assumptions: list[Message] = []
    if not asked["model"]:
        assumptions.append(message("warmup.assume_model"))
    elif model.source == "name":
        assumptions.append(message("warmup.assume_name", model=model.path))
    if not 0 <= trace_share <= 1:
        raise LaunchError("warmup.bad_share", ExitCode.USAGE, found=trace_share)
    name, limits, with_limit = _engine(request, model, blocks, assumptions)
    cards = request.cards or len(request.modules or ()) or 1
    parameters = model.parameters or _parameters_of(model.name)
    cost = step_time_for(parameters, cards).with_constants(_constants(constants))
    constants_said = ", ".join(f"{key} {value:g}" for key, value in cost.constants().items())
    assumptions.append(message("warmup.assume_cost", basis=cost.basis, constants=constants_said))
    workload = read_workload(trace) if trace else None
    if workload is None:
        ranges = (limits.input_min, limits.input_max, limits.output_min, limits.output_max)
        assumptions.append(
            message("warmup.assume_ranges", input=f"{ranges[0]}-{ranges[1]}", output=f"{ranges[2]}-{ranges[3]}")
        )
    return Case(
        name,
        request,
        model,
        cards,
        limits,
        cost,
        workload,
        trace_share,
        wish,
        request.max_prefill_seqs is None,
        with_limit,
        assumptions,
    )


def _engine(
    request: Request, model: Model, blocks: int, assumptions: list[Message]
) -> tuple[str, EngineLimits, bool]:
    """The engine's name, its limits, and whether its extension has the padding limit."""
    from gaudi_launch.engines import registry
    from gaudi_launch.engines.detect import detect
    from gaudi_launch.host.records import Host
    from gaudi_launch.warmup.limits import as_limits
    from gaudi_launch.warmup.strategies import ENGINES

    installed = detect(request.python) if request.python is not None or request.engine == "auto" else None
    asked = request.engine
    # vllm-gaudi names its releases, buckets are those of its main branch
    if asked.partition("@")[0] == "vllm-gaudi":
        name, facts = "vllm-gaudi", {}
        given: Any = _plugin_limits(request, model)
    else:
        engine = registry.find(asked, installed, request.python)
        name = f"{engine.identity.name}@{engine.identity.version}"
        name = engine.identity.version if engine.identity.version in ENGINES else name
        if name not in ENGINES:
            raise LaunchError("warmup.unknown_engine", ExitCode.USAGE, found=name, known=", ".join(ENGINES))
        facts = dict(engine.identity.facts)
        given = engine.limits(request, Host(), model)
        if asked == "auto" and installed is None:
            assumptions.append(message("warmup.assume_engine", engine=name))
    values = dict(given) if isinstance(given, dict) else asdict(given)
    contiguous = request.environment.get("VLLM_CONTIGUOUS_PA", "" if name == "vllm-gaudi" else "true")
    values["contiguous_pa"] = contiguous.lower() == "true" and "--enable-prefix-caching" not in request.extra
    values["max_num_prefill_seqs"] = request.max_prefill_seqs or 1
    if blocks > 0:
        values["num_blocks"] = blocks
    limits = as_limits(values)
    if not blocks:
        assumptions.append(message("warmup.assume_blocks", blocks=limits.num_blocks))
    # as in a plan: what the extension is not known to understand is not sent
    return name, limits, facts.get("bucket_limit") == "true"


def _plugin_limits(request: Request, model: Model) -> dict[str, Any]:
    """vllm-gaudi's lengths: upstream's defaults are small because the platform reports no memory."""
    length = request.max_model_len or model.max_position_embeddings or 16384
    values: dict[str, Any] = {
        "max_num_seqs": request.max_num_seqs or 128,
        "max_model_len": length,
        "max_num_batched_tokens": request.max_num_batched_tokens or min(length, 2048),
        "input_range": request.input_range or (1, length),
        "output_range": request.output_range or (1, length),
    }
    return values


def _parameters_of(name: str) -> float | None:
    """Weights from a name such as QwQ-32B."""
    found = re.search(
        r"(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)[bB](?![A-Za-z0-9])", name.replace("-", " ").replace("_", " ")
    )
    return float(found.group(1)) * 1e9 if found else None


def _constants(words: list[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    return {name.strip().replace("-", "_"): value for name, _, value in pairs}


def ask_of(case: Case, seconds_per_graph: float) -> Ask:
    """The ask in figures. Raises LaunchError (USAGE)."""
    from gaudi_launch.warmup.planner import Ask

    wish = case.wish
    if sum(bool(value) for value in (wish.graphs, wish.overhead, wish.budget, wish.price)) > 1:
        raise LaunchError("warmup.one_ask", ExitCode.USAGE)
    graphs = wish.graphs
    if graphs < 0:
        raise LaunchError("warmup.too_few_graphs", ExitCode.USAGE, found=graphs, floor=2)
    if wish.budget:
        graphs = max(1, int(_duration(wish.budget) / seconds_per_graph))
    overhead = None
    if wish.overhead:
        text = wish.overhead.strip().rstrip("%")
        try:
            overhead = float(text) / 100
        except ValueError:
            overhead = -1.0
        if not 0 <= overhead < 100:
            raise LaunchError("warmup.bad_overhead", ExitCode.USAGE, found=wish.overhead)
    if wish.price and not 0 < wish.price < 1:
        raise LaunchError("warmup.bad_price", ExitCode.USAGE, found=wish.price)
    return Ask(wish.price or None, graphs or None, overhead, case.request.reduce)


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*([smh]?)", text.strip().lower())
    if match is None or not float(match.group(1)):
        raise LaunchError("warmup.bad_budget", ExitCode.USAGE, found=text)
    return float(match.group(1)) * _SECONDS[match.group(2) or "s"]


def solve(case: Case, *, log: Path | None, ask: bool) -> Result:
    """Plan, compare and estimate."""
    from gaudi_launch.paths import state_dir
    from gaudi_launch.planning.precision import weight_type
    from gaudi_launch.warmup.delivery import plan_for_engine
    from gaudi_launch.warmup.estimate import FILE_NAME, per_graph, read_measured
    from gaudi_launch.warmup.strategies import engine_key

    measured = read_measured(state_dir() / FILE_NAME)
    dtype = weight_type(case.request, case.model)
    about: dict[str, Any] = {"engine": case.engine, "model": case.model.name, "cards": case.cards}
    cold = per_graph(dtype, False, measured, **about)
    cached = per_graph(dtype, True, measured, **about)
    compiled = _compiled(log)
    delivered = plan_for_engine(
        engine_key(case.engine),
        case.limits,
        case.workload,
        ask_of(case, cold.high),
        choose_prefill_seqs=case.choose_prefill_seqs,
        with_limit=case.with_limit,
        cost=case.cost,
        trace_share=case.trace_share,
    )
    reference = case.request.tuning == "reference" and len(delivered.comparison) > 1
    chosen = delivered.comparison[1 if reference else 0]
    notes: list[Message] = []
    expected = delivered.aim.expectation
    if case.workload is not None:
        notes.append(message("warmup.workload", requests=len(case.workload)))
        if expected.distance is not None:
            notes.append(message("warmup.distance", percent=round(100 * expected.distance)))
    if case.request.reduce is not None:
        batch, length = case.request.reduce
        notes.append(message("warmup.reduce", batch=batch, length=length))
    if case.limits.contiguous_pa:
        notes.append(message("warmup.contiguous"))
    notes += [message("warmup.compiled", phase=c.phase, shape=str(c.shape), times=c.times) for c in compiled[:20]]
    if log is not None and not compiled:
        notes.append(message("warmup.none_compiled", path=str(log)))
    if ask:
        notes.append(_asked(case, delivered))
    return Result(delivered, chosen, expected.shapes, cold, cached, notes, compiled)


def _compiled(log: Path | None) -> list[Compiled]:
    from gaudi_launch.warmup.watch import compiled_at_run_time

    if log is None:
        return []
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            return compiled_at_run_time(lines)
    except OSError as error:
        raise LaunchError(
            "warmup.trace_unreadable", ExitCode.USAGE, path=str(log), error=error.strerror or str(error)
        ) from None


def _asked(case: Case, delivered: Delivered) -> Message:
    """Whether the installed engine makes the same list of the chosen settings."""
    import tempfile

    from gaudi_launch.warmup.ask import ask_engine
    from gaudi_launch.warmup.strategies import arguments_of, engine_key

    arguments = arguments_of(case.limits) | {"max_num_prefill_seqs": delivered.max_prefill_seqs}
    with tempfile.TemporaryDirectory() as folder:
        env = dict(delivered.settings)
        if delivered.file is not None:
            path = Path(folder) / "buckets.txt"
            path.write_text(delivered.file, encoding="utf-8")
            env["VLLM_BUCKETING_FROM_FILE"] = str(path)
            arguments["bucket_file"] = delivered.file
        answer = ask_engine(case.request.python or "python3", engine_key(case.engine), env, arguments)
    if answer.buckets is None:
        return message("warmup.no_answer", why=answer.why.render() if answer.why else "-")
    same = answer.buckets == delivered.buckets
    return message(
        "warmup.engine_agrees" if same else "warmup.engine_differs",
        graphs=answer.buckets.graphs,
        ours=delivered.buckets.graphs,
    )
