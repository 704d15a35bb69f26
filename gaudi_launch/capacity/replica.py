"""One replica: memory, limits and step times.

Step times include the padding of its plan's buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.buckets.optimiser.padding_cost import score
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.host.accelerators import Accelerator
from gaudi_launch.messages import Message
from gaudi_launch.models.card_memory import ServingDemand, fit
from gaudi_launch.models.model import Model
from gaudi_launch.models.sizing import MemoryRules
from gaudi_launch.models.stages import stage_of
from gaudi_launch.performance.limits import EngineLimits
from gaudi_launch.performance.scaling import Speed, step_time, with_stages
from gaudi_launch.performance.simulator import simulate
from gaudi_launch.performance.step_model import Engine as Scheduling
from gaudi_launch.performance.step_time import StepTime

# padding shows after some hundred requests; more of them only take longer
_PADDED_FOR = 600


@dataclass(frozen=True)
class ReplicaQuestion:
    """The model, cards, division of a card and traffic of a replica.

    ``buckets`` returns those that its plan warms up, for a number of KV blocks; ``prompts`` is the
    number of prompts per step. ``adjust`` puts the user's own constants into the step times. With
    ``stages`` each stage is on ``cards`` cards, and the replica is one of as many virtual engines.
    """

    model: Model
    cards: int
    dtype: str
    accelerator: Accelerator
    demand: ServingDemand
    rules: MemoryRules
    traffic: Traffic
    adjust: Callable[[StepTime], StepTime] = lambda cost: cost
    scheduling: Scheduling = "v0"
    prompts: int = 1
    buckets: Callable[[int], Buckets | None] = lambda blocks: None
    stages: int = 1


@dataclass(frozen=True)
class Replica:
    """A replica that fits.

    ``padding`` is the share of step time that bucket padding adds; ``cost`` includes it.
    ``buckets`` are those that its plan warms up, None without a warm-up.
    """

    cards: int
    limits: EngineLimits
    cost: StepTime
    padding: float
    speed: Speed
    notes: tuple[Message, ...]
    buckets: Buckets | None = None
    kv_dtype: str = "auto"


@dataclass(frozen=True)
class Unfit:
    """The reason why this number of cards cannot run a replica."""

    cards: int
    reason: Message


def replica(asked: ReplicaQuestion) -> Replica | Unfit:
    """Return the replica, or the reason why it does not fit."""
    accelerator, demand = asked.accelerator, asked.demand
    stage = stage_of(asked.model, asked.stages)
    row = fit(
        stage, accelerator.usable_bytes, [asked.cards], [asked.dtype], demand, asked.rules
    ).rows[0]
    if not row.fits or not row.kv_blocks:
        return Unfit(asked.cards, row.reason)
    limits = _limits(asked, row.kv_blocks)
    kv_dtype = demand.kv_dtype
    speed = step_time(
        asked.model, asked.cards, asked.dtype, accelerator, kv_dtype, asked.scheduling
    )
    speed = with_stages(speed, asked.model, asked.stages)
    cost = asked.adjust(speed.cost)
    buckets = asked.buckets(limits.num_blocks)
    prompt, decode, padding = _padding(asked, buckets, limits, cost)
    notes = tuple(speed.notes)
    return Replica(
        asked.cards, limits, _padded(cost, prompt, decode), padding, speed, notes, buckets, kv_dtype
    )


def _limits(asked: ReplicaQuestion, blocks: int) -> EngineLimits:
    demand, length = asked.demand, asked.demand.max_model_len
    inputs, outputs = asked.traffic.input_range, asked.traffic.output_range
    mixed = asked.scheduling == "v1"
    budget = demand.max_num_batched_tokens
    if not (mixed and budget):
        # an engine without chunked prefill reads a prompt in one step
        budget = max(budget, length)
    return EngineLimits(
        max_num_seqs=demand.max_num_seqs,
        max_num_prefill_seqs=asked.prompts,
        max_num_batched_tokens=budget,
        max_model_len=length,
        num_blocks=blocks,
        input_min=min(inputs[0], length),
        input_max=min(inputs[1], length),
        output_min=min(outputs[0], length),
        output_max=min(outputs[1], length),
        mixed_steps=mixed,
    )


def _padding(
    asked: ReplicaQuestion, buckets: Buckets | None, limits: EngineLimits, cost: StepTime
) -> tuple[float, float, float]:
    """Return the overhead of prefill, of decode and of both.

    It is that of the plan's buckets at full load.
    """
    if buckets is None:
        return 0.0, 0.0, 0.0
    part = asked.traffic.first(max(_PADDED_FOR, 2 * limits.max_num_seqs)).requests
    found = score(buckets, simulate(part, limits, cost, concurrency=limits.max_num_seqs), cost)
    return found.prompt_overhead, found.decode_overhead, found.overhead


def _padded(cost: StepTime, prompt: float, decode: float) -> StepTime:
    return replace(
        cost,
        prefill_fixed=cost.prefill_fixed * (1 + prompt),
        prefill_token=cost.prefill_token * (1 + prompt),
        prefill_attention=cost.prefill_attention * (1 + prompt),
        decode_fixed=cost.decode_fixed * (1 + decode),
        decode_sequence=cost.decode_sequence * (1 + decode),
        decode_block=cost.decode_block * (1 + decode),
        bend=tuple(each * (1 + decode) for each in cost.bend),
    )
