"""Carry out the steps of a stack's change: start, wait, route, end.

The record names every service that may run at any time, so that an interrupted change is mended by
the next one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.launch.prepared import prepare
from gaudi_launch.core.launch.report import Reporter, Silent
from gaudi_launch.core.launch.serve import ServeMode, start
from gaudi_launch.core.launch.stop import end
from gaudi_launch.core.launch.todo import checked
from gaudi_launch.core.launch.waiting import until_ready
from gaudi_launch.core.models.hub.download import PullProgress
from gaudi_launch.core.services.addresses import check_port, free_port
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.core.services.state.registry import ServiceRecord, read
from gaudi_launch.core.services.stop import Stopped
from gaudi_launch.extensions.stack.changes import ChangeStep
from gaudi_launch.extensions.stack.gateway import gateway_job, keys_file, running
from gaudi_launch.extensions.stack.gateway.gateway_settings import Backend, check_backends
from gaudi_launch.extensions.stack.gateway.program import GATEWAY
from gaudi_launch.extensions.stack.stack_file import StackFile
from gaudi_launch.extensions.stack.stack_plan import (
    LOCAL,
    StackChanges,
    StackPlan,
    StackService,
    at_line,
    error_at,
)
from gaudi_launch.extensions.stack.stack_record import StackRecord, record_of, write_record

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class ChangeOptions:
    """Options of a change.

    ``wait``: also for the last models. ``drain``: seconds for the requests of an engine that ends.
    """

    no_doctor: bool = False
    wait: bool = True
    drain: float = 30.0


@dataclass(frozen=True)
class ChangedStack:
    """Names of services that a change started and ended.

    ``gateway`` was same, started, renewed or moved.
    """

    started: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    gateway: str = "same"


class _Lines(Silent):
    """Passes on lines and downloads; several engines have no screen of one."""

    def __init__(self, inner: Reporter) -> None:
        self._inner = inner

    def say(self, line: str) -> None:
        self._inner.say(line)

    def downloading(self, progress: PullProgress) -> None:
        self._inner.downloading(progress)

    def downloaded(self) -> None:
        self._inner.downloaded()

    def converted(self, shard: str) -> None:
        self._inner.converted(shard)


def carry_out(changes: StackChanges, reporter: Reporter, options: ChangeOptions) -> ChangedStack:
    """Carry out the steps of a change; return what was done.

    Raises LaunchError: what was changed by then stays, and what the failed step would have replaced
    continues to answer.
    """
    return _Change(changes, reporter, options).run()


class _Change:
    """One change: ``_old`` are engines that end, ``_coming`` new ones."""

    def __init__(self, changes: StackChanges, reporter: Reporter, options: ChangeOptions) -> None:
        self._changes = changes
        self._planned = changes.planned
        self._stack = changes.stack
        self._reporter = reporter
        self._options = options
        self._names_before = gateway_job.routed_names(self._stack.gateway_service)
        self._services = {each.name: each for each in self._planned.services}
        engines: dict[str, list[str]] = {model.name: [] for model in self._stack.models}
        for each in self._planned.services:
            engines[each.model.name].append(each.name)
        self._final = record_of(self._stack, engines)
        before = changes.before or StackRecord(self._stack.name, "")
        self._old = [
            name
            for name in before.services
            if name in changes.alive and name not in self._final.services
        ]
        self._coming = {each.name for each in self._planned.services if not each.running}
        self._before = before
        self._routes: tuple[Backend, ...] = ()
        self._started: list[str] = []
        self._ended: list[str] = []

    def run(self) -> ChangedStack:
        """Carry out all steps."""
        _forget_dropped(self._before, self._final, self._old)
        self._write_record()
        gateway = self._begin_gateway()
        last = self._changes.steps[-1] if self._changes.steps else None
        for step in self._changes.steps:
            self._take(step, wait=self._options.wait or step is not last)
        self._route()
        write_record(self._final)
        return ChangedStack(tuple(self._started), tuple(self._ended), gateway)

    def _write_record(self) -> None:
        """Record the services of the file, and old ones that still run."""
        services = dict(self._final.services)
        models = dict(self._final.models)
        for name in self._old:
            services[name] = self._before.services[name]
            models[name] = self._before.models.get(name, "")
        gateway = self._stack.gateway_service
        if self._planned.gateway_runs:
            # a change that is interrupted leaves a gateway to renew
            services[gateway] = self._before.services.get(gateway, "")
        write_record(replace(self._final, services=services, models=models))

    def _begin_gateway(self) -> str:
        """Start the gateway, or give a running one what runs now; return what was done."""
        settings, name = self._stack.gateway, self._stack.gateway_service
        done = "started"
        running = self._changes.alive.get(name)
        if self._planned.gateway_runs and running is not None:
            if running.url == settings.url:
                self._route()
                return "renewed"
            self._end_services((name,))
            self._started.append(name)
            done = "moved"
        self._routes = self._backends()
        gateway_job.start(name, self._routes, settings)
        until_ready(name)
        self._reporter.say(text("stack.gateway_ready", url=settings.url))
        return done

    def _route(self) -> None:
        """Give the gateway the engines that are to answer now."""
        wanted = self._backends()
        if wanted != self._routes:
            gateway_job.renew(self._stack.gateway_service, wanted, self._stack.gateway)
        self._routes = wanted

    def _backends(self) -> tuple[Backend, ...]:
        """Return the models as the gateway routes to them now.

        A model whose old version still answers has no coming engines, and only the aliases that
        the old version serves, too.
        """
        found = []
        for backend in final_backends(self._planned):
            old = [name for name in self._old if self._before.models.get(name) == backend.model]
            if old:
                known = self._names_before.get(backend.model, ())
                replicas = {find(name).url: name for name in old}
                for url, service in backend.replicas.items():
                    if service not in self._coming:
                        replicas[url] = service
                backend = replace(
                    backend,
                    replicas=replicas,
                    aliases=tuple(alias for alias in backend.aliases if alias in known),
                )
            found.append(backend)
        return tuple(found)

    def _take(self, step: ChangeStep, *, wait: bool) -> None:
        """Carry out one step."""
        self._end_routed(step.ends_first)
        for name in step.starts:
            self._start(self._services[name])
        if wait:
            # wait for the engines of the step's models that exist by now
            later = self._coming.difference(self._started)
            names = [
                each.name
                for each in self._planned.services
                if each.model.name in step.models and each.name not in later
            ]
            wait_for(names, self._reporter)
        if step.ends_after:
            self._coming.difference_update(step.starts)
            self._route()
            self._end_routed(step.ends_after)

    def _start(self, service: StackService) -> None:
        service = self._at_free_port(service)
        how = ServeMode(
            name=service.name,
            no_doctor=self._options.no_doctor,
            quiet=True,
            restart=service.model.restart,
            detach=True,
        )
        with at_line(self._stack, service.model.line):
            start(service.options, how, _Lines(self._reporter))
        self._started.append(service.name)
        cards = service.shown_cards
        self._reporter.say(text("stack.started", name=service.name, cards=cards))

    def _at_free_port(self, service: StackService) -> StackService:
        """Return the service, at another port where its own was taken since the plan."""
        own, planned = service.options.port or 0, self._planned.services
        if free_port(LOCAL, own - 1, machine_root()) == own:
            return service
        last = max(each.options.port or 0 for each in planned)
        port = free_port(LOCAL, last, machine_root())
        moved = replace(service, options=replace(service.options, port=port))
        every = tuple(moved if each is service else each for each in planned)
        self._planned = replace(self._planned, services=every)
        self._route()
        return moved

    def _end_routed(self, names: Sequence[str]) -> None:
        """End engines that the gateway does not route to any more."""
        if not names:
            return
        self._old = [name for name in self._old if name not in names]
        self._route()
        self._end_services(names)
        self._write_record()

    def _end_services(self, names: Sequence[str]) -> None:
        found = [self._changes.alive[name] for name in names]
        gateway = self._stack.gateway_service
        left = without_requests(gateway, names, self._options.drain, self._reporter)
        ended = end_all(found, left, self._reporter)
        self._ended += [each.service.name for each in ended]


def final_backends(planned: StackPlan) -> tuple[Backend, ...]:
    """Return the models as the gateway routes to them when all engines run."""
    found = []
    for model in planned.stack.models:
        mine = [each for each in planned.services if each.model.name == model.name]
        replicas = {f"http://{LOCAL}:{each.options.port}": each.name for each in mine}
        found.append(Backend(model.name, replicas, model.aliases, model.balance))
    return tuple(found)


def check_startable(changes: StackChanges, *, no_doctor: bool) -> None:
    """Raise LaunchError for what would keep the gateway or an engine from starting."""
    planned, stack = changes.planned, changes.stack
    check_access(stack)
    check_backends(final_backends(planned))
    GATEWAY.needed()
    gateway = changes.alive.get(stack.gateway_service)
    if gateway is None or gateway.url != stack.gateway.url:
        with at_line(stack, stack.lines["port"]):
            check_port(stack.gateway.url)
    checked: set[str] = set()
    for service in planned.services:
        if service.running or service.model.name in checked:
            continue
        checked.add(service.model.name)
        with at_line(stack, service.model.line):
            _check_engine(service, no_doctor=no_doctor)


def check_access(stack: StackFile) -> None:
    """Check keys and TLS. Raises LaunchError (USAGE) with the line of the entry."""
    try:
        keys_file.check_access(stack.gateway)
    except LaunchError as error:
        area = error.id.partition(".")[2]
        key = "users"
        if area.startswith("keys"):
            key = "keys-file"
        elif area.startswith("tls"):
            key = "tls"
        raise error_at(stack, stack.lines[key], error) from error


def _check_engine(service: StackService, *, no_doctor: bool) -> None:
    """Check folder, interpreter and machine of a service before anything starts."""
    if service.options.model == "demo":
        # its engine and its files are installed by the first launch
        return
    prepared = prepare(service.options, secret_file=True)
    checked(prepared, service.plan).refuse(no_doctor=no_doctor)


def _forget_dropped(before: StackRecord, final: StackRecord, old: Sequence[str]) -> None:
    """Remove what ended services left that the file names no more."""
    for name in before.services:
        if name in final.services or name in old:
            continue
        service = read(name)
        if service is not None:
            end(service, 0, Silent(), forget=True)


def wait_for(names: Sequence[str], reporter: Reporter) -> None:
    """Wait until all of these services answer, and report each of them.

    Raises the error of the first that failed, when the others have answered or failed.
    """
    failed: list[LaunchError] = []
    for name in names:
        before = read(name)
        if before is not None and before.phase != "ready":
            reporter.say(text("stack.waits", name=name))
        try:
            service = reporter.until_ready(name)
        except LaunchError as error:
            reporter.say(text("stack.failed", name=name))
            failed.append(error)
            continue
        served = service.state.get("served")
        if served:
            reporter.say(text("stack.ready", name=name, model=served))
    if failed:
        raise failed[0]


def without_requests(
    gateway: str, names: Sequence[str], seconds: float, reporter: Reporter
) -> float:
    """Give engines no new request, and wait for those that run.

    Return the seconds that are left. The gateway knows the requests of engines that report none.
    Those that still run after the time are reported: they are cut.
    """
    running.set_routed(gateway, names, routed=False)
    deadline = time.monotonic() + seconds
    said = False
    while True:
        found = running.routed_engines(gateway)
        count = sum(found[name].requests for name in names if name in found)
        left = deadline - time.monotonic()
        if not count:
            return max(left, 0.0)
        if left <= 0:
            reporter.say(text("stack.cut", names=", ".join(names), count=count))
            return 0.0
        if not said:
            reporter.say(text("services.stop_drain", name=", ".join(names), count=count))
            said = True
        time.sleep(_POLL_SECONDS)


def end_all(
    services: Sequence[ServiceRecord], drain: float, reporter: Reporter
) -> tuple[Stopped, ...]:
    """End services at the same time. Raises the first error when all were tried."""
    if not services:
        return ()
    with ThreadPoolExecutor(len(services)) as pool:
        tasks = [pool.submit(end, service, drain, reporter, forget=True) for service in services]
    return tuple(task.result() for task in tasks)
