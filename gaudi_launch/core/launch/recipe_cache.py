"""The recipe cache of a launch: the plan with it, and its job."""

from __future__ import annotations

from gaudi_launch.core.base.paths import cache_dir, machine_root
from gaudi_launch.core.launch.prepared import Prepared
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.recipes import attach
from gaudi_launch.core.recipes.attach import Cached


def cached(prepared: Prepared, plan: Plan) -> Cached | None:
    """Return the plan with its recipe cache; None where there is none to manage."""
    if not prepared.engine.keeps_recipes:
        return None
    return attach.with_cache(
        plan,
        prepared.request,
        prepared.host,
        cache_dir(),
        look=prepared.machine is None,
        machine_root=machine_root(),
    )


def with_cache(prepared: Prepared, plan: Plan) -> Plan:
    """Return the plan with its recipe cache, where there is one to manage."""
    found = cached(prepared, plan)
    if found is None:
        return plan
    return found.plan
