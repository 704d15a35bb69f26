"""A plan as engines read it: a bucket file with contexts, or variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.engine_buckets import engine_buckets
from gaudi_launch.core.buckets.families import EXPONENTIAL_SWITCH, family_named
from gaudi_launch.core.buckets.ladder_rules import LadderRules, split_name
from gaudi_launch.core.buckets.optimiser.bucket_planner import (
    Aim,
    BucketGoal,
    PlannedBuckets,
    aim_for,
    solve,
)
from gaudi_launch.core.buckets.optimiser.full_load import padding
from gaudi_launch.core.buckets.optimiser.padding_cost import Score
from gaudi_launch.core.buckets.optimiser.parameters import search
from gaudi_launch.core.buckets.optimiser.workload_mix import Requests
from gaudi_launch.core.buckets.strategies import Judged, arguments_of, judge, judged, strategies
from gaudi_launch.core.predict.limits import CoverageQuestion, EngineLimits
from gaudi_launch.core.predict.step_time import ONE_CARD_8B, StepTime

# later traffic is never quite that of the trace: the plan pads this much less than the best
# strategy on the trace
TRACE_MARGIN = 0.8
_FINER = 1.5
_NEWEST = LadderRules()


# our own list in a comparison
_PLANNED = "planned"


@dataclass(frozen=True)
class Delivered:
    """A plan for one engine.

    The variables to set (``file`` is the text of the bucket file, where the engine reads one),
    --max-prefill-seqs chosen with them, the buckets they give, all strategies (the chosen first),
    the aim of the plan, and the share of step time that a graph had to save. ``full_load`` is the
    padding of each strategy with as many requests as the engine admits and lengths within the
    ranges; empty where it was not computed.
    """

    settings: dict[str, str]
    max_prefill_seqs: int
    buckets: Buckets
    comparison: list[Judged]
    aim: Aim
    price: float
    file: str | None = None
    full_load: tuple[Score | None, ...] = ()


@lru_cache(maxsize=64)
def planned(question: CoverageQuestion, ask: BucketGoal, cost: StepTime) -> Delivered:
    """Return the planner's answer without past requests, cached by its arguments.

    One plan needs the same answer several times, and so does a search over configurations.
    """
    found = plan_for_engine(question, None, ask, cost=cost)
    full_load = padding([each.buckets for each in found.comparison], question.limits, cost)
    return replace(found, full_load=tuple(full_load))


def plan_for_engine(
    question: CoverageQuestion,
    workload: Requests | None = None,
    ask: BucketGoal | None = None,
    *,
    cost: StepTime = ONE_CARD_8B,
) -> Delivered:
    """Return the best plan for an engine of this family. Pure."""
    ask = ask or BucketGoal()
    family, limits = question.family, question.limits
    rules = family_named(family)
    aim = aim_for(limits, workload, ask, cost=cost)
    shapes = aim.expectation.shapes
    file = None
    others = [
        judge(family, strategy, limits, shapes, cost)
        for strategy in strategies(family, limits, ask.reduce)
    ]
    if rules.reads_file:
        planned = _solve_for_file(limits, aim, ask, cost, others)
        price = planned.price
        file = bucket_file(planned.buckets, limits, split_name(family)[1])
        settings = {"VLLM_CONTIGUOUS_PA": "true"} if limits.contiguous_pa else {}
        arguments = {**arguments_of(limits), "bucket_file": file}
        found = engine_buckets(family, "file", settings, arguments)
    else:
        algorithm = rules.linear(with_limit=question.with_limit)
        # a list without ladders shows the best possible result; nothing else here needs it
        bound = ask.graphs is not None or ask.overhead is not None
        price = solve(limits, aim, ask, cost).price if bound else aim.price(ask)
        settings, found = search(
            family, algorithm, limits, aim.shapes, cost, replace(ask, price=price)
        )
    mine = judged(_PLANNED, found, limits, shapes, cost)
    if limits.prefix_caching and ask == BucketGoal():
        # a linear list has every context of every length: the engine's exponential one can be the
        # better list
        other = next((each for each in others if each.name == "exponential"), mine)
        if (
            rules.contexts_by_length
            and other.buckets is not None
            and other.weight(price) < mine.weight(price)
        ):
            mine, found = replace(other, name=_PLANNED), other.buckets
            settings = {EXPONENTIAL_SWITCH: "true"}
    return Delivered(
        settings, limits.max_num_prefill_seqs, found, [mine, *others], aim, price, file
    )


def _solve_for_file(
    limits: EngineLimits, aim: Aim, ask: BucketGoal, cost: StepTime, others: Sequence[Judged]
) -> PlannedBuckets:
    """Return the plan for this goal.

    With a trace it is as fine as it takes to pad less than the engine's own strategies, but has
    never more graphs than the exponential one.
    """
    planned = solve(limits, aim, ask, cost)
    known = {other.name: other for other in others if other.score is not None}
    exponential, pad = known.get("exponential"), known.get("pad")
    if ask != BucketGoal() or not aim.traced or exponential is None or pad is None:
        return planned
    assert exponential.score is not None and pad.score is not None
    goal = TRACE_MARGIN * min(exponential.score.overhead, pad.score.overhead)
    price = planned.price
    while planned.score.overhead > goal:
        price /= _FINER
        finer = solve(limits, aim, BucketGoal(price=price), cost)
        if finer.buckets.graphs > exponential.graphs:
            break
        planned = finer
    return planned


def own_list(
    strategy: str,
    found: Buckets,
    limits: EngineLimits,
    workload: Requests | None = None,
    *,
    longest: int,
    cost: StepTime = ONE_CARD_8B,
) -> Delivered:
    """Return a list that the planner does not make: TGI's own, or a start script's.

    It is counted and scored; there is nothing to set. No prompt is over ``longest`` tokens.
    """
    aim = aim_for(limits, workload, BucketGoal(), cost=cost)
    promised = replace(limits, max_model_len=longest)
    mine = judged(strategy, found, promised, aim.expectation.shapes, cost)
    return Delivered({}, limits.max_num_prefill_seqs, found, [mine], aim, 0.0)


def bucket_file(buckets: Buckets, limits: EngineLimits, rules: LadderRules = _NEWEST) -> str:
    """Return the text for VLLM_BUCKETING_FROM_FILE, one bucket per line.

    A line is ``(batch, query, context)``. Query is cut to max_model_len, because the engine drops
    longer ones, and blocks to the most that the batch can use, as the engine does.
    vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/extension/bucketing/file_strategy.py. Up to v0.17.1
    it drops a query that does not fit with its context, too (common.py not_over_max_model_len).
    """
    longest, block = limits.max_model_len, limits.block_size
    prompt = sorted({(b, min(query, longest), context) for b, query, context in buckets.prompt})
    if rules.prompt_fits == "sum":
        prompt = sorted({(b, query, min(c, (longest - query) // block)) for b, query, c in prompt})
    decode = sorted(
        {(b, query, min(blocks, limits.block_top(b))) for b, query, blocks in buckets.decode}
    )
    lines = ["# batch, query tokens, context blocks (made by gaudi-launch)"]
    lines += [f"({batch}, {query}, {context})" for batch, query, context in prompt]
    lines += [f"({batch}, {query}, {blocks})" for batch, query, blocks in decode]
    return "\n".join(lines) + "\n"
