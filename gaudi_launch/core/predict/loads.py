"""Loads of complete requests by formula: static batch, closed loop. Pure.

Their times are computed from the times of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.step_model import Parts, Setup, amounts_of, decode, prefill, rates_of

Step = Callable[[Any, Any], Parts]


@dataclass(frozen=True)
class Lengths:
    """Tokens of a prompt and of its answer, numbers or arrays.

    ``together``: prompts of a closed loop that one step computes, see `prompts_together`.
    """

    input: Any
    output: Any
    together: Any = 1.0

    @property
    def context(self) -> Any:
        """Return the tokens in the cache when half of an answer is generated."""
        return self.input + self.output / 2


@dataclass(frozen=True)
class LoadTimes:
    """Mean TTFT and TPOT in seconds, and output tokens per second of all requests.

    ``step`` is the duration of a decode step without a prefill in between, ``parts`` of all steps
    of the load, ``batch`` the sequences that decode together.
    """

    ttft: Any
    tpot: Any
    step: Any
    throughput: Any
    parts: Parts
    batch: Any


def static_batch(prefill: Step, decode: Step, lengths: Lengths, batch: Any) -> LoadTimes:
    """Return the times of prompts prefilled together, then decoded together."""
    first = prefill(batch, lengths.input)
    each = decode(batch, lengths.context)
    further = lengths.output - 1
    parts = first.plus(each.times(further))
    throughput = batch * lengths.output / parts.total
    return LoadTimes(first.total, each.total, each.total, throughput, parts, batch)


def prompts_together(prompt_tokens: float, tokens: float, most: float) -> float:
    """Return how many prompts of ``tokens`` one step computes; 1 with no budget.

    A prompt may be computed in two steps, so this is a mean. On vLLM's CPU engine, 0.32.0, four
    clients with equal prompts had their first tokens in two steps: one, which came first, then
    three together.

    >>> [prompts_together(*load) for load in ((2048, 256, 4), (2048, 256, 16), (0, 256, 16))]
    [4.0, 8.0, 1.0]
    """
    return max(1.0, min(float(most), prompt_tokens / tokens))


def closed_loop(prefill: Step, decode: Step, lengths: Lengths, concurrency: Any) -> LoadTimes:
    """Return the mean times of ``concurrency`` clients in a closed loop.

    Each client waits for an answer before its next request. Steps of ``lengths.together`` prompts
    are prefilled one after another and decoding waits for them. Clients start together and have
    equal lengths, as published runs do, so that a prompt waits for half of the other steps.
    """
    first = prefill(concurrency * 0 + lengths.together, lengths.input)
    groups = concurrency / lengths.together
    each = decode(concurrency, lengths.context)
    further = lengths.output - 1
    parts = first.times(groups).plus(each.times(further))
    ttft = first.total * (groups + 1) / 2
    tpot = (parts.total - ttft) / further
    throughput = concurrency * lengths.output / parts.total
    return LoadTimes(ttft, tpot, each.total, throughput, parts, concurrency)


@dataclass(frozen=True)
class StepModel:
    """The two step functions of one model on one setup."""

    prefill: Step
    decode: Step


def steps(setup: Setup, shape: Shape, constants: Mapping[str, float]) -> StepModel:
    """Return the step functions."""
    amounts, rates = amounts_of(setup, shape), rates_of(setup, shape, constants)
    return StepModel(partial(prefill, amounts, rates), partial(decode, amounts, rates))
