"""How an engine would divide a card, asked for each number of cards and data type as a plan would ask. Pure."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.accelerators import Accelerator
from gaudi_launch.host.records import Card, Host
from gaudi_launch.models.fit import Ask
from gaudi_launch.models.quant_config import QuantFile
from gaudi_launch.models.records import Model
from gaudi_launch.models.sizing import MemoryRules
from gaudi_launch.planning.engine import Context, Engine, Limits
from gaudi_launch.planning.memory import division
from gaudi_launch.planning.plan import Placement
from gaudi_launch.planning.precision import fp8_cache
from gaudi_launch.planning.request import Request

# the data types that a user names with -d; other weights lie so on disk and need no word
_NAMED = ("fp8", "awq", "gptq")


def divided(
    engine: Engine, request: Request, accelerator: Accelerator, model: Model, cards: int, dtype: str
) -> tuple[Ask, MemoryRules]:
    """The division that ``plan -n cards`` comes to on this product, for weights in ``dtype``.

    fp8 of other weights is taken as calibrated, with the KV cache type that the calibration writes. Raises
    LaunchError for what the engine cannot do with this model, cards or lengths.
    """
    if dtype == "fp8" and not accelerator.has_fp8:
        raise LaunchError("fit.no_fp8", ExitCode.MACHINE, card=accelerator.title)
    host = Host(
        cards=tuple(Card(n, n, accelerator.names[0]) for n in range(cards)), product=accelerator.id, origin="fit"
    )
    request = replace(request, cards=cards)
    if dtype in _NAMED and dtype != model.quantization:
        request = replace(request, dtype=dtype, quant_file=_calibrated(model, engine) if dtype == "fp8" else None)
    limits = engine.limits(request, host, model)
    settings = engine.propose(Context(request, host, model, Placement(tuple(range(cards))), limits)).settings
    identity = engine.identity
    return division(model, limits, settings, identity.name, identity.version)


def limits_of(engine: Engine, request: Request, model: Model) -> Limits:
    """The lengths and the requests at once that the engine serves for this. Raises LaunchError (USAGE)."""
    return engine.limits(request, Host(), model)


def _calibrated(model: Model, engine: Engine) -> QuantFile:
    identity = engine.identity
    return QuantFile("calibrated", "calibrated", fp8_cache(model, identity.name, identity.version))
