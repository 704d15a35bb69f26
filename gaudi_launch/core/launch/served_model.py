"""The model of a launch: its facts, needs and folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gaudi_launch.core.base.steps import step
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.launch.chosen_engine import ChosenEngine
from gaudi_launch.core.launch.launch_request import LaunchRequest
from gaudi_launch.core.launch.machine import LaunchMachine
from gaudi_launch.core.launch.model_needs import Provision, look
from gaudi_launch.core.launch.prepared import Prepared
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.balanced_cards import with_balanced_cards
from gaudi_launch.core.planning.effects import with_overrides
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.planner import refuse_options
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.support_answer import check_support


def read_model(
    launch: LaunchRequest, machine: LaunchMachine, chosen: ChosenEngine, known: Callable[[], Model]
) -> Prepared:
    """Return the inputs of the plan, with the model and the number of cards.

    Raises LaunchError for a model or options that the engine does not support.
    """
    request, engine = chosen.request, chosen.engine
    host = machine.for_engine(needs_cards=engine.needs_cards)
    if request.tuning == "reference":
        # as with the start scripts, the engine fetches a hub ID by itself
        model, provision = with_overrides(known(), request.args), None
    else:
        request, model, provision = _provided(chosen, host, known)
    return Prepared(
        request,
        host,
        model,
        engine.suited(model),
        chosen.installed,
        machine.name,
        provision,
        launch.saved,
    )


def _provided(
    chosen: ChosenEngine, host: Host, known: Callable[[], Model]
) -> tuple[Request, Model, Provision]:
    """Return the request with its cards, the served model, and its needs."""
    request, engine, installed = chosen.request, chosen.engine, chosen.installed
    with step("screen.step_model"):
        provision = look(request, host, engine, installed, known())
    engine = engine.suited(provision.known)
    # refuse unsupported options, before anything that could be missing for them
    refuse_options(request, host, provision.known, engine)
    supported = engine.innermost.support(provision.known, request.args, request.environment)
    check_support(supported, force=request.force)
    with step("screen.step_plan"):
        planned = provision.planned(provision.request_for(request))
        request = with_balanced_cards(request, host, planned, engine)
    if request.chosen_cards is not None:
        # files of fp8 depend on the number of cards
        provision = look(request, host, engine, installed, known())
    request = provision.request_for(request)
    model = provision.planned(request)
    if not engine.innermost.identity.simulated and Path(request.model).is_dir():
        # the folder that is served may be a converted one
        model = with_overrides(known_model(request.model), request.args)
    return request, model, provision
