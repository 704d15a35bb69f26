"""Choose the fewest cards that fit a model.

For a request that names neither a number nor modules. Pure.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from gaudi_launch.errors import LaunchError
from gaudi_launch.host.hardware import Host
from gaudi_launch.models.model import Model
from gaudi_launch.planning.engine import Engine
from gaudi_launch.planning.memory import MemoryPlan
from gaudi_launch.planning.passthrough import with_options
from gaudi_launch.planning.placement import USUAL_COUNTS
from gaudi_launch.planning.planner import draft, place
from gaudi_launch.planning.request import Request

_log = logging.getLogger(__name__)

# engine options by which users choose a number of cards themselves
_OWN_NUMBER = ("--tensor-parallel-size", "--num-shard", "--sharded")


def with_fewest_cards(request: Request, host: Host, model: Model, engine: Engine) -> Request:
    """Return the request with the fewest of 1, 2, 4 and 8 cards that fit the model.

    It is unchanged where the user or the engine gives the number, where sizes are not known, and
    where no number fits the model: the plan then names the reason.
    """
    if not _is_open(request, engine):
        return request
    tight: Request | None = None
    for count in USUAL_COUNTS:
        tried = replace(request, fewest=count)
        memory = _memory(tried, host, model, engine)
        if memory is None or memory.fits is False:
            continue
        if memory.fits is None:
            return request
        if memory.tight is None:
            return tried
        tight = tight or tried
    return tight or request


def _is_open(request: Request, engine: Engine) -> bool:
    """Report whether the number of cards is left to us."""
    if not engine.needs_cards or request.tuning != "auto":
        return False
    if request.modules is not None or engine.cards(request) is not None:
        return False
    args = with_options(request, engine.innermost.identity).args
    return not any(args.has(name) for name in _OWN_NUMBER)


def _memory(request: Request, host: Host, model: Model, engine: Engine) -> MemoryPlan | None:
    """Return a card's memory as the plan of this request would have it.

    Return None where there is no such plan.
    """
    try:
        placement = place(request, host, engine)
        while engine.inner is not None:
            request, placement = engine.first(request, placement, host)
            engine = engine.inner
        return draft(request, host, model, engine, placement).memory
    except LaunchError as error:
        _log.debug("no placement: %s", error)
        return None
