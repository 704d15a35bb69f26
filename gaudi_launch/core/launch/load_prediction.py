"""Predict the speed of a launch under a given load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines.launched import Launched, concerning
from gaudi_launch.core.host.accelerators import accelerator_of, accelerators, product_of
from gaudi_launch.core.launch.prediction import SpeedEstimate, context_of, outcome_of, setup_of
from gaudi_launch.core.launch.prepared import Prepared
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.parse_ranges import Ranges
from gaudi_launch.core.planning.planner import place
from gaudi_launch.core.planning.speed import load_in, static_in
from gaudi_launch.core.predict.load import Load
from gaudi_launch.core.predict.scaling import generation_of
from gaudi_launch.core.predict.shape import shape_of

# one server; no figure includes the cost of links between servers
_SERVER_CARDS = 8


def of_load(
    prepared: Prepared, lengths: Ranges, load_of: Callable[[Load], Load], notes: list[Message]
) -> SpeedEstimate:
    """Return the prediction of a plan for a load.

    ``load_of`` makes it from the plan's usual one. Raises LaunchError where the speed is not known,
    or the engine takes no such request.
    """
    made = prepared.plan()
    context = context_of(prepared, made)
    setup = setup_of(prepared, made)
    if setup is None:
        raise _not_known(prepared)
    load = load_of(load_in(context, lengths))
    notes += _product_notes(context)
    if setup.speed.shape.experts:
        notes.append(message("estimate.fused" if setup.speed.setup.fused else "estimate.unfused"))
    launched = Launched(prepared.model, product_of(prepared.host))
    exact = prepared.engine.innermost.identity.exact
    notes += [each.sentence for each in concerning(exact, launched)]
    found = outcome_of(prepared, made, setup, load, tuple(notes))
    length = setup.limits.max_model_len
    if found is None:
        raise LaunchError("estimate.takes_none", ExitCode.USAGE, length=length)
    if found.outcome.refused:
        percent = f"{100 * found.outcome.refused:.1f}"
        refused = message("capacity.refused", percent=percent, length=length)
        return replace(found, notes=(*found.notes, refused))
    return found


def of_batch(prepared: Prepared, lengths: Ranges, notes: list[Message]) -> SpeedEstimate:
    """Return the prediction of one batch without a server, whatever memory it needs.

    Raises LaunchError where the speed is not known.
    """
    engine, model, request = prepared.engine, prepared.model, prepared.request
    placement = place(request, prepared.host, engine)
    limits = engine.limits(request, prepared.host, model)
    context = Context(request, prepared.host, model, placement, limits)
    setup = static_in(context, engine)
    if setup is None:
        raise _not_known(prepared)
    notes += _product_notes(context)
    load = replace(load_in(context, lengths), clients=0, batch=limits.max_num_seqs)
    found = outcome_of(prepared, None, setup, load, tuple(notes))
    assert found is not None, "a batch refuses no request"
    return found


def _not_known(prepared: Prepared) -> LaunchError:
    """Return the error of a launch whose speed is not known, with the reason."""
    product = accelerator_of(prepared.host)
    if shape_of(prepared.model) is None:
        return LaunchError("fit.no_kv_facts", ExitCode.MODEL, model=prepared.model.path)
    known = ("gaudi2", "gaudi3")
    if product is None or not product.id.startswith(known):
        names = ", ".join(name for name in accelerators() if name.startswith(known))
        found = "-" if product is None else product.id
        return LaunchError("estimate.accelerator", ExitCode.USAGE, found=found, known=names)
    engine = prepared.engine.identity.label
    return LaunchError("estimate.not_known", ExitCode.USAGE, engine=engine)


def _product_notes(context: Context) -> list[Message]:
    product, cards = accelerator_of(context.host), context.placement.tensor
    notes: list[Message] = []
    if product is None or not cards:
        return notes
    generation = generation_of(product)
    if product.id != generation:
        notes.append(message("estimate.other_product", product=product.id, generation=generation))
    if cards > _SERVER_CARDS:
        notes.append(message("estimate.several_servers", cards=cards))
    return notes
