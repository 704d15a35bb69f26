"""Predict speed: of a launch by its plan, of a service by its record."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.host.accelerators import accelerator_of
from gaudi_launch.core.launch.prepared import Prepared
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.speed import load_in, setup_in
from gaudi_launch.core.predict.learned import learned_for
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.load import Load
from gaudi_launch.core.predict.scaling import speed_of
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.simulate import Outcome, ServedSetup, simulate
from gaudi_launch.core.predict.step_model import PROCESSOR, Setup

_log = logging.getLogger(__name__)
# the key of a record's setup
SETUP = "setup"


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


def of_plan(prepared: Prepared, made: Plan) -> SpeedEstimate | None:
    """Return the prediction for a plan with as many clients as it serves.

    Lengths are those of its ranges, or typical ones. Return None where `setup_of` does.
    """
    setup = setup_of(prepared, made)
    if setup is None:
        return None
    return outcome_of(prepared, made, setup, load_in(context_of(prepared, made)), ())


def setup_of(prepared: Prepared, made: Plan) -> ServedSetup | None:
    """Return what a plan serves with; None where its speed is not known."""
    context = context_of(prepared, made)
    return known(setup_in(context, prepared.engine, made.settings, made.num_blocks))


def known(setup: ServedSetup | None) -> ServedSetup | None:
    """Return the setup; None for a processor whose speed was not learned."""
    if setup is None or not is_processor(setup) or learned_for(PROCESSOR) is not None:
        return setup
    return None


def is_processor(setup: ServedSetup) -> bool:
    """Return True for an engine without cards."""
    return setup.speed.setup.generation == PROCESSOR


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
    product = accelerator_of(prepared.host)
    if outcome is None:
        return None
    hardware: str = PROCESSOR
    if not is_processor(setup):
        assert product is not None, "its speed is known"
        hardware = product.id
    label = prepared.engine.identity.label if made is not None else ""
    return SpeedEstimate(prepared.model, hardware, setup.dtype, label, outcome, made, notes)


@dataclass(frozen=True)
class RecordedSetup:
    """What a service serves with, by the names of its engine and model.

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
    """Return the record of a service: its plan, and the setup that it is predicted for.

    Simulated cards have none: their speed is the model's own, not one of this machine's cards.
    """
    engine, model = prepared.engine, prepared.model
    context = context_of(prepared, made)
    found = setup_in(context, engine, made.settings, made.num_blocks)
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
    found = known(mapped(lambda one: one.served, setup_of_record(record)))
    return None if found is None else simulate(found, load)


def setup_of_record(record: Mapping[str, Any]) -> RecordedSetup | None:
    """Return what a service serves with; None where its record does not have it."""
    try:
        return codec.read(RecordedSetup, record.get(SETUP))
    except (codec.BadRecord, LaunchError) as error:
        _log.debug("the record has no setup: %s", error)
        return None
