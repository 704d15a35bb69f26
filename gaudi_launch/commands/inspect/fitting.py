"""The models with a profile that fit on a machine."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gaudi_launch.commands.inspect.fit import (
    InspectOptions,
    accelerator_of,
    engine_for,
    numbers_of,
    request_for,
)
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines import detect as detection
from gaudi_launch.core.engines.detect import Detect
from gaudi_launch.core.host.accelerators import Accelerator, accelerators
from gaudi_launch.core.launch.forecast_case import data_types
from gaudi_launch.core.launch.machine import load
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.fit import fewest_cards
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.profiles import Profile, profiles

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ListedModel:
    """A model, its profile, and the fewest cards that it fits; None: no number."""

    model: Model
    profile: Profile
    dtype: str
    cards: int | None


@dataclass(frozen=True)
class FittingModels:
    """The models by size, the largest first.

    ``cards`` is the largest number that was tried. ``here`` is False for the cards of a server,
    because none was given and this machine has none.
    """

    accelerator: Accelerator
    cards: int
    here: bool
    models: tuple[ListedModel, ...]


def fitting(options: InspectOptions) -> FittingModels:
    """Return the fewest cards of each model with a profile, as `fit` answers for one.

    Raises LaunchError (USAGE) for options that are not understood, and for an accelerator of
    another maker.
    """
    name = accelerator_of(options.accelerator)
    product = accelerators().get(name)
    if product is None:
        known = ", ".join(accelerators())
        raise LaunchError("fit.accelerator", ExitCode.USAGE, found=name, known=known)
    present = _cards_of(options.accelerator)
    most = present or product.cards
    numbers = numbers_of(options.cards) or [count for count in (1, 2, 4, 8) if count <= most]
    detect = cache(detection.detect)
    found = [_listed(profile, options, product, numbers, detect) for profile in profiles()]
    found.sort(key=lambda each: -each.profile.facts["parameters"])
    return FittingModels(product, max(numbers), bool(present or options.accelerator), tuple(found))


def _cards_of(machine: str) -> int:
    """Return the cards of a machine: this one for "", none of a product's name."""
    if machine and not machine.startswith("simulated:") and not Path(machine).is_file():
        return 0
    try:
        return len(load(machine or None).cards)
    except LaunchError as error:
        _log.debug("the cards of this machine are not known: %s", error)
        return 0


def _listed(
    profile: Profile,
    options: InspectOptions,
    product: Accelerator,
    numbers: list[int],
    detect: Detect,
) -> ListedModel:
    model = known_model(profile.models[0], must_exist=False)
    dtype, cards = profile.dtype, None
    try:
        engine = engine_for(options.engine, model, product.id, detect)
        dtype = data_types(model, options.dtype, engine)[0]
        request = request_for(model, options.lengths)
        cards = fewest_cards(engine, request, product, model, numbers, dtype)
    except LaunchError as error:
        if error.exit_code is ExitCode.USAGE:
            raise
        _log.debug("%s fits no number of cards: %s", model.path, error)
    return ListedModel(model, profile, dtype, cards)
