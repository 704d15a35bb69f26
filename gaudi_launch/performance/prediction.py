"""Predict TTFT, TPOT and throughput of a load, by part, with range and evidence.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from gaudi_launch.performance.evidence import Band, Evidence, Query, evidence_for, of_learned
from gaudi_launch.performance.learned import LearnedConstants
from gaudi_launch.performance.loads import (
    Lengths,
    LoadTimes,
    Step,
    arrivals,
    closed_loop,
    prompts_together,
    static_batch,
)
from gaudi_launch.performance.published import Figure
from gaudi_launch.performance.shape import Shape
from gaudi_launch.performance.step_model import (
    Generation,
    Parts,
    Setup,
    amounts_of,
    decode,
    prefill,
    rates_of,
)

LoadKind = Literal["static", "concurrency", "rate"]
# SynapseAI releases from which the public figures of the fit are
FITTED_FROM = (1, 18)


@dataclass(frozen=True)
class Load:
    """A load in tokens.

    ``most`` is the number of concurrent sequences over all cards; ``rate`` is in requests per
    second. ``room``: sequences that the KV cache has room for, 0 where it has room for all; the
    others wait.
    """

    kind: LoadKind
    input: int
    output: int
    most: int
    rate: float = 0.0
    room: int = 0

    @property
    def inside(self) -> int:
        """Return the sequences that run at once."""
        if self.room:
            return min(self.most, self.room)
        return self.most


@dataclass(frozen=True)
class Prediction:
    """One load on one setup.

    Seconds and output tokens per second; ``prefill`` and ``decode`` are one step each.
    """

    ttft: Band
    tpot: Band
    per_user: Band
    throughput: Band
    prefill: Parts
    decode: Parts
    share: Mapping[str, float]
    bound: str
    batch: float
    saturated: bool
    evidence: Evidence


@dataclass(frozen=True)
class StepModel:
    """The two step functions of one model on one setup."""

    prefill: Step
    decode: Step


def steps(
    setup: Setup, shape: Shape, constants: Mapping[str, float], slower: float = 1.0
) -> StepModel:
    """Return the step functions; ``slower`` multiplies all of their times."""
    amounts, rates = amounts_of(setup, shape), rates_of(setup, shape, constants)

    def scaled(step: Callable[..., Parts]) -> Step:
        def run(batch: Any, tokens: Any) -> Parts:
            found = step(amounts, rates, batch, tokens)
            return found if slower == 1.0 else found.times(slower)

        return run

    return StepModel(scaled(prefill), scaled(decode))


@dataclass(frozen=True)
class SpeedKnowledge:
    """The constants and figures of predictions; ``learned``: of this host."""

    constants: Mapping[str, float]
    figures: Sequence[Figure]
    learned: LearnedConstants | None = None


def knowledge_of(generation: Generation) -> SpeedKnowledge:
    """Return the shipped knowledge with the measurements of this host."""
    from gaudi_launch.performance.constants import values
    from gaudi_launch.performance.learned import figure_of, learned_for
    from gaudi_launch.performance.published import figures

    learned = learned_for(generation)
    known = figures()
    if learned is not None:
        known = (*map(figure_of, learned.measurements), *known)
    return SpeedKnowledge(values(), known, learned)


def predict(
    setup: Setup,
    shape: Shape,
    load: Load,
    known: SpeedKnowledge,
    *,
    old: bool = False,
    measured: bool = True,
) -> Prediction:
    """Return the prediction for ``load``.

    ``old``: a release from before the figures of the fit; ``measured`` False: no figure is of this
    product.
    """
    constants, figures, learned = known.constants, known.figures, known.learned
    made = steps(setup, shape, constants, constants["software.old"] if old else 1.0)
    together = prompts_together(setup.prompt_tokens, load.input, load.inside)
    joined = 0.0
    if setup.step_tokens:
        joined = prompts_together(setup.step_tokens, load.input, load.inside)
    lengths = Lengths(load.input, load.output, together, joined)
    times = _times(made, lengths, load)
    query = Query(setup, shape, load.input, load.output, times.batch, measured)
    evidence = evidence_for(query, figures, constants)
    if learned is not None:
        evidence = of_learned(evidence, version=learned.version, typical=learned.typical)
    prompts = 1
    if load.kind == "static":
        prompts = load.most
    share = _shares(times.parts)
    return Prediction(
        ttft=evidence.time(times.ttft, "ttft"),
        tpot=evidence.time(times.tpot, "tpot"),
        per_user=evidence.speed(1 / times.tpot),
        throughput=_throughput(made, lengths, load, times, evidence),
        prefill=made.prefill(prompts, load.input),
        decode=made.decode(max(1.0, times.batch), lengths.context),
        share=share,
        bound=max(share, key=lambda part: share[part]),
        batch=times.batch,
        saturated=times.saturated,
        evidence=evidence,
    )


def _times(made: StepModel, lengths: Lengths, load: Load) -> LoadTimes:
    if load.kind == "static":
        return static_batch(made.prefill, made.decode, lengths, load.most)
    if load.kind == "concurrency":
        found = closed_loop(made.prefill, made.decode, lengths, load.inside)
        # clients beyond the cache's room wait for one that ends
        waiting = (load.most - load.inside) * load.output / found.throughput
        return replace(found, ttft=found.ttft + waiting)
    return arrivals(made.prefill, made.decode, lengths, rate=load.rate, most=load.most)


def _throughput(
    made: StepModel, lengths: Lengths, load: Load, times: LoadTimes, evidence: Evidence
) -> Band:
    """Return the range of tokens per second.

    A given rate is kept unless the engine may be too slow for it.
    """
    if load.kind != "rate" or times.saturated:
        return evidence.speed(times.throughput, "throughput")
    most = closed_loop(made.prefill, made.decode, lengths, load.most).throughput
    return Band(min(times.throughput, most * evidence.low), times.throughput, times.throughput)


def _shares(parts: Parts) -> dict[str, float]:
    total = parts.total
    return {field.name: float(getattr(parts, field.name) / total) for field in fields(Parts)}
