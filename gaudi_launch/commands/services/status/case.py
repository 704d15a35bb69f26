"""The use case of ``gaudi-launch status``: the facts of one service."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaudi_launch.core.host.hardware import Card
    from gaudi_launch.core.services.history import HistoryPoint
    from gaudi_launch.core.services.metrics import EngineLoad
    from gaudi_launch.core.services.ray_status import RayStatus
    from gaudi_launch.core.services.run_record import RunRecord
    from gaudi_launch.core.services.state.registry import ServiceRecord


@dataclass(frozen=True)
class ServiceStatus:
    """A service with its plan as stored, its load (None: unknown) and its cards.

    The cards are known while it runs. ``run`` is the record of simulated cards, ``ray`` the state
    of its deployments in Ray Serve.
    ``history`` is None unless it was requested.
    """

    service: ServiceRecord
    plan: Mapping[str, Any]
    load: EngineLoad | None
    cards: tuple[Card, ...]
    run: RunRecord | None = None
    history: tuple[HistoryPoint, ...] | None = None
    history_seconds: float = 0.0
    ray: RayStatus | None = None


def status(name: str | None, history_seconds: float | None = None) -> ServiceStatus:
    """Return the facts of a service, with its history where requested.

    Raises LaunchError as `resolve` does.
    """
    from gaudi_launch.core.services import ray_status
    from gaudi_launch.core.services.history import points, read_rows
    from gaudi_launch.core.services.metrics import requests_of
    from gaudi_launch.core.services.run_record import read_run_record
    from gaudi_launch.core.services.state import store
    from gaudi_launch.core.services.state.registry import resolve

    service = resolve(name)
    plan = store.read(service.folder, "plan.json") or {}
    answers = service.alive and service.phase == "ready"
    load = requests_of(service.url) if answers else None
    run = read_run_record(service.folder, service.state.get("engine_began"))
    ray = ray_status.read(service) if service.alive else None
    found = ServiceStatus(service, plan, load, _cards(service), run, ray=ray)
    if history_seconds is None:
        return found
    rows = read_rows(service.folder, time.time() - history_seconds)
    return replace(found, history=tuple(points(rows)), history_seconds=history_seconds)


def _cards(service: ServiceRecord) -> tuple[Card, ...]:
    """Return the cards of a running service, in slot order."""
    if not service.alive or not service.modules:
        return ()
    from gaudi_launch.core.launch.machine import load

    cards = [card for card in load(None).cards if card.module in service.modules]
    return tuple(sorted(cards, key=lambda card: card.module or 0))
