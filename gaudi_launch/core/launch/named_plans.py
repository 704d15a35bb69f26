"""Several plans for one target of ``render``, and the gateway in front of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.render.gateway import GatewayFiles, GatewayPlace


@dataclass(frozen=True)
class NamedPlan:
    """One engine with its plan.

    ``names`` are those of its model in requests, the model's own first; ``after`` are the engines
    that it waits for.
    """

    name: str
    names: tuple[str, ...]
    options: LaunchOptions
    plan: Plan
    after: tuple[str, ...]


@dataclass(frozen=True)
class NamedPlans:
    """The plans of a file, one for each replica.

    ``head`` are comment lines about them. ``gateway`` is its place on this machine; ``files_at``
    makes the gateway for any place. ``limited``: it has limits per user.
    """

    name: str
    head: tuple[str, ...]
    plans: tuple[NamedPlan, ...]
    gateway: GatewayPlace
    limited: bool
    files_at: Callable[[GatewayPlace], GatewayFiles]


ReadPlans = Callable[[Path, LaunchOptions], NamedPlans]
"""Return the plans of a file; options are the machine and ``force`` only."""
