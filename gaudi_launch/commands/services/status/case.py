"""The use case of ``gaudi-launch status``: the facts of one service."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.host.hardware import Card
from gaudi_launch.core.services.history import HistoryPoint, points, read_rows
from gaudi_launch.core.services.metrics import EngineLoad, requests_of
from gaudi_launch.core.services.run_record import RunRecord, read_run_record
from gaudi_launch.core.services.server_request import ask
from gaudi_launch.core.services.state.registry import ServiceRecord

_PATH = "/api/serve/applications/"
_MOST_SECONDS = 5.0
_MOST_BYTES = 8 << 20


@dataclass(frozen=True)
class Deployment:
    """One deployment: Ray's name of its state, and its replicas."""

    name: str
    status: str
    running: int
    wanted: int
    message: str
    replicas: tuple[str, ...]


@dataclass(frozen=True)
class RayStatus:
    """One service's application in Ray; ``trouble``: why its state is unknown."""

    dashboard: str
    application: str = ""
    status: str = ""
    message: str = ""
    deployments: tuple[Deployment, ...] = ()
    trouble: str = ""


def read(service: ServiceRecord) -> RayStatus | None:
    """Query the dashboard of a service that is running; None for one without Ray."""
    facts = service.state.get("facts")
    if not isinstance(facts, dict):
        return None
    dashboard, token = facts.get("ray_dashboard"), facts.get("ray_token")
    if not (isinstance(dashboard, str) and isinstance(token, str)):
        return None
    try:
        secret = Path(token).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return RayStatus(dashboard, trouble=f"{token}: {why}")
    answer = ask(dashboard + _PATH, _MOST_SECONDS, secret, most_bytes=_MOST_BYTES)
    if answer.trouble is not None:
        return RayStatus(dashboard, trouble=answer.trouble)
    if answer.status != 200:
        return RayStatus(dashboard, trouble=f"HTTP {answer.status}")
    try:
        (application, found), *_ = answer.document["applications"].items()
        deployments = tuple(_deployment(*pair) for pair in sorted(found["deployments"].items()))
        status = str(found["status"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return RayStatus(dashboard, trouble="no application")
    return RayStatus(dashboard, application, status, str(found.get("message") or ""), deployments)


def _deployment(name: str, facts: dict[str, Any]) -> Deployment:
    states = tuple(str(replica.get("state")) for replica in facts.get("replicas") or [])
    wanted = facts.get("target_num_replicas")
    return Deployment(
        name=name,
        status=str(facts["status"]),
        running=states.count("RUNNING"),
        wanted=wanted if isinstance(wanted, int) else len(states),
        message=str(facts.get("message") or ""),
        replicas=states,
    )


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
    from gaudi_launch.core.services.state import store
    from gaudi_launch.core.services.state.chosen import resolve

    service = resolve(name)
    plan = store.read(service.folder, "plan.json") or {}
    answers = service.alive and service.phase == "ready"
    load = requests_of(service.url) if answers else None
    run = read_run_record(service.folder, service.state.get("engine_began"))
    ray = read(service) if service.alive else None
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
