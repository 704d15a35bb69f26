"""The use cases of ``gaudi-launch stack``: init, plan, up, down and ps."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.report import Silent
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gaudi_launch.app.prepare import Prepared
    from gaudi_launch.app.report import Reporter
    from gaudi_launch.app.stop import EndedService
    from gaudi_launch.gateway.gateway_settings import Backend
    from gaudi_launch.host.hardware import Host
    from gaudi_launch.models.hub.download import PullProgress
    from gaudi_launch.planning.plan import Placement, Plan
    from gaudi_launch.services.state.registry import ServiceRecord
    from gaudi_launch.stack.stack_file import StackFile, StackModel
    from gaudi_launch.stack.stack_record import StackRecord

# numbers of cards to try for a model that names none
_COUNTS = (1, 2, 4, 8)
# engines get ports above this one
_FIRST_PORT = 30100
_LOCAL = "127.0.0.1"


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
        return () if self.plan.engine.simulated else self.plan.placement.modules


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
class StackState:
    """A started stack and those of its services that exist, the gateway's first."""

    record: StackRecord
    services: tuple[ServiceRecord, ...]


@dataclass(frozen=True)
class StartedStack:
    """The result of ``up``: the names of the services that it started."""

    stack: StackFile
    started: tuple[str, ...]


@dataclass(frozen=True)
class EndedStack:
    """The result of ``down``."""

    name: str
    services: tuple[EndedService, ...]


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


# --- plan ---------------------------------------------------------------------------------------


def plan(path: Path, machine: str | None = None) -> StackPlan:
    """Return the plan of a stack: cards, memory and warm-up of each engine.

    Reads only.
    Raises LaunchError with the line of the file.
    """
    from gaudi_launch.stack.stack_file import read_stack

    return _planned(read_stack(path), machine)


@dataclass(frozen=True)
class _Sized:
    """One model, prepared, with the options that state its number of cards."""

    model: StackModel
    options: LaunchOptions
    prepared: Prepared
    # cards of one replica; 0 for an engine that needs none of this machine
    cards: int
    modules: tuple[int, ...] | None


def _planned(stack: StackFile, machine: str | None) -> StackPlan:
    from gaudi_launch.planning.placement import parse_visible
    from gaudi_launch.stack.division import CardShare, divide, with_cards
    from gaudi_launch.stack.stack_file import start_order

    sized = [_sized(stack, model, machine) for model in stack.models]
    host = _machine_of(sized)
    alive = _alive(stack) if machine is None else {}
    wanted = [(each, name) for each in sized for name in stack.services_of(each.model)]
    new = [(each, name) for each, name in wanted if name not in alive]
    _check_enough(stack, new, host)

    def refused(position: int, error: LaunchError) -> LaunchError:
        return _at_line(stack, new[position][0].model.line, error)

    shares = [CardShare(each.cards, each.modules) for each, _name in new]
    visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))
    divided = divide(host, shares, visible=visible, refused=refused)
    placements = {name: placement for (_each, name), placement in zip(new, divided, strict=True)}
    ports = _ports(new)
    services = []
    for each, name in wanted:
        known = alive.get(name)
        placement = placements.get(name)
        if known is not None and each.cards:
            placement = _placed_on(with_cards(host), known.modules)
        port = ports.get(name) or int(known.url.rpartition(":")[2] if known is not None else 0)
        services.append(
            _service(stack, each, name, placement, port=port, running=known is not None)
        )
    taken = {module for each in services for module in each.modules}
    return StackPlan(
        stack=stack,
        services=tuple(services),
        groups=tuple(tuple(model.name for model in group) for group in start_order(stack)),
        cards=host.modules,
        free=tuple(module for module in host.free_modules if module not in taken),
        gateway_runs=stack.gateway_service in alive,
    )


def _sized(stack: StackFile, model: StackModel, machine: str | None) -> _Sized:
    """Return a model with its number of cards. Raises LaunchError with its line."""
    try:
        options = _options(stack, model, machine)
        if options.modules and model.replicas > 1:
            raise LaunchError(
                "stack.modules_replicas", ExitCode.USAGE, name=model.name, count=model.replicas
            )
        return _with_cards(model, options)
    except LaunchError as error:
        raise _at_line(stack, model.line, error) from error


def _options(stack: StackFile, model: StackModel, machine: str | None) -> LaunchOptions:
    """Return the options of ``serve`` for a model, without cards and port."""
    from gaudi_launch.app.saved_plan import saved_fields
    from gaudi_launch.planning.engine_args import engine_args
    from gaudi_launch.planning.option_table import UPSTREAM, option_table
    from gaudi_launch.planning.secret_args import refuse_secret_args

    refuse_secret_args(engine_args(table=option_table(UPSTREAM), user=model.engine_arguments))
    known = saved_fields()
    given: dict[str, Any] = {known[each.key]: each.value for each in model.options}
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
    return LaunchOptions(model=path, host=_LOCAL, machine=machine, extra=extra, **given)


def _with_cards(model: StackModel, options: LaunchOptions) -> _Sized:
    """Return the model with its own cards, else with the fewest that fit it."""
    from gaudi_launch.app.prepare import prepare
    from gaudi_launch.stack.division import with_cards

    prepared = prepare(options, secret_file=True)
    if not prepared.engine.needs_cards or prepared.engine.identity.simulated:
        return _Sized(model, options, prepared, 0, None)
    tries: tuple[LaunchOptions, ...] = (options,)
    if not options.cards and not options.modules and options.tuning != "reference":
        tries = tuple(replace(options, cards=str(count)) for count in _COUNTS)
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


def _machine_of(sized: Sequence[_Sized]) -> Host:
    """Return the machine whose cards are divided; an empty one where none is needed."""
    from gaudi_launch.host.hardware import Host

    return next((each.prepared.host for each in sized if each.cards), Host())


def _check_enough(stack: StackFile, new: Sequence[tuple[_Sized, str]], host: Host) -> None:
    """Raise LaunchError (MACHINE) at the first service for which no card is left."""
    needed = sum(each.cards for each, _name in new)
    used = 0
    for each, _name in new:
        used += each.cards
        if used > len(host.free_modules):
            free = ",".join(map(str, host.free_modules)) or "-"
            raise LaunchError(
                "stack.too_few",
                ExitCode.MACHINE,
                path=str(stack.path),
                line=each.model.line,
                name=each.model.name,
                cards=needed,
                count=len(host.free_modules),
                free=free,
            )


def _placed_on(host: Host, modules: tuple[int, ...]) -> Placement:
    from gaudi_launch.planning.placement import choose

    return choose(host, modules=modules)


def _ports(new: Sequence[tuple[_Sized, str]]) -> dict[str, int]:
    """Return a free port for each new service."""
    from gaudi_launch.paths import machine_root
    from gaudi_launch.services.state.reservation import free_port

    found: dict[str, int] = {}
    last = _FIRST_PORT
    for _each, name in new:
        last = free_port(_LOCAL, last, machine_root())
        found[name] = last
    return found


def _service(
    stack: StackFile,
    sized: _Sized,
    name: str,
    placement: Placement | None,
    *,
    port: int,
    running: bool,
) -> StackService:
    """Return a service with its plan on its cards."""
    prepared = replace(sized.prepared, request=replace(sized.prepared.request, port=port))
    options = replace(sized.options, port=str(port))
    if sized.cards and placement is not None:
        modules = placement.modules
        options = replace(options, modules=",".join(map(str, modules)))
        prepared = replace(prepared, request=replace(prepared.request, modules=modules))
    try:
        made = prepared.plan(placement if sized.cards else None)
    except LaunchError as error:
        raise _at_line(stack, sized.model.line, error) from error
    return StackService(name, sized.model, options, made, running)


def _alive(stack: StackFile) -> dict[str, ServiceRecord]:
    """Return the running services that have names of this stack."""
    from gaudi_launch.services.state.registry import read

    names = [
        stack.gateway_service,
        *(name for model in stack.models for name in stack.services_of(model)),
    ]
    found = {name: read(name) for name in names}
    return {
        name: service for name, service in found.items() if service is not None and service.alive
    }


def _at_line(stack: StackFile, line: int, error: LaunchError) -> LaunchError:
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


# --- up -----------------------------------------------------------------------------------------


def up(
    path: Path, reporter: Reporter, *, no_doctor: bool = False, wait: bool = True
) -> StartedStack:
    """Start what does not run of a stack; return when all models answer.

    Without ``wait``: when the last group of models was started. Everything is checked before
    anything is started. Raises LaunchError; engines that were started by then stay.
    """
    from gaudi_launch.stack.stack_file import read_stack, start_order
    from gaudi_launch.stack.stack_record import held, read_record, write_record

    stack = read_stack(path)
    if os.environ.get("VLLM_API_KEY"):
        # the gateway removes keys from requests, so an engine with one would refuse all of them
        raise LaunchError("stack.api_key", ExitCode.USAGE)
    with held(stack.name):
        before = read_record(stack.name)
        alive = _alive(stack)
        now = _record_of(stack)
        _check_same(stack, before, now, alive)
        missing = [name for name in now.services if name not in alive]
        if not missing:
            if wait:
                _wait(tuple(now.services), reporter)
            return StartedStack(stack, ())
        planned = _planned(stack, None)
        _check_startable(planned, no_doctor=no_doctor)
        _forget_dropped(before, now)
        write_record(now)
        with _forgotten_without_services(stack, before):
            _start_gateway(planned, reporter)
            groups = start_order(stack)
            for number, group in enumerate(groups, start=1):
                names = _start_group(planned, group, reporter, no_doctor=no_doctor)
                if wait or number < len(groups):
                    _wait(names, reporter)
    return StartedStack(stack, tuple(missing))


def _record_of(stack: StackFile) -> StackRecord:
    """Return the record of a stack with these settings."""
    from gaudi_launch.stack.stack_record import StackRecord, hash_of

    routes = [(model.names, model.balance, stack.services_of(model)) for model in stack.models]
    services = {stack.gateway_service: hash_of([asdict(stack.gateway), routes])}
    models = {stack.gateway_service: ""}
    for model in stack.models:
        settings = asdict(model)
        # where it is in the file and what it waits for changes nothing that runs
        for name in ("line", "after", "replicas", "balance"):
            del settings[name]
        for service in stack.services_of(model):
            services[service] = hash_of(settings)
            models[service] = model.name
    return StackRecord(stack.name, str(stack.path.absolute()), services, models)


def _check_same(
    stack: StackFile,
    before: StackRecord | None,
    now: StackRecord,
    alive: Mapping[str, ServiceRecord],
) -> None:
    """Raise LaunchError (USAGE) where something runs that the file does not describe."""
    from gaudi_launch.services.state.registry import read

    known = before.services if before is not None else {}
    for name in alive:
        if name not in known:
            raise LaunchError("services.name_taken", ExitCode.USAGE, name=name)
    changed = []
    for name, settings in known.items():
        service = read(name)
        if service is not None and service.alive and now.services.get(name) != settings:
            changed.append(name)
    if changed:
        raise LaunchError(
            "stack.changed",
            ExitCode.USAGE,
            path=str(stack.path),
            name=stack.name,
            services=", ".join(changed),
        )


def _check_startable(planned: StackPlan, *, no_doctor: bool) -> None:
    """Raise LaunchError for what would keep the gateway or an engine from starting."""
    from gaudi_launch.gateway import program
    from gaudi_launch.gateway.gateway_settings import check_backends
    from gaudi_launch.services.preflight import check_port

    stack = planned.stack
    _check_access(stack)
    check_backends(_backends(planned))
    program.needed()
    if not planned.gateway_runs:
        try:
            check_port(stack.gateway.url)
        except LaunchError as error:
            raise _at_line(stack, stack.lines["port"], error) from error
    checked: set[str] = set()
    for service in planned.services:
        if service.running or service.model.name in checked:
            continue
        checked.add(service.model.name)
        try:
            _check_engine(service, no_doctor=no_doctor)
        except LaunchError as error:
            raise _at_line(stack, service.model.line, error) from error


def _check_access(stack: StackFile) -> None:
    """Check keys and TLS. Raises LaunchError (USAGE) with the line of the entry."""
    from gaudi_launch.gateway.keys_file import check_access

    try:
        check_access(stack.gateway)
    except LaunchError as error:
        area = error.id.partition(".")[2]
        key = "users"
        if area.startswith("keys"):
            key = "keys-file"
        elif area.startswith("tls"):
            key = "tls"
        raise _at_line(stack, stack.lines[key], error) from error


def _check_engine(service: StackService, *, no_doctor: bool) -> None:
    """Check folder, interpreter and machine of a service before anything starts."""
    from gaudi_launch.app.prepare import prepare
    from gaudi_launch.doctor import stop_on_failures
    from gaudi_launch.engines.registry import check_engine
    from gaudi_launch.services.preflight import check_folder

    if service.options.model == "demo":
        # its engine and its files are installed by the first launch
        return
    prepared = prepare(service.options, secret_file=True)
    check_engine(prepared.engine, prepared.installed)
    if not prepared.engine.identity.simulated:
        check_folder(prepared.request)
    if not no_doctor:
        stop_on_failures(prepared.findings(service.plan))


def _forget_dropped(before: StackRecord | None, now: StackRecord) -> None:
    """Remove what ended services left that the file names no more."""
    from gaudi_launch.app.stop import end
    from gaudi_launch.services.state.registry import read

    for name in before.services if before is not None else ():
        service = read(name) if name not in now.services else None
        if service is not None:
            end(service, 0, Silent(), forget=True)


@contextmanager
def _forgotten_without_services(stack: StackFile, before: StackRecord | None) -> Iterator[None]:
    """Remove a new record where the launch fails before any engine was started."""
    from gaudi_launch.app.stop import end
    from gaudi_launch.services.state.registry import read
    from gaudi_launch.stack.stack_record import forget

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


def _backends(planned: StackPlan) -> tuple[Backend, ...]:
    """Return the models as the gateway routes to them."""
    from gaudi_launch.gateway.gateway_settings import Backend, GatewayReplica

    found = []
    for model in planned.stack.models:
        mine = [each for each in planned.services if each.model.name == model.name]
        replicas = tuple(
            GatewayReplica(f"http://{_LOCAL}:{each.options.port}", each.name) for each in mine
        )
        found.append(Backend(model.name, replicas, model.aliases, model.balance))
    return tuple(found)


def _start_gateway(planned: StackPlan, reporter: Reporter) -> None:
    """Start the gateway, or give a running one the addresses of new engines."""
    from gaudi_launch.app import gateway
    from gaudi_launch.app.waiting import until_ready

    stack = planned.stack
    name = stack.gateway_service
    if planned.gateway_runs:
        gateway.renew(name, _backends(planned), stack.gateway)
        return
    gateway.start(name, _backends(planned), stack.gateway)
    until_ready(name)
    reporter.say(text("stack.gateway_ready", url=stack.gateway.url))


def _start_group(
    planned: StackPlan, group: Sequence[StackModel], reporter: Reporter, *, no_doctor: bool
) -> tuple[str, ...]:
    """Start the engines of a group that do not run; return the names of all."""
    from gaudi_launch.app.serve import ServeMode, start

    chosen = {model.name for model in group}
    names = []
    for service in planned.services:
        if service.model.name not in chosen:
            continue
        names.append(service.name)
        if service.running:
            continue
        how = ServeMode(
            name=service.name,
            no_doctor=no_doctor,
            quiet=True,
            restart=service.model.restart,
            detach=True,
        )
        try:
            start(service.options, how, _Lines(reporter))
        except LaunchError as error:
            raise _at_line(planned.stack, service.model.line, error) from error
        cards = ",".join(map(str, service.modules)) or "-"
        reporter.say(text("stack.started", name=service.name, cards=cards))
    return tuple(names)


def _wait(names: Sequence[str], reporter: Reporter) -> None:
    """Wait until all of these services answer; say it of each.

    Raises the error of the first that failed, when the others have answered or failed.
    """
    from gaudi_launch.app.waiting import until_ready

    failed: list[LaunchError] = []
    for name in names:
        try:
            service = until_ready(name)
        except LaunchError as error:
            reporter.say(text("stack.failed", name=name))
            failed.append(error)
            continue
        served = service.state.get("served")
        if served:
            reporter.say(text("stack.ready", name=name, model=served))
    if failed:
        raise failed[0]


# --- ps and down --------------------------------------------------------------------------------


def ps(name: str | None = None) -> tuple[StackState, ...]:
    """Return the started stacks, or one by its name or file.

    Raises LaunchError (USAGE) for one that was not started.
    """
    from gaudi_launch.services.state.registry import read
    from gaudi_launch.stack.stack_record import records

    found = records()
    if name is not None:
        wanted = _name_of(name)
        known = ", ".join(record.name for record in found) or "-"
        found = tuple(record for record in found if record.name == wanted)
        if not found:
            raise LaunchError("stack.unknown", ExitCode.USAGE, found=name, known=known)
    states = []
    for record in found:
        services = (read(service) for service in record.services)
        states.append(
            StackState(record, tuple(service for service in services if service is not None))
        )
    return tuple(states)


def _name_of(word: str) -> str:
    """Return the name of a stack that is given by its name or its file."""
    from gaudi_launch.stack.stack_file import read_stack
    from gaudi_launch.stack.stack_record import records

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


def down(name: str, reporter: Reporter, drain: float = 30.0) -> EndedStack:
    """Stop the gateway, then all engines at once, and remove their records and logs.

    ``name`` is the stack's or its file; for the file of a stack that is not started nothing is
    done. Raises LaunchError: USAGE for an unknown name, FAILED where a process cannot be ended.
    """
    from gaudi_launch.app.stop import check_drain
    from gaudi_launch.stack.stack_record import forget, held, read_record

    check_drain(drain)
    if Path(name).is_file() and read_record(_name_of(name)) is None:
        return EndedStack(_name_of(name), ())
    record = ps(name)[0].record
    with held(record.name):
        gateway, engines = _services_of(record)
        # no new request while engines finish those that they have
        ended = _end_all(gateway, drain, reporter) + _end_all(engines, drain, reporter)
        forget(record.name)
    return EndedStack(record.name, ended)


def _services_of(
    record: StackRecord,
) -> tuple[tuple[ServiceRecord, ...], tuple[ServiceRecord, ...]]:
    """Return the gateway's service and those of the engines, as far as they exist."""
    from gaudi_launch.services.state.registry import read

    found = [service for service in map(read, record.services) if service is not None]
    gateway = tuple(service for service in found if not record.models.get(service.name))
    return gateway, tuple(service for service in found if service not in gateway)


def _end_all(
    services: Sequence[ServiceRecord], drain: float, reporter: Reporter
) -> tuple[EndedService, ...]:
    """End services at the same time. Raises the first error when all were tried."""
    from concurrent.futures import ThreadPoolExecutor

    from gaudi_launch.app.stop import end

    if not services:
        return ()
    with ThreadPoolExecutor(len(services)) as pool:
        tasks = [pool.submit(end, service, drain, reporter, forget=True) for service in services]
    return tuple(task.result() for task in tasks)


# --- init ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InitOptions:
    """The file that ``init`` writes, and options for all models; "" where not given."""

    path: Path
    port: str = ""
    machine: str | None = None
    engine: str = ""
    python: str = ""


def init(models: Sequence[str], options: InitOptions) -> StackPlan:
    """Write the file of a stack for this machine; return its plan.

    A model that is given twice gets two replicas. Raises LaunchError: USAGE for an existing file,
    MACHINE where the cards do not suffice; nothing is written then.
    """
    from gaudi_launch.paths import profiles_dir
    from gaudi_launch.planning import parse
    from gaudi_launch.render.yaml_text import dump
    from gaudi_launch.stack.stack_file import parse_stack

    path = options.path
    if path.exists():
        raise LaunchError("stack.exists", ExitCode.USAGE, path=str(path))
    document: dict[str, Any] = {"schema": 1, "gateway": {"host": _LOCAL, "port": 8000}}
    if options.port:
        document["gateway"]["port"] = parse.port("--port", options.port)
    document["models"] = _entries(models, options)
    planned = _planned(parse_stack(dump(document), path), options.machine)
    by_name = {each.model.name: each for each in planned.services}
    for entry in document["models"]:
        service = by_name[entry["name"]]
        if service.modules:
            entry.setdefault("options", {})["cards"] = len(service.modules)
    schema = profiles_dir() / "schema" / "stack.json"
    header = f"# yaml-language-server: $schema={schema}\n# gaudi-launch stack up {path.name}\n"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(header + dump(document))
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("stack.not_written", ExitCode.FAILED, path=str(path), why=why) from None
    return planned


def _entries(models: Sequence[str], options: InitOptions) -> list[dict[str, Any]]:
    """Return an entry for each model, with the number of times that it is given."""
    found: dict[str, dict[str, Any]] = {}
    names: set[str] = set()
    for model in models:
        if model in found:
            found[model]["replicas"] = found[model].get("replicas", 1) + 1
            continue
        base = (
            re.sub(r"[^a-z0-9._-]+", "-", model.rstrip("/").rpartition("/")[2].lower()).strip("-._")
            or "model"
        )
        name, number = base, 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names.add(name)
        entry: dict[str, Any] = {"name": name, "model": model}
        chosen = {"engine": options.engine, "python": options.python}
        given = {key: value for key, value in chosen.items() if value}
        if given:
            entry["options"] = given
        found[model] = entry
    return list(found.values())
