"""The state of a Ray Serve deployment, read from Ray's dashboard.

`serve status` reads the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.core.services.probe import ask
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
