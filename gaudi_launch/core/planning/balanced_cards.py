"""Choose the number of cards of a request that names none.

The goal is ``balanced`` (`core.predict.balance`), on the cards that are free. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.host.accelerators import accelerator_of
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.card_memory import divide_card, serves
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import WEIGHT_BYTES, divides
from gaudi_launch.core.planning.engine import Context, Engine
from gaudi_launch.core.planning.memory import MemoryPlan, division, type_on_card
from gaudi_launch.core.planning.model_name import check_sizes
from gaudi_launch.core.planning.passthrough import with_options
from gaudi_launch.core.planning.placement import USUAL_COUNTS
from gaudi_launch.core.planning.planner import draft, place
from gaudi_launch.core.planning.precision import runs_fp8
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.speed import load_in, setup_in
from gaudi_launch.core.predict.balance import balanced
from gaudi_launch.core.predict.simulate import simulate

_log = logging.getLogger(__name__)

# requests that show which number of cards is the best
_COMPARED = 500
# engine options by which users choose a number of cards themselves
_OWN_NUMBER = ("--tensor-parallel-size", "--num-shard", "--sharded")


@dataclass(frozen=True)
class CountedSpeed:
    """A number of cards on which the model fits, with its speed.

    ``tokens`` are output tokens per second of all of them, ``score`` is that of the goal.
    """

    cards: int
    tokens: float
    score: float


def with_balanced_cards(request: Request, host: Host, model: Model, engine: Engine) -> Request:
    """Return the request with the best number of free cards: 1, 2, 4 or 8.

    The best by the goal ``balanced``; the fewest where the speed is not known. It is unchanged
    where the user or the engine gives the number, where a card's memory is not known, and where no
    number fits the model: the plan then names the reason. Raises LaunchError (MODEL) for a model
    whose sizes are unknown.
    """
    if not _is_open(request, engine):
        return request
    if model.path:
        # a folder may have weights whose size cannot be read
        check_sizes(model, weights=model.source != "config.json")
    speeds = speeds_of(request, host, model, engine)
    tight: Request | None = None
    for count in _in_order(speeds):
        tried = replace(request, chosen=(count, _because(count, speeds)))
        memory = _memory(tried, host, model, engine)
        if memory is None or memory.fits is False:
            continue
        if memory.fits is None:
            return request
        if memory.tight is None:
            return tried
        tight = tight or tried
    return tight or request


def _in_order(speeds: Sequence[CountedSpeed]) -> list[int]:
    """Return the numbers of cards, the best first, then the fewest."""
    ranked = [each.cards for each in sorted(speeds, key=lambda each: (-each.score, each.cards))]
    return [*ranked, *(count for count in USUAL_COUNTS if count not in ranked)]


def _because(count: int, speeds: Sequence[CountedSpeed]) -> Message:
    """Return the reason for a number, and what its neighbours would do."""
    by_cards = {each.cards: each for each in speeds}
    chosen = by_cards.pop(count, None)
    if chosen is None or not by_cards:
        return message("placement.fewest", cards=count)
    fewer = max((cards for cards in by_cards if cards < count), default=None)
    more = min((cards for cards in by_cards if cards > count), default=None)
    share = {cards: f"{each.tokens / chosen.tokens:.2g}" for cards, each in by_cards.items()}
    if fewer is not None and more is not None:
        both = {"fewer": fewer, "less": share[fewer], "more": more, "gain": share[more]}
        return message("placement.balanced", cards=count, **both)
    if fewer is not None:
        return message("placement.balanced_most", cards=count, fewer=fewer, less=share[fewer])
    assert more is not None, "one of the others is smaller or larger"
    return message("placement.balanced_fewest", cards=count, more=more, gain=share[more])


def speeds_of(
    request: Request, host: Host, model: Model, engine: Engine
) -> tuple[CountedSpeed, ...]:
    """Return the speed of each number of free cards that fit the model.

    Return nothing for an engine that contains another, for models that generate no text, and where
    sizes are not known. Memory is divided by the engine's default shares, because the shares of a
    plan follow from its buckets.
    """
    if engine.inner is not None:
        return ()
    found: list[CountedSpeed] = []
    for count in USUAL_COUNTS:
        if not divides(model, count):
            continue
        try:
            placement = place(replace(request, chosen=(count, None)), host, engine)
            limits = engine.limits(request, host, model)
        except LaunchError as error:
            _log.debug("no speed of %d cards: %s", count, error)
            continue
        context = Context(request, host, model, placement, limits)
        speed = _speed(context, engine, count)
        if speed is not None:
            found.append(speed)
    return tuple(found)


def _speed(context: Context, engine: Engine, count: int) -> CountedSpeed | None:
    request, model = context.request, context.model
    product = accelerator_of(context.host)
    dtype = type_on_card(model, (), engine, request.args, fp8=runs_fp8(request, model))
    if product is None or dtype not in WEIGHT_BYTES:
        return None
    ask, rules = division(model, context.limits, (), engine, request.args)
    memory = divide_card(model, count, dtype, product.usable_bytes, ask, rules)
    if memory is None or not serves(memory, ask):
        return None
    setup = setup_in(context, engine, (), memory.blocks)
    found = mapped(lambda made: simulate(made, load_in(context), most=_COMPARED), setup)
    if found is None:
        return None
    score = balanced(found.tokens / count, ttft=found.ttft.mean, tpot=found.tpot.mean)
    return CountedSpeed(count, found.tokens, score)


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
