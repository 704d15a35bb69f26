"""The route of a launch, step by step: read this file first.

    options    what is requested, from the command line, the Python API or a saved plan
    machine    this one, another one's snapshot, or a simulated one
    engine     facts of the release, then the installed engine's own answers
    model      what it is, and what it still needs
    plan       pure; its cards are provisional
    to do      what is missing: serve does it, plan prints it
    cards      reserved, and the plan made for them
    start      files written, engine started, log followed, address probed

The first four are `prepare`. A step's helpers are in the module that its function is imported
from. The last two steps, and what is done about the missing, are passed in by serve.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol, TypeVar

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.launch.prepared import Prepared, prepare
from gaudi_launch.core.launch.recipe_cache import with_cache
from gaudi_launch.core.launch.todo import CheckedPlan, checked
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Plan

Started = TypeVar("Started", covariant=True)
Reserved = tuple[Placement | None, tuple[int, ...]]


class Serving(Protocol[Started]):
    """The actions of serve about what `plan` only prints."""

    @property
    def in_image(self) -> bool:
        """Return True if the engine runs in a container's image."""

    @property
    def no_doctor(self) -> bool:
        """Return True if it starts although the doctor's checks fail."""

    def housed(self, prepared: Prepared, made: Plan) -> Plan:
        """Return the plan in the requested container; unchanged without one."""

    def bring(self, found: CheckedPlan) -> bool:
        """Fetch and convert what is missing; return False if nothing is."""

    def reserve(self, found: CheckedPlan) -> AbstractContextManager[Reserved]:
        """Prepare what runs the plan, then reserve the cards."""

    def start(self, prepared: Prepared, made: Plan, held: tuple[int, ...]) -> Started:
        """Start the engine on reserved cards."""


def checked_plan(options: LaunchOptions) -> CheckedPlan:
    """Return the plan of these options with the doctor's fast checks.

    Reads only: the model and the engine need not exist. Without a port it has the one that serve
    will take. Raises LaunchError.
    """
    prepared = prepare(options, secret_file=True)
    found = checked(prepared, with_cache(prepared, prepared.plan()))
    if found.taken is None or prepared.request.port is not None:
        return found
    next_port = message("serve.next_port", **found.taken.text.values)
    found = checked_plan(found.startable(options))
    return replace(found, plan=replace(found.plan, warnings=(next_port, *found.plan.warnings)))


def plan(options: LaunchOptions) -> tuple[Plan, Prepared]:
    """Return the plan of `checked_plan` and what it is made of.

    What is left to do, and serve does not do, is among its warnings.
    """
    checked = checked_plan(options)
    left = [each.what for each in checked.todo if not each.by_serve]
    return replace(checked.plan, warnings=(*left, *checked.plan.warnings)), checked.prepared


def launch(options: LaunchOptions, serving: Serving[Started]) -> Started:
    """Take a launch through all steps. Raises LaunchError."""
    found = _startable(options, serving)
    if serving.bring(found):
        # what was fetched decides more than a name
        found = _startable(options, serving)
    with serving.reserve(found) as (placement, held):
        made = found.prepared.plan(placement)
        return serving.start(found.prepared, made, held)


def _startable(options: LaunchOptions, serving: Serving[Started]) -> CheckedPlan:
    """Return the plan that starts, after what serve does itself.

    Raises LaunchError where `plan` shows that it is refused, or that the user has something to do.
    """
    in_image = serving.in_image
    prepared = prepare(options, in_image=in_image, secret_file=not in_image)
    found = checked(prepared, serving.housed(prepared, prepared.plan()))
    found.refuse(no_doctor=serving.no_doctor)
    return found
