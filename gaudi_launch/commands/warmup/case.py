"""The use case of ``gaudi-launch warmup``: plan buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gaudi_launch.commands.warmup.question import AskedEngine, asked_engine
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.buckets.bucket_file import Delivered, own_list, plan_for_engine, planned
from gaudi_launch.core.buckets.optimiser.bucket_planner import BucketGoal, aim_for
from gaudi_launch.core.buckets.optimiser.padding_cost import score
from gaudi_launch.core.buckets.past_requests import read_past
from gaudi_launch.core.buckets.prompts_per_step import choose_prompts
from gaudi_launch.core.buckets.strategies import Judged, judged
from gaudi_launch.core.buckets.warmup_time import FILE_NAME, Estimate, per_graph, read_measured
from gaudi_launch.core.launch.launch_request import to_request
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.model_name import name_warning
from gaudi_launch.core.planning.precision import weight_type
from gaudi_launch.core.predict.learned import read_learned
from gaudi_launch.core.predict.simulator import Shapes, serve
from gaudi_launch.core.predict.step_time import StepTime, constants_of

# percents of step time by which a trace may exceed the predicted padding
_TOLERATED = 1.0
# --model is optional here; the request needs a value
_NO_MODEL = "-"


@dataclass(frozen=True)
class WarmupRequest:
    """The goals of a plan, as typed (0 and "" where not given)."""

    graphs: int
    overhead: str

    @property
    def count(self) -> int:
        """Return the number of given goals."""
        return sum(map(bool, (self.graphs, self.overhead)))


@dataclass(frozen=True)
class WarmupCase:
    """The inputs of a plan, with every assumption."""

    asked: AskedEngine
    model: Model
    cost: StepTime
    workload: list[tuple[float, int, int]] | None
    goal: WarmupRequest
    assumptions: list[Message]
    trace: str = ""

    @property
    def has_goal(self) -> bool:
        """Return True if more is requested than a plan with these options does."""
        return any((self.goal.count, self.workload))


@dataclass(frozen=True)
class WarmupResult:
    """The answer: plans to compare, the time of a graph, and notes."""

    delivered: Delivered
    chosen: Judged
    shapes: Shapes
    per_graph: Estimate
    per_graph_cached: Estimate
    notes: list[Message]


def read(
    options: LaunchOptions, *, trace: str, goal: WarmupRequest, constants: list[str]
) -> WarmupCase:
    """Return the case of these options. Raises LaunchError for an impossible one."""
    request = to_request(replace(options, model=options.model or _NO_MODEL))
    model, of_model = _model_of(request.model)
    workload = None
    reason: list[Message] = []
    engine = asked_engine(request, model, options.machine)
    if engine.own and goal.count:
        raise LaunchError("warmup.own_list", ExitCode.USAGE, engine=engine.name)
    if trace:
        past = read_past(trace)
        workload = past.requests
        reason += past.notes
    if workload is not None and engine.chooses_prompts:
        choice = choose_prompts(
            engine.question,
            BucketGoal(reduce=engine.request.reduce),
            engine.step_time,
            workload=tuple(workload),
            traced=True,
        )
        if choice.prompts != engine.limits.max_num_prefill_seqs:
            own = replace(request, max_prefill_seqs=choice.prompts)
            engine = asked_engine(own, model, options.machine)
        reason.append(choice.reason())
    cost = engine.step_time.with_constants(constants_of(constants))
    assumptions = [*of_model, *engine.assumptions, *reason, *_of_step_time(cost)]
    if workload is None:
        limits = engine.limits
        assumptions.append(
            message(
                "warmup.assume_ranges",
                input=f"{limits.input_min}-{limits.input_max}",
                output=f"{limits.output_min}-{limits.output_max}",
            )
        )
    return WarmupCase(engine, model, cost, workload, goal, assumptions, trace)


def _model_of(name: str) -> tuple[Model, list[Message]]:
    if name == _NO_MODEL:
        return Model(path="", name=""), [message("warmup.assume_model")]
    model = known_model(name, False)
    return model, [*name_warning(name, model)]


def _of_step_time(cost: StepTime) -> list[Message]:
    """Return the constants of the step time and where they were learned."""
    constants = ", ".join(f"{key} {value:g}" for key, value in cost.constants().items())
    found = [message("warmup.assume_cost", basis=cost.basis, constants=constants)]
    learned = read_learned()
    if learned is not None:
        count = len(learned.measurements)
        found.append(message("learn.used", version=learned.version, count=count))
    return found


def ask_of(case: WarmupCase) -> BucketGoal:
    """Return the goal in numbers. Raises LaunchError (USAGE)."""
    goal = case.goal
    if goal.count > 1:
        raise LaunchError("warmup.one_ask", ExitCode.USAGE)
    graphs = goal.graphs
    if graphs < 0:
        raise LaunchError("warmup.too_few_graphs", ExitCode.USAGE, found=graphs, floor=2)
    overhead = None
    if goal.overhead:
        text = goal.overhead.strip().rstrip("%")
        try:
            overhead = float(text) / 100
        except ValueError:
            overhead = -1.0
        if not 0 <= overhead < 100:
            raise LaunchError("warmup.bad_overhead", ExitCode.USAGE, found=goal.overhead)
    return BucketGoal(None, graphs or None, overhead, case.asked.request.reduce)


def solve(case: WarmupCase) -> WarmupResult:
    """Plan, compare and estimate."""
    asked = case.asked
    measured = read_measured(state_dir() / FILE_NAME)
    dtype = weight_type(asked.request, case.model)
    about: dict[str, Any] = {"engine": asked.identity, "model": case.model, "cards": asked.cards}
    cold = per_graph(dtype, False, measured, **about)
    cached = per_graph(dtype, True, measured, **about)
    delivered = _delivered(case)
    notes: list[Message] = list(asked.notes)
    delivered, chosen = _forecast(case, *_chosen(case, delivered))
    if chosen is not delivered.comparison[0]:
        notes.append(message("warmup.used", strategy=chosen.name))
    expected = delivered.aim.expectation
    if case.workload is not None:
        count = len(case.workload)
        notes.append(message("warmup.workload", requests=count, trace=case.trace))
        notes += _met_by_trace(case, case.workload, chosen)
        if expected.distance is not None:
            notes.append(message("warmup.distance", percent=round(100 * expected.distance)))
    if asked.request.reduce is not None:
        batch, length = asked.request.reduce
        notes.append(message("warmup.reduce", batch=batch, length=length))
    if asked.limits.contiguous_pa:
        notes.append(message("warmup.contiguous"))
    return WarmupResult(delivered, chosen, expected.shapes, cold, cached, notes)


def _forecast(case: WarmupCase, delivered: Delivered, chosen: Judged) -> tuple[Delivered, Judged]:
    """Return the same lists with the padding to expect of each."""
    shapes = delivered.aim.expectation.forecast
    rows = []
    for row in delivered.comparison:
        met = None if row.buckets is None else score(row.buckets, shapes, case.cost)
        rows.append(replace(row, score=met))
    return replace(delivered, comparison=rows), rows[delivered.comparison.index(chosen)]


def _met_by_trace(
    case: WarmupCase, workload: list[tuple[float, int, int]], chosen: Judged
) -> Iterator[Message]:
    """Yield the padding of the chosen list for the trace and for other traffic.

    The scheduler is simulated. A plan of the same options was made for its ranges: what it pads
    more on the trace is a warning.
    """
    if chosen.buckets is None:
        yield message("warmup.trace_padding_unknown")
        return
    limits, cost, used = case.asked.limits, case.cost, case.asked.used
    recorded = serve(workload, limits, cost)[0]
    found = score(chosen.buckets, recorded, cost)
    percents = (found.overhead, found.prompt_overhead, found.decode_overhead)
    total, prompt, decode = (f"{100 * share:.1f}" for share in percents)
    yield message("warmup.trace_padding", percent=total, prompt=prompt, decode=decode)
    ranges = aim_for(limits, None, BucketGoal(), cost=cost).expectation.forecast
    elsewhere = 100 * score(chosen.buckets, ranges, cost).overhead
    yield message("warmup.ranges_padding", percent=f"{elsewhere:.1f}")
    if used is None:
        return
    claimed, paid = (100 * score(used[1], each, cost).overhead for each in (ranges, recorded))
    if paid > claimed + _TOLERATED:
        yield message(
            "warmup.other_mix",
            strategy=used[0],
            claimed=f"{claimed:.1f}",
            paid=f"{paid:.1f}",
            trace=case.trace,
        )


def _delivered(case: WarmupCase) -> Delivered:
    """Return our plan and the engine's strategies, or the engine's only list.

    An engine that builds its list itself has only one, and so has a start script for whose tokens
    of a step no ranges cover every shape.
    """
    asked = case.asked
    if asked.own:
        assert asked.used is not None, "a question without buckets"
        longest = asked.limits.input_max
        return own_list(*asked.used, asked.limits, case.workload, longest=longest, cost=case.cost)
    question, ask = asked.question, ask_of(case)
    try:
        if case.workload is None:
            return planned(question, ask, case.cost)
        return plan_for_engine(question, case.workload, ask, cost=case.cost)
    except LaunchError as error:
        scripted = asked.request.tuning == "reference" and not case.goal.count
        if error.id != "warmup.no_parameters" or not scripted or asked.used is None:
            raise
    longest = asked.limits.max_model_len
    return own_list(*asked.used, asked.limits, case.workload, longest=longest, cost=case.cost)


def _chosen(case: WarmupCase, delivered: Delivered) -> tuple[Delivered, Judged]:
    """Return all lists, and the selected one: a plan's, or the planner's.

    The latter is selected where more is requested than a plan does.
    """
    used, rows = case.asked.used, delivered.comparison
    auto = case.asked.request.tuning == "auto"
    if used is None or (auto and case.has_goal):
        return delivered, rows[0]
    same = next((row for row in rows if row.buckets == used[1]), None)
    if same is not None:
        return delivered, same
    expected = delivered.aim.expectation.shapes
    theirs = judged(f"{used[0]} (plan)", used[1], case.asked.limits, expected, case.cost)
    return replace(delivered, comparison=[*rows, theirs]), theirs
