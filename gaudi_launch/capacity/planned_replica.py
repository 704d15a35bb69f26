"""One replica as its plan would have it: memory, limits, buckets and step times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter

from gaudi_launch.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.buckets.optimiser.bucket_planner import BucketGoal
from gaudi_launch.buckets.prompts_per_step import choose_prompts
from gaudi_launch.capacity.replica import Replica, ReplicaQuestion, Unfit, replica
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.host.accelerators import Accelerator
from gaudi_launch.models.model import Model
from gaudi_launch.models.stages import stage_of
from gaudi_launch.optional import mapped
from gaudi_launch.performance.constants import values
from gaudi_launch.performance.evidence import Evidence, Query, evidence_for
from gaudi_launch.performance.published import figures
from gaudi_launch.planning.engine import Engine
from gaudi_launch.planning.fit import Division, drawn_up
from gaudi_launch.planning.request import Request
from gaudi_launch.planning.speed import step_time_in

# the constant of what the API server and the client add to a request
_DELAY = "api.request"
# requests by whose lengths the prompts of a step are chosen
_TRACED = 1000


@dataclass(frozen=True)
class ReplicaSetup:
    """A model on ``cards`` of a product, with the options of ``request``.

    ``constants`` are the user's own figures of the step-time model, in ms. ``traced``: the traffic
    is of past requests, whose lengths decide the prompts of one step where no option does.
    ``stages``: pipeline stages of ``cards`` cards each.
    """

    engine: Engine
    request: Request
    accelerator: Accelerator
    model: Model
    cards: int
    dtype: str
    constants: Mapping[str, str] = field(default_factory=dict)
    traced: bool = False
    stages: int = 1


def planned_replica(asked: ReplicaSetup, traffic: Traffic) -> Replica | Unfit:
    """Return the replica of this deployment, or the reason why it does not fit.

    It is planned for ``traffic`` at full load. Raises LaunchError for what the engine cannot do.
    """
    drawn = _drawn(asked, asked.request)
    if asked.traced and asked.engine.chooses_prompts(drawn.context):
        prompts = _prompts_of_trace(asked, drawn, traffic)
        drawn = _drawn(asked, replace(asked.request, max_prefill_seqs=prompts))
    return replica(
        ReplicaQuestion(
            model=asked.model,
            cards=asked.cards,
            dtype=asked.dtype,
            accelerator=asked.accelerator,
            demand=drawn.demand,
            rules=drawn.rules,
            traffic=traffic,
            adjust=lambda cost: cost.with_constants(asked.constants),
            scheduling=asked.engine.innermost.scheduling,
            prompts=_prompts(asked.engine, drawn),
            buckets=lambda blocks: _buckets(asked.engine, drawn, blocks),
            stages=asked.stages,
        )
    )


def _drawn(asked: ReplicaSetup, request: Request) -> Division:
    stage = stage_of(asked.model, asked.stages)
    return drawn_up(
        asked.engine, request, asked.accelerator, stage, cards=asked.cards, dtype=asked.dtype
    )


def _prompts_of_trace(asked: ReplicaSetup, drawn: Division, traffic: Traffic) -> int:
    """Return the prompts of one step for the lengths of past requests."""
    question = asked.engine.question(drawn.settings, drawn.context, None)
    if question is None:
        return 1
    cost = step_time_in(drawn.context, asked.engine).with_constants(asked.constants)
    return choose_prompts(question, BucketGoal(), cost, workload=traffic.requests[:_TRACED]).prompts


def _prompts(engine: Engine, drawn: Division) -> int:
    """Return the prompts of one step that the plan's settings allow."""
    asked = engine.question(drawn.settings, drawn.context, None)
    if asked is None:
        return 1
    return asked.limits.max_num_prefill_seqs


def _buckets(engine: Engine, drawn: Division, blocks: int) -> Buckets | None:
    """Return the buckets that the plan warms up; None without a warm-up."""
    try:
        found = engine.buckets(drawn.settings, drawn.context, blocks)
    except BucketError:
        return None
    return mapped(itemgetter(1), found)


def request_delay() -> float:
    """Return the seconds that the API server and the client add to each request."""
    return values()[_DELAY]


def evidence_of(found: Replica, traffic: Traffic, inside: float, *, measured: bool) -> Evidence:
    """Return the published figures near one replica with ``inside`` requests at once.

    ``measured`` False: no figure is of this number of cards. The range is of speeds.
    """
    requests = traffic.requests
    query = Query(
        setup=found.speed.setup,
        shape=found.speed.shape,
        input=sum(tokens for _, tokens, _ in requests) / len(requests),
        output=traffic.mean_output,
        batch=max(1.0, inside),
        measured=found.speed.measured and measured,
    )
    return evidence_for(query, figures(), values())
