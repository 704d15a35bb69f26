"""Predict speed of a plan, of a service by its record, of a figure by its run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.host.accelerators import accelerator_of
from gaudi_launch.core.launch.prepared import Prepared
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import WEIGHT_BYTES
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.speed import load_in, scheduled_in, setup_in
from gaudi_launch.core.predict.experts import chosen_experts
from gaudi_launch.core.predict.learned import learned_for
from gaudi_launch.core.predict.limits import EngineLimits, as_limits
from gaudi_launch.core.predict.load import Load, from_ranges
from gaudi_launch.core.predict.published import STEP_TOKENS, Figure
from gaudi_launch.core.predict.scaling import speed_of
from gaudi_launch.core.predict.shape import Shape, shape_of
from gaudi_launch.core.predict.simulate import Outcome, ServedSetup, simulate
from gaudi_launch.core.predict.step_model import PROCESSOR, Setup

_log = logging.getLogger(__name__)
# the key of a record's setup
SETUP = "setup"
# the percentile of each statistic of a figure that is none of a mean
_PERCENTILES = {"median": 50, "p90": 90}


@dataclass(frozen=True)
class SpeedEstimate:
    """Speed of a launch under a load.

    ``hardware`` is the product, or "cpu". A batch without a server has no ``plan``, and "" for
    ``engine``.
    """

    model: Model
    hardware: str
    dtype: str
    engine: str
    outcome: Outcome
    plan: Plan | None = None
    notes: tuple[Message, ...] = ()


def of_plan(prepared: Prepared, made: Plan) -> Outcome | None:
    """Return the prediction for a plan with as many clients as it serves.

    Lengths are those of its ranges, or typical ones. Return None where `setup_of` does.
    """
    setup = setup_of(prepared, made)
    if setup is None:
        return None
    return simulate(setup, load_in(context_of(prepared, made)))


def setup_of(prepared: Prepared, made: Plan) -> ServedSetup | None:
    """Return what a plan serves with; None where its speed is not known."""
    return _if_learned(_served(prepared, made))


def _if_learned(setup: ServedSetup | None) -> ServedSetup | None:
    """Return the setup; None for a processor whose speed was not learned."""
    if setup is None or setup.speed.setup.generation != PROCESSOR or learned_for(PROCESSOR):
        return setup
    return None


def _served(prepared: Prepared, made: Plan) -> ServedSetup | None:
    """Return `setup_in` of a plan, and of an engine on the processor.

    The cache of the latter has the type of the weights.
    """
    engine, model, context = prepared.engine, prepared.model, context_of(prepared, made)
    if engine.needs_cards:
        return setup_in(context, engine, made.settings, made.num_blocks)
    shape, each = shape_of(model), WEIGHT_BYTES.get(made.dtype)
    if engine.inner is not None or shape is None or each is None:
        return None
    limits = scheduled_in(context, engine, made.settings, made.num_blocks)
    fused, gather = chosen_experts(model.model_type or model.name, engine.scheduling)
    tokens = limits.max_num_batched_tokens
    setup = Setup(PROCESSOR, 1, "bf16", each, each, engine.scheduling, fused, tokens, gather=gather)
    return ServedSetup(limits, speed_of(setup, shape), made.dtype)


def context_of(prepared: Prepared, made: Plan) -> Context:
    """Return the context of a plan's rules."""
    engine, model, request = prepared.engine, prepared.model, prepared.request
    limits = engine.limits(request, prepared.host, model)
    return Context(request, prepared.host, model, made.placement, limits)


def outcome_of(
    prepared: Prepared,
    made: Plan | None,
    setup: ServedSetup,
    load: Load,
    notes: tuple[Message, ...],
) -> SpeedEstimate | None:
    """Return the speed under a load; ``made`` None for a batch without a server."""
    outcome = simulate(setup, load)
    if outcome is None:
        return None
    product = accelerator_of(prepared.host) if prepared.engine.needs_cards else None
    hardware = mapped(lambda one: one.id, product) or PROCESSOR
    label = prepared.engine.identity.label if made is not None else ""
    return SpeedEstimate(prepared.model, hardware, setup.dtype, label, outcome, made, notes)


@dataclass(frozen=True)
class RecordedSetup:
    """The setup of a service, by the names of its engine and model.

    ``dtype`` and ``measured`` as in `ServedSetup`.
    """

    engine: str
    model: str
    dtype: str
    limits: EngineLimits
    setup: Setup
    shape: Shape
    measured: bool

    @property
    def served(self) -> ServedSetup:
        """Return the setup as it is simulated."""
        speed = speed_of(self.setup, self.shape)
        return ServedSetup(self.limits, speed, self.dtype, self.measured)


def record_of(prepared: Prepared, made: Plan) -> dict[str, Any]:
    """Return the record of a service: its plan, and the setup of its prediction.

    Simulated cards have none: their speed is the model's own, not one of this machine's cards.
    """
    engine, model = prepared.engine, prepared.model
    found = _served(prepared, made)
    if found is None or engine.identity.simulated:
        return made.to_json()
    recorded = RecordedSetup(
        engine=engine.identity.label,
        model=model.name,
        dtype=found.dtype,
        limits=found.limits,
        setup=found.speed.setup,
        shape=found.speed.shape,
        measured=found.measured and found.speed.measured,
    )
    return {**made.to_json(), SETUP: codec.write(recorded)}


def of_record(record: Mapping[str, Any], load: Load) -> Outcome | None:
    """Return the prediction of ``load`` for a service, by its record.

    Return None where the record has no setup, and for an engine without cards whose speed was not
    learned.
    """
    found = _if_learned(mapped(lambda one: one.served, setup_of_record(record)))
    return None if found is None else simulate(found, load)


def setup_of_record(record: Mapping[str, Any]) -> RecordedSetup | None:
    """Return what a service serves with; None where its record does not have it."""
    try:
        return codec.read(RecordedSetup, record.get(SETUP))
    except (codec.BadRecord, LaunchError) as error:
        _log.debug("the record has no setup: %s", error)
        return None


def of_figure(figure: Figure) -> float:
    """Return what is simulated for the setup and the run of a figure, in its unit."""
    outcome = simulate(*run_of(figure))
    assert outcome is not None, "its limits are those of its requests"
    if figure.measure == "throughput":
        return outcome.tokens
    if figure.statistic == "step":
        return float(outcome.steps[1].total)
    latency = {"ttft": outcome.ttft, "tpot": outcome.tpot}[figure.measure]
    if figure.statistic in _PERCENTILES:
        return latency.at(_PERCENTILES[figure.statistic])
    return latency.mean


def run_of(figure: Figure) -> tuple[ServedSetup, Load]:
    """Return the setup of a figure, and all requests of its run."""
    setup, batch = figure.setup, max(1, round(figure.batch))

    def drawn(mean: float) -> tuple[int, int]:
        return round(mean * (1 - figure.spread)), round(mean * (1 + figure.spread))

    inputs, outputs = drawn(figure.input), drawn(figure.output)
    load = from_ranges(inputs, outputs, max(batch, round(figure.requests)))
    length = inputs[1] + outputs[1]
    stated = setup.step_tokens or setup.prompt_tokens
    limits = as_limits(
        {
            "max_num_seqs": batch,
            "max_num_prefill_seqs": 1,
            "max_num_batched_tokens": stated or max(STEP_TOKENS, length),
            "max_model_len": length,
            "mixed_steps": setup.engine == "v1",
        }
    )
    served = ServedSetup(limits, speed_of(setup, figure.shape))
    if setup.engine == "static":
        return served, replace(load, batch=batch)
    return served, replace(load, clients=batch, recorded=True)
