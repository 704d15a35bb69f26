"""Explain the failure of a service or of an engine log. Reads only.

The log is judged with the records of its launcher.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.services import service as life
from gaudi_launch.core.services.diagnosis.diagnose import Diagnosis, diagnose
from gaudi_launch.core.services.diagnosis.history_events import events
from gaudi_launch.core.services.history import points, read_rows
from gaudi_launch.core.services.log.excerpt import Excerpt, name_of, read_excerpt
from gaudi_launch.core.services.state.registry import ServiceRecord

# the engine's arguments: Namespace(model='...'), config: model='...', non-default args: {'model':
# '...'
_MODEL = re.compile(r"\bmodel'?[=:] ?'([^'\n]{1,500})'")
_NOTHING = Excerpt("", 0)


@dataclass(frozen=True)
class Explanation:
    """A judged log. ``note`` is a service's own record, ``content`` the log.

    ``history`` states what began in the service's last day, and when. ``simulated``: the service's
    cards are.
    """

    log: str
    found: Diagnosis
    content: Excerpt
    note: Message | None = None
    history: tuple[Message, ...] = ()
    simulated: bool = False


def explain_log(path: Path | None, exit_status: int | None) -> Explanation:
    """Judge a log; None is stdin.

    Raises LaunchError for what cannot be read or is empty.
    """
    name = name_of(path)
    content = read_excerpt(path)
    if not content.text.strip():
        raise LaunchError("diagnose.empty", ExitCode.FAILED, path=name)
    found = diagnose(content.text, exit_status=exit_status)
    named = _MODEL.search(content.text)
    if named:
        found = _for_model(found, named[1])
    return Explanation(name, found, content)


def explain_service(service: ServiceRecord, exit_status: int | None = None) -> Explanation:
    """Judge a service's log and history, with its recorded exit status.

    Raises LaunchError for a log that cannot be read.
    """
    explained = _judged(service, exit_status)
    since = 0.0
    if isinstance(began := service.state.get("began"), int | float):
        since = float(began)
    history = tuple(events(points(read_rows(service.folder, since))))
    simulated = service.state.get("simulated") is True
    return replace(explained, history=history, simulated=simulated)


def _judged(service: ServiceRecord, exit_status: int | None) -> Explanation:
    state, outcome = service.state, ""
    if not service.alive:
        outcome = str(service.state.get("outcome", ""))
    path = service.folder / life.LOG
    written = path.is_file() and path.stat().st_size > 0
    if not written or outcome in ("not_started", "failed"):
        return _without_log(service, outcome)
    known = exit_status
    if exit_status is None and not service.alive:
        known = _recorded_status(service)
    content = read_excerpt(path)
    found = diagnose(content.text, exit_status=known, outcome=outcome)
    found = _for_model(found, str(state.get("model") or "MODEL"))
    note = _note(service, found.failed)
    if service.phase == "lost" and not found.failed:
        # the log ends with the termination that the kernel requested when the launcher ended
        found = replace(found, failed=True, phase=str(state.get("phase") or "start"))
    if (service.phase, found.failed) == ("ready", False):
        # its launcher has the answer; a gateway logs none
        found = replace(found, phase="ready")
    return Explanation(service.name, found, content, note)


def _recorded_status(service: ServiceRecord) -> int | None:
    status = service.state.get("status")
    if not isinstance(status, int):
        return None
    return status


def _for_model(found: Diagnosis, model: str) -> Diagnosis:
    """Return the explanation with commands for this model."""
    causes = tuple(cause.for_model(model) for cause in found.causes)
    findings = tuple(finding.for_model(model) for finding in found.findings)
    return replace(found, causes=causes, findings=findings)


def lost(service: ServiceRecord) -> str:
    """Return the message's ID for a service whose launcher ended without a message."""
    if service.rebooted:
        return "diagnose.lost_rebooted"
    return "diagnose.lost"


def _note(service: ServiceRecord, failed: bool) -> Message | None:
    name, state = service.name, service.state
    if service.phase == "lost":
        return message(lost(service), name=name)
    if service.phase == "stopped" and not failed:
        return message("diagnose.was_stopped", name=name)
    if service.alive and state.get("restarts"):
        return message(
            "diagnose.started_again", name=name, count=state["restarts"], why=service.error or "-"
        )
    return None


def _without_log(service: ServiceRecord, outcome: str) -> Explanation:
    """Explain a service whose engine wrote nothing."""
    name = service.name
    why = service.error
    note = _note(service, bool(why))
    if service.alive:
        note = message("diagnose.not_begun", name=name)
    elif why:
        note = message("diagnose.no_engine", name=name, why=why)
    failed = not service.alive and service.phase != "stopped"
    # for an engine that wrote nothing and ended, the exit status remains
    found = diagnose("", exit_status=_recorded_status(service), outcome=outcome)
    return Explanation(name, replace(found, phase="start", failed=failed), _NOTHING, note)
