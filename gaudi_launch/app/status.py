"""The use case of ``gaudi-launch status``: the facts of one service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaudi_launch.host.hardware import Card
    from gaudi_launch.services.metrics import EngineLoad
    from gaudi_launch.services.run_record import RunRecord
    from gaudi_launch.services.state.registry import ServiceRecord


@dataclass(frozen=True)
class ServiceStatus:
    """A service with its plan as stored, its load (None: unknown) and its cards.

    The cards are known while it runs. ``run`` is the record of simulated cards.
    """

    service: ServiceRecord
    plan: Mapping[str, Any]
    load: EngineLoad | None
    cards: tuple[Card, ...]
    run: RunRecord | None = None


def status(name: str) -> ServiceStatus:
    """Return the facts of a service. Raises LaunchError for an unknown name."""
    from gaudi_launch.services.metrics import requests_of
    from gaudi_launch.services.run_record import read_run_record
    from gaudi_launch.services.state import store
    from gaudi_launch.services.state.registry import find

    service = find(name)
    plan = store.read(service.folder, "plan.json") or {}
    answers = service.alive and service.phase == "ready"
    load = requests_of(service.url) if answers else None
    return ServiceStatus(
        service, plan, load, _cards(service), read_run_record(service.folder, service.state.get("engine_began"))
    )


def _cards(service: ServiceRecord) -> tuple[Card, ...]:
    """Return the cards of a running service, in slot order."""
    if not service.alive or not service.modules:
        return ()
    from gaudi_launch.app.machine import load

    cards = [card for card in load(None).cards if card.module in service.modules]
    return tuple(sorted(cards, key=lambda card: card.module or 0))
