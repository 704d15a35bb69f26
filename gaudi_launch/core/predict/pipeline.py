"""Step times of pipeline stages. Pure.

An engine of p stages runs p virtual engines, each with its own sequences and its share of the KV
cache (HabanaAI/vllm-fork@v0.9.0.1+Gaudi-1.22.0:vllm/engine/llm_engine.py, scheduler.py). Each of
them is simulated as one engine whose step passes all stages. No figure of pipeline stages on Gaudi
is published, so all of this is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.step_model import Setup
from gaudi_launch.core.predict.step_time import StepTime

_MILLISECONDS = 1000.0
# hidden states and residual, two bytes each (vllm/sequence.py IntermediateTensors)
_SENT_BYTES = 2 * 2
# sent in parts by the cards of a stage, then gathered (vllm/distributed send_tensor_dict)
_MESSAGES = 2


@dataclass(frozen=True)
class Stages:
    """Stages; the largest has ``uneven`` times its even share of layers."""

    count: int
    uneven: float = 1.0

    @property
    def busy(self) -> float:
        """Return the share of the time in which a stage works.

        As many virtual engines as stages keep all stages busy where all steps are equally long.
        Where steps vary as exponential times do, p customers of p equal queues keep each busy for
        p / (2 p - 1) of the time (mean value analysis). Prompts between decode steps are in
        between: the mean of both.

        >>> [round(Stages(count).busy, 3) for count in (1, 2, 4)]
        [1.0, 0.833, 0.786]
        """
        return (1 + self.count / (2 * self.count - 1)) / 2


def over_stages(
    cost: StepTime, stages: Stages, setup: Setup, shape: Shape, constants: Mapping[str, float]
) -> StepTime:
    """Return the step times of one virtual engine.

    ``cost`` are those of the complete model on the cards of one stage.
    """
    if stages.count == 1:
        return cost
    hops = stages.count - 1
    pair, fixed = constants[f"pair.{setup.generation}"], constants[f"fixed.{setup.generation}"]
    # between cards of one place: the ports between servers are as fast as those of a pair
    sent = _MILLISECONDS * _SENT_BYTES * shape.hidden / setup.cards / pair
    if setup.cards > 1:
        sent *= _MESSAGES
    waiting = _MILLISECONDS * (_MESSAGES * constants[f"latency.served.{setup.generation}"] + fixed)
    slower = stages.uneven / stages.busy
    return replace(
        cost,
        prefill_fixed=slower * (cost.prefill_fixed + hops * waiting),
        prefill_token=slower * (cost.prefill_token + hops * sent),
        prefill_attention=slower * cost.prefill_attention,
        decode_fixed=slower * (cost.decode_fixed + hops * waiting),
        decode_sequence=slower * (cost.decode_sequence + hops * sent),
        decode_block=slower * cost.decode_block,
        bend=tuple(slower * each for each in cost.bend),
        basis=f"{cost.basis} x {stages.count}",
    )
