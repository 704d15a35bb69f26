"""The state of a Ray Serve deployment, read from Ray's dashboard.

`serve status` reads the same.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.services.probe import ask
from gaudi_launch.services.state import store

_PATH = "/api/serve/applications/"
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
    """One service's application in Ray."""

    service: str
    url: str
    dashboard: str
    application: str
    status: str
    message: str
    deployments: tuple[Deployment, ...]

    def to_json(self) -> dict[str, Any]:
        return {"schema": 1, **asdict(self)}


@dataclass(frozen=True)
class RunningRay:
    """A service that runs Ray: its name, address, dashboard, and its token's file."""

    name: str
    url: str
    dashboard: str
    token: Path


def running(name: str | None) -> RunningRay:
    """Return the running Ray Serve service of this name, or the only one.

    Raises LaunchError (USAGE).
    """
    if name is not None:
        names = [store.check_name(name)]
    else:
        folder = store.services_dir()
        if folder.is_dir():
            names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        else:
            names = []
    found = [each for each in map(_running, names) if each is not None]
    if len(found) != 1:
        shown = ", ".join(each.name for each in found) or "-"
        raise LaunchError("ray.which_service", ExitCode.USAGE, found=name or "-", running=shown)
    return found[0]


def _running(name: str) -> RunningRay | None:
    document = store.read(store.services_dir() / name, "state.json") or {}
    facts = document.get("facts")
    if not isinstance(facts, dict) or document.get("phase") in ("stopped", "failed"):
        return None
    dashboard, token = facts.get("ray_dashboard"), facts.get("ray_token")
    if not (isinstance(dashboard, str) and isinstance(token, str) and Path(token).is_file()):
        return None
    return RunningRay(name, str(document.get("url", "")), dashboard, Path(token))


def read(service: RunningRay) -> RayStatus:
    """Query Ray. Raises LaunchError (FAILED) for an unexpected answer."""
    try:
        token = service.token.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise _failed(service, str(error)) from None
    answer = ask(service.dashboard + _PATH, 20.0, token, most_bytes=_MOST_BYTES)
    if answer.trouble is not None:
        raise _failed(service, answer.trouble)
    if answer.status != 200:
        raise _failed(service, f"HTTP {answer.status}")
    try:
        (application, facts), *_ = answer.document["applications"].items()
        deployments = tuple(_deployment(*pair) for pair in sorted(facts["deployments"].items()))
        status = str(facts["status"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _failed(service, "no application") from None
    message = str(facts.get("message") or "")
    return RayStatus(
        service.name, service.url, service.dashboard, application, status, message, deployments
    )


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


def _failed(service: RunningRay, why: str) -> LaunchError:
    return LaunchError("ray.no_status", ExitCode.FAILED, dashboard=service.dashboard, why=why)
