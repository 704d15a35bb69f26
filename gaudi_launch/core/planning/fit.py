"""Divide a card as a plan would, for each number of cards and data type. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.host.accelerators import Accelerator
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.models.card_memory import (
    MOST_OF_A_CARD,
    FitRow,
    FitTable,
    ServingDemand,
    fit_each,
)
from gaudi_launch.core.models.fp8.quant_config import QuantFile
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import BLOCK, GIB, MemoryRules
from gaudi_launch.core.planning.engine import Context, Engine, Limits
from gaudi_launch.core.planning.memory import CardSet, MemoryPlan, division
from gaudi_launch.core.planning.passthrough import written
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.precision import fp8_cache
from gaudi_launch.core.planning.request import Request

# what the engines reserve for graphs of what is left of a card, at least and at most
_GRAPH_SHARES = (0.0, 0.5)
# the data types of -d; other weights are stored in their type and need no option
_NAMED = ("fp8", "awq", "gptq")


def divided(
    engine: Engine, request: Request, accelerator: Accelerator, model: Model, cards: int, dtype: str
) -> tuple[ServingDemand, MemoryRules]:
    """Return the division that ``plan -n cards`` computes on this product.

    For weights in ``dtype``. Raises LaunchError for what the engine cannot do with this model,
    cards or lengths.
    """
    context = context_of(engine, request, accelerator, model, cards=cards, dtype=dtype)
    settings = tuple(engine.propose(replace(context, memory_only=True)).settings)
    return division(context.model, context.limits, settings, engine, context.request.args)


def host_of(accelerator: Accelerator, count: int) -> Host:
    """Return a machine with this number of idle cards of a product."""
    cards = tuple(Card(n, n, accelerator.names[0]) for n in range(count))
    return Host(cards=cards, product=accelerator.id, origin="fit")


def context_of(
    engine: Engine,
    request: Request,
    accelerator: Accelerator,
    model: Model,
    *,
    cards: int,
    dtype: str,
) -> Context:
    """Return the inputs of a proposal for this number of cards of a product.

    fp8 of other weights is taken as calibrated, with the KV cache type that the calibration writes.
    Raises LaunchError for lengths that the engine does not serve, and (MACHINE) for fp8 on a
    product without it.
    """
    if dtype == "fp8" and not accelerator.has_fp8:
        raise LaunchError("fit.no_fp8", ExitCode.MACHINE, card=accelerator.title)
    host = host_of(accelerator, cards)
    request = replace(request, cards=cards)
    if dtype in _NAMED and dtype != model.quantization:
        quant_file = None
        if dtype == "fp8":
            quant_file = QuantFile("calibrated", "calibrated", fp8_cache(model, engine.calibration))
        request = replace(request, dtype=dtype, quant_file=quant_file)
    limits = engine.limits(request, host, model)
    return Context(request, host, model, Placement(tuple(range(cards))), limits)


def fewest_cards(
    engine: Engine,
    request: Request,
    accelerator: Accelerator,
    model: Model,
    numbers: Iterable[int],
    dtype: str,
) -> int | None:
    """Return the fewest cards that fit, as `fit_each` answers with `divided`.

    A planned warm-up takes most of the time and changes only the share of graphs: where both limits
    of that share have one result, it is not planned. Raises LaunchError as `divided` does.
    """
    eager = replace(request, extra=(*request.extra, "--enforce-eager"))

    def row(count: int, share: float | None) -> FitRow:
        def divide(count: int, dtype: str) -> tuple[ServingDemand, MemoryRules]:
            if share is None:
                return divided(engine, request, accelerator, model, count, dtype)
            ask, rules = divided(engine, eager, accelerator, model, count, dtype)
            return replace(ask, eager=False, reserved=share), rules

        return fit_each(model, accelerator.usable_bytes, [count], [dtype], divide).rows[0]

    for count in sorted(numbers):
        limits = [row(count, share) for share in _GRAPH_SHARES] if engine.bucket_file else []
        is_settled = len({each.reason.id for each in limits}) == 1
        found = limits[0] if is_settled else row(count, None)
        if found.fits:
            return count
    return None


def remedies(
    engine: Engine,
    request: Request,
    card_set: CardSet,
    model: Model,
    dtype: str,
    found: MemoryPlan,
) -> tuple[Message, ...]:
    """Return the changes that make a model fit.

    They are the fewest cards of a plan for that number, and those of ``found``. ``dtype`` is the
    type of the weights on the card. More cards and fp8 are one change where neither helps alone.
    Raises LaunchError as `divided` does.
    """
    product = card_set.accelerator
    assert product is not None, "its memory is known"
    fewest = partial(fewest_cards, engine, request, product, model, card_set.larger)
    more = fewest(dtype)
    option = written(request.args, "-n")
    if more is not None:
        return (message("fit.would_cards", option=option, n=more), *found.remedies)
    in_fp8 = any(each.id == "fit.would_dtype" for each in found.remedies)
    if not in_fp8 and product.has_fp8 and model.quantization is None and dtype != "fp8":
        both = fewest("fp8")
        if both is not None:
            return (message("fit.would_both", option=option, n=both), *found.remedies)
    return found.remedies or (message("fit.would_nothing"),)


def limits_of(engine: Engine, request: Request, model: Model) -> Limits:
    """Return the lengths and the concurrent requests that the engine serves.

    Raises LaunchError (USAGE).
    """
    return engine.limits(request, Host(), model)


def ways_out(table: FitTable, model: Model, accelerator: Accelerator) -> tuple[Message, ...]:
    """Return the changes that may help when no row fits.

    None of them is in the table already, or is a property that the weights already have.
    """
    ways = []
    if max(row.n for row in table.rows) < accelerator.cards:
        ways.append(message("fit.way_cards"))
    tried = {row.dtype for row in table.rows}
    if accelerator.has_fp8 and "fp8" not in tried and model.quantization is None:
        ways.append(message("fit.way_fp8"))
    if any(_shorter_helps(row, accelerator) for row in table.rows):
        ways.append(message("fit.way_length"))
    return tuple(ways) or (message("fit.would_nothing"),)


def _shorter_helps(row: FitRow, accelerator: Accelerator) -> bool:
    """Return True if a shorter context leaves a card of this row enough room."""
    if row.longest_context is None or row.longest_context < BLOCK:
        return False
    if row.weights_gib_per_card is None or row.activations_gib_per_card is None:
        return False
    card_gib = accelerator.usable_bytes / GIB
    return row.weights_gib_per_card + row.activations_gib_per_card < MOST_OF_A_CARD * card_gib
