"""The plan of a stack: cards, memory and start time of all, and the steps to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.launch.prepared import Prepared, prepare
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.placement import Placement, choose, parse_visible
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.services.state.registry import ServiceRecord, read
from gaudi_launch.extensions.stack.changes import (
    CardShare,
    ChangeCase,
    ChangeStep,
    RunningEngine,
    steps_of,
    with_cards,
)
from gaudi_launch.extensions.stack.stack_file import StackFile, StackModel, read_stack, start_order
from gaudi_launch.extensions.stack.stack_record import (
    StackRecord,
    engine_hash,
    engine_names,
    read_record,
)

# numbers of cards to try for a model that names none
_COUNTS = (1, 2, 4, 8)
# engines get ports above this one
_FIRST_PORT = 30100
LOCAL = "127.0.0.1"


@dataclass(frozen=True)
class StackService:
    """One engine of a stack as planned. ``running``: it runs already, on these cards."""

    name: str
    model: StackModel
    options: LaunchOptions
    plan: Plan
    running: bool

    @property
    def modules(self) -> tuple[int, ...]:
        """Return its cards of this machine; simulated ones are none."""
        if self.plan.engine.simulated:
            return ()
        return self.plan.placement.modules

    @property
    def shown_cards(self) -> str:
        """Return its cards as text: modules, the number of simulated ones, "-" for none."""
        modules = self.plan.placement.modules
        if self.plan.engine.simulated:
            return text("stack.simulated_cards", count=len(modules))
        return ",".join(map(str, modules)) or "-"


@dataclass(frozen=True)
class StackPlan:
    """A stack as planned.

    ``services`` are in the order of the file, ``groups`` are the names of models by start order.
    ``cards`` are the modules of the machine, ``free`` those that no service of it or another
    process uses.
    """

    stack: StackFile
    services: tuple[StackService, ...]
    groups: tuple[tuple[str, ...], ...]
    cards: tuple[int, ...]
    free: tuple[int, ...]
    gateway_runs: bool

    @property
    def start_seconds(self) -> tuple[float, float] | None:
        """Return the estimated warm-up of all as a range; None where none is known.

        Models of a group warm up at the same time, groups one after the other.
        """
        low, high, known = 0.0, 0.0, False
        for group in self.groups:
            found = [each.plan.estimate for each in self.services if each.model.name in group]
            estimates = [each for each in found if each is not None]
            low += max((each.low_seconds for each in estimates), default=0.0)
            high += max((each.high_seconds for each in estimates), default=0.0)
            known = known or bool(estimates)
        return (low, high) if known else None


@dataclass(frozen=True)
class _Sized:
    """One model, prepared, with the options that state its number of cards."""

    model: StackModel
    options: LaunchOptions
    prepared: Prepared
    # cards of one replica; 0 for an engine that needs none of this machine
    cards: int
    modules: tuple[int, ...] | None


@dataclass(frozen=True)
class Downtime:
    """Seconds for which a model does not answer.

    They are 0 where nothing is known. ``has_load``: its load is included, as it was measured with
    the version that runs; otherwise it is the warm-up only.
    """

    model: str
    low_seconds: float
    high_seconds: float
    has_load: bool


def _launch_seconds(service: ServiceRecord) -> float | None:
    """Return the seconds from an engine's start to its first answer, if known."""
    began, ready = service.state.get("engine_began"), service.state.get("ready_at")
    if began is None or ready is None:
        return None
    return float(ready) - float(began)


@dataclass(frozen=True)
class StackChanges:
    """A stack as planned, and the steps from what runs to it.

    ``before`` is its record, None where it was not started; ``alive`` are its running services.
    """

    planned: StackPlan
    steps: tuple[ChangeStep, ...]
    before: StackRecord | None
    alive: Mapping[str, ServiceRecord]

    @property
    def stack(self) -> StackFile:
        return self.planned.stack

    @property
    def downtimes(self) -> tuple[Downtime, ...]:
        """Return the models that do not answer for a time, with this time."""
        models = dict.fromkeys(name for step in self.steps for name in step.interrupted)
        return tuple(self._downtime(name) for name in models)

    @property
    def moved_from(self) -> str:
        """Return the address that the gateway gives up, "" where it stays."""
        running = self.alive.get(self.stack.gateway_service)
        if running is None or running.url == self.stack.gateway.url:
            return ""
        return running.url

    @property
    def interrupts(self) -> bool:
        """Return True where requests are refused for a time."""
        return bool(self.downtimes) or self.moved_from != ""

    def _downtime(self, model: str) -> Downtime:
        """Return the launch of the new version, by its plan and by the version that runs."""
        seconds: list[float] = []
        for service in self.planned.services:
            if service.model.name == model and service.plan.estimate is not None:
                estimate = service.plan.estimate
                seconds += [estimate.low_seconds, estimate.high_seconds]
        before = self.before.models if self.before is not None else {}
        measured = [
            _launch_seconds(each) for name, each in self.alive.items() if before.get(name) == model
        ]
        seconds += [each for each in measured if each is not None]
        has_load = any(each is not None for each in measured)
        return Downtime(model, min(seconds, default=0), max(seconds, default=0), has_load)


def plan(path: Path, machine: str | None = None) -> StackPlan:
    """Return the plan of a stack: cards, memory and warm-up of each engine.

    Reads only. Raises LaunchError with the line of the file.
    """
    return changes_of(read_stack(path), machine).planned


def changes_of(stack: StackFile, machine: str | None = None) -> StackChanges:
    """Return the plan of a stack and the steps to it from what runs of it here.

    Nothing runs on another ``machine``. Raises LaunchError with the line of the file.
    """
    sized = {model.name: sized_model(stack, model, machine) for model in stack.models}
    before, alive = None, {}
    if machine is None:
        before = read_record(stack.name)
        alive = alive_services(stack, before)
    # the running services of the last start
    last = before.services if before is not None else ()
    known = {name: each for name, each in alive.items() if name in last}
    names = engine_names(stack, before, known)
    case = _case(stack, sized, names, _running(stack, before, known, names))
    _check_modules(stack, sized)
    _check_enough(stack, sized, case)
    steps, placements = steps_of(
        case, lambda model, error: error_at(stack, sized[model].model.line, error)
    )
    ports = _ports(case.new, stack.gateway.port, here=machine is None)
    places = {name: (cards, ports[name]) for name, cards in placements.items()}
    for each in case.running:
        if each.role == "kept":
            places[each.name] = _place(known[each.name], case.host, sized[each.model])
    services = tuple(
        _service(stack, sized[model], name, *places[name], running=name not in ports)
        for model, name in _pairs(names)
    )
    taken = {module for service in services for module in service.modules}
    planned = StackPlan(
        stack=stack,
        services=services,
        groups=case.groups,
        cards=case.host.modules,
        free=tuple(module for module in _free_of(case) if module not in taken),
        gateway_runs=stack.gateway_service in known,
    )
    return StackChanges(planned, steps, before, alive)


def _case(
    stack: StackFile,
    sized: Mapping[str, _Sized],
    names: Mapping[str, Sequence[str]],
    running: tuple[RunningEngine, ...],
) -> ChangeCase:
    """Return the engines that run and those to start, on the machine that they share."""
    # an empty machine where no card is needed
    host = next((each.prepared.host for each in sized.values() if each.cards), Host())
    kept = {each.name for each in running if each.role == "kept"}
    new = tuple(
        CardShare(sized[model].cards, sized[model].modules, name, model)
        for model, name in _pairs(names)
        if name not in kept
    )
    groups = tuple(tuple(model.name for model in group) for group in start_order(stack))
    visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))
    return ChangeCase(host, groups, running, new, visible)


def _pairs(names: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Return the model and the name of each service."""
    return [(model, name) for model, services in names.items() for name in services]


def _place(service: ServiceRecord, host: Host, sized: _Sized) -> tuple[Placement, int]:
    """Return the cards and the port that a running service has."""
    placement = Placement(modules=())
    if sized.cards:
        placement = choose(with_cards(host), modules=service.modules)
    return placement, int(service.url.rpartition(":")[2])


def _running(
    stack: StackFile,
    before: StackRecord | None,
    known: Mapping[str, ServiceRecord],
    names: Mapping[str, tuple[str, ...]],
) -> tuple[RunningEngine, ...]:
    """Return the engines of the stack that run, with what the file makes of them."""
    if before is None:
        return ()
    settings = {model.name: engine_hash(model) for model in stack.models}
    found = []
    for name, service in known.items():
        model = before.models.get(name)
        if not model:
            continue
        engine = RunningEngine(name, model, service.modules, "old")
        if name in names.get(model, ()):
            engine = replace(engine, role="kept")
        elif settings.get(model) in (None, before.services[name]):
            # its model is in the file no more, or has fewer replicas
            engine = replace(engine, role="gone")
        found.append(engine)
    return tuple(found)


def _free_of(case: ChangeCase) -> tuple[int, ...]:
    """Return the modules that are free, or are used by this stack only."""
    own = [module for each in case.running for module in each.modules]
    return case.host.with_use(own, busy=False).free_modules


def sized_model(stack: StackFile, model: StackModel, machine: str | None) -> _Sized:
    """Return a model with its number of cards. Raises LaunchError with its line."""
    with at_line(stack, model.line):
        options = options_of(stack, model, machine)
        if options.modules and model.replicas > 1:
            raise LaunchError(
                "stack.modules_replicas", ExitCode.USAGE, name=model.name, count=model.replicas
            )
        return _with_cards(model, options)


def options_of(stack: StackFile, model: StackModel, machine: str | None) -> LaunchOptions:
    """Return the options of ``serve`` for a model, without cards and port."""
    from gaudi_launch.core.launch.saved_plan import saved_fields
    from gaudi_launch.core.planning.engine_args import engine_args
    from gaudi_launch.core.planning.option_table import UPSTREAM, option_table
    from gaudi_launch.core.planning.secret_args import refuse_secret_args

    refuse_secret_args(engine_args(table=option_table(UPSTREAM), user=model.engine_arguments))
    known = saved_fields()
    given: dict[str, Any] = {known[key]: value for key, value in model.options.items()}
    extra = model.engine_arguments
    if model.aliases:
        # vLLM's form of several names; serve has an option for one
        extra = ("--served-model-name", *model.names, *extra)
    else:
        given["served_name"] = model.name
    folder = stack.path.absolute().parent
    path = model.model
    if path.startswith(("./", "../")):
        path = str(folder / path)
    return LaunchOptions(model=path, host=LOCAL, machine=machine, extra=extra, **given)


def _with_cards(model: StackModel, options: LaunchOptions) -> _Sized:
    """Return the model with its own cards, else with the fewest that fit it."""
    prepared = prepare(options, secret_file=True)
    if not prepared.engine.needs_cards or prepared.engine.identity.simulated:
        return _Sized(model, options, prepared, 0, None)
    tries: tuple[LaunchOptions, ...] = (options,)
    if not options.cards and not options.modules and options.tuning != "reference":
        tries = tuple(replace(options, cards=count) for count in _COUNTS)
    refusal: LaunchError | None = None
    for tried in tries:
        prepared = prepare(tried, secret_file=True)
        # how many it needs does not depend on what is free now
        whole = replace(prepared, host=with_cards(prepared.host))
        try:
            found = whole.plan()
        except LaunchError as error:
            if error.id != "fit.plan_refused":
                raise
            refusal = error
            continue
        return _Sized(
            model, tried, prepared, len(found.placement.modules), prepared.request.modules
        )
    assert refusal is not None, "the loop ends without a result by a refusal only"
    raise refusal


def chosen_cards(stack: StackFile, model: StackModel, machine: str | None) -> int:
    """Return the number of cards that ``plan`` would choose on the idle machine."""
    options = replace(options_of(stack, model, machine), cards=None)
    prepared = prepare(options, secret_file=True)
    made = replace(prepared, host=with_cards(prepared.host)).plan()
    return len(made.placement.modules)


def _check_modules(stack: StackFile, sized: Mapping[str, _Sized]) -> None:
    """Raise LaunchError (USAGE) where two models name the same module."""
    first: dict[int, StackModel] = {}
    for each in sized.values():
        for module in each.modules or ():
            if module in first:
                raise LaunchError(
                    "stack.same_module",
                    ExitCode.USAGE,
                    path=str(stack.path),
                    line=each.model.line,
                    name=each.model.name,
                    module=module,
                    first=first[module].line,
                )
            first[module] = each.model


def _check_enough(stack: StackFile, sized: Mapping[str, _Sized], case: ChangeCase) -> None:
    """Raise LaunchError (MACHINE) at the first model for which no card is left."""
    available = _free_of(case)
    needed = sum(each.cards * each.model.replicas for each in sized.values())
    used = 0
    for each in sized.values():
        used += each.cards * each.model.replicas
        if used > len(available):
            raise LaunchError(
                "stack.too_few",
                ExitCode.MACHINE,
                path=str(stack.path),
                line=each.model.line,
                name=each.model.name,
                cards=needed,
                count=len(available),
                free=",".join(map(str, available)) or "-",
            )


def _ports(new: Sequence[CardShare], gateway: int, *, here: bool) -> dict[str, int]:
    """Return a port for each new service, which is not the gateway's.

    It is free on this machine; those of another machine (``here`` is false) are not known.
    """
    from gaudi_launch.core.services.addresses import free_port

    def following(port: int) -> int:
        return free_port(LOCAL, port, machine_root()) if here else port + 1

    found: dict[str, int] = {}
    last = _FIRST_PORT
    for each in new:
        last = following(last)
        if last == gateway:
            last = following(last)
        found[each.name] = last
    return found


def _service(
    stack: StackFile, sized: _Sized, name: str, placement: Placement, port: int, *, running: bool
) -> StackService:
    """Return a service with its plan on its cards."""
    prepared = replace(sized.prepared, request=replace(sized.prepared.request, port=port))
    options = replace(sized.options, port=port)
    if sized.cards:
        modules = placement.modules
        options = replace(options, modules=tuple(modules))
        prepared = replace(prepared, request=replace(prepared.request, modules=modules))
    with at_line(stack, sized.model.line):
        made = prepared.plan(placement if sized.cards else None)
    return StackService(name, sized.model, options, made, running)


def alive_services(stack: StackFile, record: StackRecord | None) -> dict[str, ServiceRecord]:
    """Return the running services that have names of this stack, or of its record."""
    names = [stack.gateway_service]
    for model in stack.models:
        names += stack.services_of(model)
    if record is not None:
        names += record.services
    found = {name: read(name) for name in dict.fromkeys(names)}
    return {
        name: service for name, service in found.items() if service is not None and service.alive
    }


@contextmanager
def at_line(stack: StackFile, line: int) -> Iterator[None]:
    """Raise each LaunchError of the block with the line of the file that it is about."""
    try:
        yield
    except LaunchError as error:
        raise error_at(stack, line, error) from error


def error_at(stack: StackFile, line: int, error: LaunchError) -> LaunchError:
    """Return an error with the line of the file that it is about."""
    if error.id in ("stack.at_line", "stack.too_few"):
        return error
    return LaunchError(
        "stack.at_line",
        error.exit_code,
        detail=error.detail,
        path=str(stack.path),
        line=line,
        why=str(error),
    )
