"""The use cases of ``gaudi-launch stack``: up, apply, restart, down and ps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.launch.report import Reporter, Silent
from gaudi_launch.core.launch.stop import check_drain, end
from gaudi_launch.core.launch.stop import restart as restart_service
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.core.services.state.registry import ServiceRecord, read
from gaudi_launch.core.services.stop import Stopped
from gaudi_launch.extensions.stack.change import (
    ChangedStack,
    ChangeOptions,
    carry_out,
    check_access,
    check_startable,
    end_all,
    wait_for,
    without_requests,
)
from gaudi_launch.extensions.stack.gateway import gateway_job, running
from gaudi_launch.extensions.stack.gateway.running import RoutedEngine
from gaudi_launch.extensions.stack.stack_file import StackFile, read_stack
from gaudi_launch.extensions.stack.stack_plan import StackChanges, alive_services, changes_of
from gaudi_launch.extensions.stack.stack_record import (
    StackRecord,
    engine_names,
    forget,
    held,
    read_record,
    record_of,
    records,
)


@dataclass(frozen=True)
class StackState:
    """A started stack and those of its services that exist, the gateway's first.

    ``routed`` are the engines that the running gateway has, by name. ``current``: it serves what
    was applied last.
    """

    record: StackRecord
    services: tuple[ServiceRecord, ...]
    routed: Mapping[str, RoutedEngine] = field(default_factory=dict)
    current: bool = True


def up(
    path: Path, reporter: Reporter, *, no_doctor: bool = False, wait: bool = True
) -> tuple[StackFile, ChangedStack]:
    """Start what does not run of a stack; return when all models answer.

    Return the stack, and as started the services that did not run. Without ``wait``: when the last
    group of models was started. Everything is checked before anything is started. Raises
    LaunchError; engines that were started by then stay.
    """
    stack = read_stack(path)
    _check_environment()
    with held(stack.name):
        found = _compared(stack)
        services = tuple(found.now.services)
        _check_same(found)
        missing = [name for name in services if name not in found.alive]
        if not missing and gateway_job.is_current(stack.gateway_service):
            if wait:
                wait_for(services, reporter)
            return stack, ChangedStack()
        changes = changes_of(stack)
        check_startable(changes, no_doctor=no_doctor)
        with _forgotten_without_services(stack, found.before):
            changed = carry_out(changes, reporter, ChangeOptions(no_doctor=no_doctor, wait=wait))
    return stack, ChangedStack(tuple(missing), gateway=changed.gateway)


def apply(
    path: Path,
    reporter: Reporter,
    options: ChangeOptions,
    agree: Callable[[StackChanges], bool],
) -> tuple[StackFile, ChangedStack | None]:
    """Change what runs to what a file describes, and only that.

    ``agree`` is called where a model does not answer for a time; without its consent nothing is
    changed, and None is returned. Raises LaunchError before anything is changed, or with the first
    engine that fails.
    """
    check_drain(options.drain)
    stack = read_stack(path)
    _check_environment()
    with held(stack.name):
        found = _compared(stack)
        services = tuple(found.now.services)
        same = found.before == found.now and set(services) <= set(found.alive)
        if same and gateway_job.is_current(stack.gateway_service):
            wait_for(services, reporter)
            return stack, ChangedStack()
        changes = changes_of(stack)
        check_startable(changes, no_doctor=options.no_doctor)
        if changes.interrupts and not agree(changes):
            return stack, None
        with _forgotten_without_services(stack, found.before):
            return stack, carry_out(changes, reporter, options)


@dataclass(frozen=True)
class _Compared:
    """A stack file, its records, and its running services.

    ``before`` is the record of the last start, ``now`` that of the file.
    """

    stack: StackFile
    before: StackRecord | None
    alive: Mapping[str, ServiceRecord]
    now: StackRecord

    @property
    def started(self) -> Mapping[str, str]:
        """Return the hash of each service of the last start; {} without one."""
        if self.before is None:
            return {}
        return self.before.services


def _compared(stack: StackFile) -> _Compared:
    """Compare a file with the record of its stack.

    The stack is held. Raises LaunchError where a service has a name of this stack, and where keys
    or TLS files cannot be used.
    """
    before = read_record(stack.name)
    alive = alive_services(stack, before)
    now = record_of(stack, engine_names(stack, before, alive))
    found = _Compared(stack, before, alive, now)
    # a service of another kind may have one of the names
    for name in found.now.services:
        if name in found.alive and name not in found.started:
            raise LaunchError("services.name_taken", ExitCode.USAGE, name=name)
    # a gateway that runs keeps the keys and TLS files that it has
    try:
        check_access(found.stack)
    except LaunchError as error:
        if found.stack.gateway_service not in found.alive:
            raise
        raise LaunchError("stack.access_kept", error.exit_code, why=str(error)) from None
    return found


def _check_environment() -> None:
    if os.environ.get("VLLM_API_KEY"):
        # the gateway removes keys from requests, so an engine with one would refuse all of them
        raise LaunchError("stack.api_key", ExitCode.USAGE)


def _check_same(found: _Compared) -> None:
    """Raise LaunchError (USAGE) where something runs that the file does not describe."""
    changed = [
        name
        for name, settings in found.started.items()
        if name in found.alive and found.now.services.get(name) != settings
    ]
    if changed:
        raise LaunchError(
            "stack.changed",
            ExitCode.USAGE,
            path=str(found.stack.path),
            name=found.stack.name,
            services=", ".join(changed),
        )


@contextmanager
def _forgotten_without_services(stack: StackFile, before: StackRecord | None) -> Iterator[None]:
    """Remove a new record where the launch fails before any engine was started."""
    try:
        yield
    except BaseException:
        engines = [name for model in stack.models for name in stack.services_of(model)]
        if before is None and not any(read(name) for name in engines):
            gateway = read(stack.gateway_service)
            if gateway is not None:
                end(gateway, 0, Silent(), forget=True)
            forget(stack.name)
        raise


def ps(name: str | None = None) -> tuple[StackState, ...]:
    """Return the started stacks, or one by its name or file, with their routes.

    Raises LaunchError (USAGE) for one that was not started.
    """
    return tuple(map(_state_of, _started(name)))


def _started(name: str | None = None) -> tuple[StackRecord, ...]:
    """Return the records of `ps`."""
    found = records()
    if name is None:
        return found
    wanted = _name_of(name)
    chosen = tuple(record for record in found if record.name == wanted)
    if not chosen:
        known = ", ".join(record.name for record in found) or "-"
        raise LaunchError("stack.unknown", ExitCode.USAGE, found=name, known=known)
    return chosen


def _state_of(record: StackRecord) -> StackState:
    """Return the state of a stack as its services and its HAProxy report it."""
    services = tuple(found for found in map(read, record.services) if found is not None)
    for each in services:
        if each.alive and not record.models.get(each.name):
            routed = running.routed_engines(each.name)
            return StackState(record, services, routed, gateway_job.is_current(each.name))
    return StackState(record, services)


def _name_of(word: str) -> str:
    """Return the name of a stack that is given by its name or its file."""
    if "/" not in word and any(record.name == word for record in records()):
        return word
    path = Path(word)
    for record in records():
        # also where the file was changed or removed since
        if record.path == str(path.absolute()):
            return record.name
    if not path.exists() and "/" not in word and path.suffix not in (".yaml", ".yml"):
        return word
    return read_stack(path).name


def down(name: str, reporter: Reporter, drain: float = 30.0) -> tuple[str, tuple[Stopped, ...]]:
    """Stop the gateway, then all engines at once, and remove their records and logs.

    Return the stack's name, and what ended. ``name`` is the stack's or its file; for the file of a
    stack that is not started nothing is done. Raises LaunchError: USAGE for an unknown name, FAILED
    where a process cannot be ended.
    """
    check_drain(drain)
    if Path(name).is_file() and read_record(_name_of(name)) is None:
        return _name_of(name), ()
    [record] = _started(name)
    with held(record.name):
        gateway, engines = _services_of(record)
        # no new request while engines finish those that they have
        left = drain
        for each in gateway:
            left = without_requests(each.name, [one.name for one in engines], drain, reporter)
        ended = end_all(gateway, left, reporter) + end_all(engines, left, reporter)
        forget(record.name)
    return record.name, ended


def _services_of(
    record: StackRecord,
) -> tuple[tuple[ServiceRecord, ...], tuple[ServiceRecord, ...]]:
    """Return the gateway's service and those of the engines, as far as they exist."""
    found = [service for service in map(read, record.services) if service is not None]
    gateway = tuple(service for service in found if not record.models.get(service.name))
    return gateway, tuple(service for service in found if service not in gateway)


# --- one model of a started stack ----------------------------------------------------------------


@dataclass(frozen=True)
class StackTarget:
    """Services of a started stack: the gateway or "", and engines."""

    record: StackRecord
    gateway: str
    engines: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return all of them."""
        if self.gateway:
            return (self.gateway, *self.engines)
        return self.engines


def target(model: str = "", stack: str = "") -> StackTarget:
    """Return the services that a name stands for.

    A model or an alias of it, a service, or "gateway"; "" for all. ``stack`` is a name or a file;
    it may be "" where one stack was started. Raises LaunchError
    (USAGE) for what was not started.
    """
    record = _one_record(stack)
    gateway = next((name for name, model in record.models.items() if not model), "")
    engines = tuple(name for name in record.services if record.models.get(name))
    if not model:
        return StackTarget(record, gateway, engines)
    if model in ("gateway", gateway):
        return StackTarget(record, gateway, ())
    if model in engines:
        return StackTarget(record, "", (model,))
    names = gateway_job.routed_names(gateway)
    chosen = tuple(
        name
        for name in engines
        if model == record.models[name] or model in names.get(record.models[name], ())
    )
    if not chosen:
        known = ", ".join(dict.fromkeys(record.models[name] for name in engines))
        raise LaunchError(
            "stack.unknown_model", ExitCode.USAGE, found=model, name=record.name, known=known
        )
    return StackTarget(record, "", chosen)


def _one_record(stack: str) -> StackRecord:
    found = _started(stack or None)
    if len(found) == 1:
        return found[0]
    if not found:
        raise LaunchError("stack.none_started", ExitCode.USAGE)
    known = ", ".join(record.name for record in found)
    raise LaunchError("stack.which", ExitCode.USAGE, known=known)


def restart(chosen: StackTarget, drain: float, reporter: Reporter) -> None:
    """Restart services one after the other with the same settings.

    Return when all answer. An engine gets no new request while it ends: other replicas answer.
    Raises LaunchError; what
    was not restarted by then continues to run.
    """
    check_drain(drain)
    gateway = next((name for name, model in chosen.record.models.items() if not model), "")
    with held(chosen.record.name):
        for name in chosen.engines:
            with _drained(gateway, name):
                left = without_requests(gateway, (name,), drain, reporter)
                restart_service(name, left, reporter)
                wait_for((name,), reporter)
        if chosen.gateway:
            restart_service(chosen.gateway, drain, reporter)
            wait_for((chosen.gateway,), reporter)
            reporter.say(text("stack.gateway_ready", url=find(chosen.gateway).url))


@contextmanager
def _drained(gateway: str, name: str) -> Iterator[None]:
    """Send an engine new requests again at the end of the block."""
    try:
        yield
    finally:
        running.set_routed(gateway, (name,), routed=True)
