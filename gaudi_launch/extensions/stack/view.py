"""Stacks: the plan of all models, what was started and stopped, and their state."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import say
from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.cli.streams import is_utf
from gaudi_launch.cli.views.serve import first_request
from gaudi_launch.cli.views.services import last_error
from gaudi_launch.cli.views.services import to_json as service_to_json
from gaudi_launch.commands.services.stop.view import ended_to_json as service_ended_to_json
from gaudi_launch.commands.services.stop.view import show_ended as show_service
from gaudi_launch.core.base.durations import rough, span
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.services.log.tail import Tail
from gaudi_launch.core.services.service import LOG
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.registry import ServiceRecord, phase, read, runs

if TYPE_CHECKING:
    from rich.text import Text

    from gaudi_launch.core.services.stop import Stopped
    from gaudi_launch.extensions.stack.case import StackState
    from gaudi_launch.extensions.stack.change import ChangedStack
    from gaudi_launch.extensions.stack.stack_file import StackFile
    from gaudi_launch.extensions.stack.stack_plan import (
        Downtime,
        StackChanges,
        StackPlan,
        StackService,
    )

_POLL_SECONDS = 0.2


def to_json(planned: StackPlan) -> dict[str, Any]:
    """Return a stack's plan for programs."""
    stack = planned.stack
    seconds = planned.start_seconds
    return {
        "schema": 1,
        "stack": stack.name,
        "file": str(stack.path),
        "gateway": {
            "service": stack.gateway_service,
            "url": stack.gateway.url,
            "keys": stack.gateway.keys_file is not None,
            "running": planned.gateway_runs,
        },
        "cards": list(planned.cards),
        "free": list(planned.free),
        "groups": [list(group) for group in planned.groups],
        "start_seconds": mapped(lambda both: _seconds_json(*both), seconds),
        "services": [_service_to_json(service) for service in planned.services],
    }


def _service_to_json(service: StackService) -> dict[str, Any]:
    plan, model = service.plan, service.model
    return {
        "name": service.name,
        "model": model.name,
        "aliases": list(model.aliases),
        "path": str(plan.model.get("path", model.model)),
        "engine": plan.engine.exact,
        "simulated": plan.engine.simulated,
        "modules": list(plan.placement.modules),
        "numa_nodes": list(plan.placement.numa_nodes),
        "memory": dict(plan.memory),
        "warmup_seconds": mapped(
            lambda each: _seconds_json(each.low_seconds, each.high_seconds), plan.estimate
        ),
        "url": plan.url,
        "running": service.running,
        "warnings": [each.to_json() for each in plan.warnings],
    }


def show_plan(planned: StackPlan, *, complete: bool = False) -> None:
    """Print whether all fits, how to start it, and a row for each engine."""
    stack, free = planned.stack, planned.free
    answer = text("stack.answer_no_cards", models=len(stack.models))
    if planned.cards:
        answer = text(
            "stack.answer",
            models=len(stack.models),
            cards=len(planned.cards) - len(free),
            total=len(planned.cards),
            free=",".join(map(str, free)) or text("common.none"),
        )
    head: list[str | Text] = [
        answer,
        next_line(f"gaudi-launch stack up {shlex.quote(str(stack.path))}"),
    ]
    gateway = stack.gateway
    id = "stack.gateway_open"
    if gateway.keys_file is not None:
        id = "stack.gateway_keys"
    tail = [text(id, url=gateway.url)]
    seconds = planned.start_seconds
    if seconds is not None:
        tail.append(text("stack.start_time", time=span(*seconds)))
    columns = text("stack.columns").split("|")
    cells = [_row(service) for service in planned.services]
    if not any(service.running for service in planned.services):
        # the state, which is of running ones
        columns, cells = columns[:-1], [row[:-1] for row in cells]
    rows = [NotedRow(row) for row in cells]
    found = [each.render() for service in planned.services for each in service.plan.warnings]
    warnings = [text("plan.warning", what=line) for line in dict.fromkeys(found)]
    page = ShortPage(head, columns, rows, right=(4, 5), tail=tail, warnings=warnings)
    page.show(complete=complete)


def _row(service: StackService) -> tuple[str, ...]:
    plan = service.plan
    estimate = plan.estimate
    warmup = "-"
    if estimate is not None:
        warmup = span(estimate.low_seconds, estimate.high_seconds)
    return (
        service.name,
        plan.engine.exact,
        service.shown_cards,
        ",".join(map(str, plan.placement.numa_nodes)) or "-",
        _gib(plan.memory.get("weights")),
        _gib(plan.memory.get("kv")),
        warmup,
        text("stack.runs") if service.running else "",
    )


def _gib(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}"


def show_written(planned: StackPlan) -> None:
    """Print the file that was written, and the next command."""
    path = str(planned.stack.path)
    say(text("stack.written", path=path, command=f"gaudi-launch stack up {shlex.quote(path)}"))


def started_to_json(stack: StackFile, changed: ChangedStack) -> dict[str, Any]:
    """Return the result of ``up`` for programs."""
    return {
        "schema": 1,
        "stack": stack.name,
        "url": stack.gateway.url,
        "models": [model.name for model in stack.models],
        "started": list(changed.started),
        "gateway": changed.gateway,
    }


def show_started(stack: StackFile, changed: ChangedStack, *, waited: bool) -> None:
    """Print the address, and whether anything was started."""
    if not changed.started and changed.gateway == "same":
        print(text("stack.nothing_changed", name=stack.name, url=stack.gateway.url))
        return
    names = text("common.between").join(model.name for model in stack.models)
    id = "stack.is_up" if waited else "stack.is_starting"
    print(text(id, name=stack.name, url=stack.gateway.url, models=names))
    if waited:
        for line in _first_request(stack, changed):
            print(line)


def _first_request(stack: StackFile, changed: ChangedStack) -> list[str]:
    """Return a command line that sends a request to the first model that was started."""
    for name in changed.started:
        record = read(name)
        state = record.state if record is not None else {}
        if state.get("served"):
            path, no_chat = str(state.get("answers") or ""), str(state.get("no_chat") or "")
            keys = ["Authorization: Bearer KEY"] if stack.gateway.keys_file is not None else []
            url = stack.gateway.url
            return [f"  {first_request(str(state['served']), url, path, no_chat, *keys)}"]
    return []


def interruptions(changes: StackChanges) -> list[str]:
    """Return a sentence for each interrupted model, and for a new address."""
    found = [_downtime(each) for each in changes.downtimes]
    if changes.moved_from:
        url = changes.stack.gateway.url
        found.append(text("stack.moved", old=changes.moved_from, url=url))
    return found


def _downtime(downtime: Downtime) -> str:
    if not downtime.high_seconds:
        return text("stack.downtime_unknown", model=downtime.model)
    id = "stack.downtime" if downtime.has_load else "stack.downtime_warmup"
    low, high = rough(downtime.low_seconds), rough(downtime.high_seconds)
    return text(id, model=downtime.model, low=low, high=high)


def applied_to_json(stack: StackFile, changed: ChangedStack) -> dict[str, Any]:
    """Return the result of ``apply`` for programs."""
    return {**started_to_json(stack, changed), "ended": list(changed.ended)}


def show_applied(stack: StackFile, changed: ChangedStack) -> None:
    """Print the address, and what was started and ended."""
    if changed.gateway == "same":
        print(text("stack.nothing_changed", name=stack.name, url=stack.gateway.url))
        return
    print(text("stack.applied", name=stack.name, url=stack.gateway.url))
    for id, names in (
        ("stack.these_started", changed.started),
        ("stack.these_ended", changed.ended),
    ):
        if names:
            print(text(id, names=", ".join(names)))


def ended_to_json(name: str, services: Sequence[Stopped]) -> dict[str, Any]:
    """Return the result of ``down`` for programs."""
    return {
        "schema": 1,
        "stack": name,
        "stopped": [service_ended_to_json(each) for each in services],
    }


def show_ended(name: str, services: Sequence[Stopped]) -> None:
    """Print what was stopped, and requests and cards that need attention."""
    if not services:
        print(text("stack.is_down", name=name))
        return
    for each in services:
        show_service(each)
    print(text("stack.ended", name=name, count=len(services)))


def states_to_json(states: Sequence[StackState]) -> dict[str, Any]:
    """Return started stacks for programs."""
    now = time.time()
    return {
        "schema": 1,
        "stacks": [
            {
                "name": state.record.name,
                "file": state.record.path,
                "services": [
                    {
                        **service_to_json(service, None, now),
                        "stack_model": state.record.models.get(service.name),
                        "routed": mapped(asdict, state.routed.get(service.name)),
                    }
                    for service in state.services
                ],
                "missing": _missing(state),
                "current": state.current,
            }
            for state in states
        ],
    }


def _missing(state: StackState) -> list[str]:
    there = {service.name for service in state.services}
    return [name for name in state.record.services if name not in there]


def show_states(states: Sequence[StackState], *, complete: bool = False) -> None:
    """Print how many services are ready, the next command, and each service."""
    if not states:
        ShortPage([text("stack.none"), next_line("gaudi-launch stack init MODEL...")]).show(
            complete=True
        )
        return
    rows, ready, failed = [], 0, ""
    for state in states:
        for service in state.services:
            ready += service.phase == "ready"
            if service.phase == "failed":
                failed = failed or service.name
            cells = (
                state.record.models.get(service.name) or text("stack.gateway"),
                service.name,
                phase(service),
                _requests(state, service.name),
                ",".join(map(str, service.modules)) or "-",
                service.url,
            )
            rows.append(NotedRow(cells, _problem(state, service)))
        for name in _missing(state):
            model = state.record.models.get(name) or text("stack.gateway")
            rows.append(NotedRow((model, name, "-", "-", "-", "-"), text("stack.gone")))
    names = text("common.between").join(state.record.name for state in states)
    command = "gaudi-launch stack logs -f"
    if failed:
        command = f"gaudi-launch why {failed}"
    head: list[str | Text] = [
        text("stack.states", names=names, ready=ready, n=len(rows)),
        next_line(command),
    ]
    columns = text("stack.ps_columns").split("|")
    ShortPage(head, columns, rows).show(complete=complete)


def _requests(state: StackState, name: str) -> str:
    """Return the requests of an engine from the gateway; "-" where it gets none."""
    routed = state.routed.get(name)
    return str(routed.requests) if routed is not None and routed.status else "-"


def _problem(state: StackState, service: ServiceRecord) -> str:
    """Return what is wrong with a service, "" for nothing."""
    if not state.current and not state.record.models.get(service.name):
        return text("stack.not_current", path=state.record.path)
    return last_error(service) or ""


def _seconds_json(low: float, high: float) -> dict[str, float]:
    return {"low": low, "high": high}


# --- logs, each line with the name of its service ---


def show_logs(names: Sequence[str], *, follow: bool, last: int | None, as_json: bool) -> None:
    """Print the logs of these services, as they grow with ``follow``."""
    width = max(map(len, names), default=0)
    logs = [_NamedLog(name, last, width, as_json=as_json) for name in names]
    try:
        alive = True
        while alive:
            # checked before the last read, so that the last lines are not missed
            alive = follow and any(runs(store.service_dir(name)) for name in names)
            for log in logs:
                log.show()
            sys.stdout.flush()
            if alive:
                time.sleep(_POLL_SECONDS)
    finally:
        for log in logs:
            log.close()


class _NamedLog:
    """The log of one service."""

    def __init__(self, name: str, last: int | None, width: int, *, as_json: bool) -> None:
        self._name = name
        self._width = width
        self._as_json = as_json
        self._tail = Tail(store.service_dir(name) / LOG, last)
        self._rest = b""

    def show(self) -> None:
        """Print the lines that were completed since the last call."""
        *complete, self._rest = (self._rest + self._tail.read()).split(b"\n")
        for line in complete:
            self._print(line)

    def close(self) -> None:
        """Print a last line that has no end."""
        if self._rest:
            self._print(self._rest)
        self._tail.close()

    def _print(self, content: bytes) -> None:
        line = content.decode("utf-8", "replace").rstrip("\r")
        if not self._as_json:
            print(f"{self._name:{self._width}} | {line}")
            return
        document = {"schema": 1, "service": self._name, "line": line}
        print(json.dumps(document, ensure_ascii=not is_utf(sys.stdout)))
