"""One replica: memory, engine limits, and step times with planned buckets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gaudi_launch.buckets.optimiser.bucket_planner import plan
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.host.accelerators import Accelerator
from gaudi_launch.messages import Message
from gaudi_launch.models.card_memory import ServingDemand, fit
from gaudi_launch.models.model import Model
from gaudi_launch.models.sizing import MemoryRules
from gaudi_launch.performance.limits import EngineLimits
from gaudi_launch.performance.scaling import step_time
from gaudi_launch.performance.step_model import Engine as Scheduling
from gaudi_launch.performance.step_time import StepTime

# the padding of a bucket plan shows after some hundred requests; more of them only take longer
_PLANNED_FOR = 600


@dataclass(frozen=True)
class Replica:
    """A replica. ``padding`` is the share of step time that bucket padding adds.

    It is included in ``cost``.
    """

    cards: int
    limits: EngineLimits
    cost: StepTime
    padding: float
    notes: tuple[Message, ...]


@dataclass(frozen=True)
class Unfit:
    """The reason why this number of cards cannot run a replica."""

    cards: int
    reason: Message


def replica(
    model: Model,
    cards: int,
    dtype: str,
    accelerator: Accelerator,
    ask: ServingDemand,
    rules: MemoryRules,
    traffic: Traffic,
    adjust: Callable[[StepTime], StepTime],
    scheduling: Scheduling = "v0",
) -> Replica | Unfit:
    """Return the replica of ``model`` over ``cards``.

    ``adjust`` applies the user's constants to the step times.
    """
    card = (accelerator.memory_usable_mib or accelerator.memory_total_mib) << 20
    row = fit(model, card, [cards], [dtype], ask, rules).rows[0]
    if not row.fits or not row.kv_blocks:
        return Unfit(cards, row.reason)
    inputs = [min(tokens, ask.max_model_len) for _, tokens, _ in traffic.requests]
    outputs = [min(output, ask.max_model_len) for _, _, output in traffic.requests]
    limits = EngineLimits(
        max_num_seqs=ask.max_num_seqs,
        # the default of the 1.22 script and of vllm-gaudi, and what the planner picks: prompts one at a time
        max_num_prefill_seqs=1,
        # a prompt longer than the engine's budget is split over several steps, which the simulator
        # counts as one
        max_num_batched_tokens=max(ask.max_num_batched_tokens, ask.max_model_len),
        max_model_len=ask.max_model_len,
        num_blocks=row.kv_blocks,
        input_min=min(inputs),
        input_max=max(inputs),
        output_min=min(outputs),
        output_max=max(outputs),
    )
    kv_dtype = ask.kv_dtype if dtype == "fp8" else "auto"
    speed = step_time(model, cards, dtype, accelerator, kv_dtype, scheduling)
    cost = adjust(speed.cost)
    prompt, decode, padding = _padding(traffic, limits, cost)
    return Replica(cards, limits, _padded(cost, prompt, decode), padding, tuple(speed.notes))


def _padding(traffic: Traffic, limits: EngineLimits, cost: StepTime) -> tuple[float, float, float]:
    """Return the overhead of prefill, of decode and of both.

    The planner makes the buckets for this traffic.
    """
    score = plan(limits, traffic.requests[:_PLANNED_FOR], cost=cost).score
    return score.prompt_overhead, score.decode_overhead, score.overhead


def _padded(cost: StepTime, prompt: float, decode: float) -> StepTime:
    return replace(
        cost,
        prefill_fixed=cost.prefill_fixed * (1 + prompt),
        prefill_token=cost.prefill_token * (1 + prompt),
        prefill_attention=cost.prefill_attention * (1 + prompt),
        decode_fixed=cost.decode_fixed * (1 + decode),
        decode_sequence=cost.decode_sequence * (1 + decode),
        decode_block=cost.decode_block * (1 + decode),
    )
