"""The step times that a plan uses, from its model, weights, cards and engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaudi_launch.host.accelerators import accelerator_of, accelerators
from gaudi_launch.planning.precision import weight_type

if TYPE_CHECKING:
    from gaudi_launch.performance.step_time import StepTime
    from gaudi_launch.planning.engine import Context, Engine

# where no card is known
_ASSUMED_CARD = "gaudi2"


def step_time_in(context: Context, engine: Engine) -> StepTime:
    """Return the step times of ``context`` on ``engine``."""
    from gaudi_launch.performance.scaling import step_time

    request, model = context.request, context.model
    product = accelerator_of(context.host) or accelerators()[_ASSUMED_CARD]
    dtype = weight_type(request, model)
    kv_dtype = "auto"
    if dtype == "fp8" and request.quant_file is not None:
        kv_dtype = request.quant_file.kv_dtype or "auto"
    cards = len(context.placement.modules) or 1
    return step_time(model, cards, dtype, product, kv_dtype, engine.innermost.scheduling).cost
