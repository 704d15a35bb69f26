"""The step functions of one model on one setup. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from gaudi_launch.core.predict.loads import Step
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.step_model import Setup, amounts_of, decode, prefill, rates_of


@dataclass(frozen=True)
class StepModel:
    """The two step functions of one model on one setup."""

    prefill: Step
    decode: Step


def steps(setup: Setup, shape: Shape, constants: Mapping[str, float]) -> StepModel:
    """Return the step functions."""
    amounts, rates = amounts_of(setup, shape), rates_of(setup, shape, constants)
    return StepModel(partial(prefill, amounts, rates), partial(decode, amounts, rates))
