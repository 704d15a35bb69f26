"""The steps of a change: order, routes, records, what stays where a step fails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import gateway as gateway_cases
from gaudi_launch.app import serve, stack_change, stop, waiting
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.report import Silent
from gaudi_launch.app.serve import ServeMode
from gaudi_launch.app.stack_change import ChangeOptions, carry_out
from gaudi_launch.app.stack_plan import StackChanges, StackPlan, StackService
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.gateway import gateway_job, program
from gaudi_launch.gateway import running as running_gateway
from gaudi_launch.gateway.gateway_settings import Backend
from gaudi_launch.services import preflight
from gaudi_launch.services.state import registry, reservation
from gaudi_launch.services.state.registry import ServiceRecord
from gaudi_launch.stack import stack_record
from gaudi_launch.stack.changes import ChangeStep
from gaudi_launch.stack.stack_file import StackFile, parse_stack
from gaudi_launch.stack.stack_record import StackRecord
from tests.support.refusals import refused
from tests.support.reporters import Lines

pytestmark = pytest.mark.usefixtures("plain_english")

GATEWAY = "s-gateway"
TWO = """\
schema: 1
name: s
gateway: {port: 9000}
models:
- {name: a, model: org/a, aliases: [x, y], balance: prefix, restart: "no"}
- {name: b, model: org/b}
"""
PORTS = {"s-a": 1001, "s-b": 1002, "s-a.v2": 1003}


class Site(Lines):
    """Services without processes: every change of them is an event, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[Any, ...]] = []
        self.failing: dict[str, LaunchError] = {}
        self.modes: dict[str, ServeMode] = {}
        self.hashes: list[str] = []

    def start(self, options: LaunchOptions, how: ServeMode, reporter: Any) -> None:
        name = str(how.name)
        if name in self.failing:
            raise self.failing[name]
        reporter.say(f"{name} begins")
        self.modes[name] = how
        self.events.append(("start", name, options.port))

    def until_ready(self, name: str, timeout: float | None = None) -> ServiceRecord:
        self.events.append(("wait", name))
        if name in self.failing:
            raise self.failing[name]
        return running(name, served=f"{name} model")

    def end_all(self, services: Sequence[ServiceRecord], drain: float, reporter: Any) -> Any:
        # the wait for requests takes a moment of the drain
        self.events.append(("end", math.ceil(drain), *(each.name for each in services)))
        return tuple(services)

    def begin_gateway(self, name: str, backends: Sequence[Backend], settings: Any) -> None:
        self.events.append(("gateway", name, settings.port, routes(backends)))

    def renew(self, name: str, backends: Sequence[Backend], settings: Any) -> None:
        self.events.append(("renew", name, settings.port, routes(backends)))

    def write(self, record: StackRecord) -> None:
        self.hashes.append(record.services[GATEWAY])
        self.events.append(("record", tuple(record.services), tuple(record.models.values())))


def routes(backends: Sequence[Backend]) -> dict[str, tuple[str, ...]]:
    """Return the services that requests for each name are routed to."""
    return {
        name: tuple(each.service for each in backend.replicas)
        for backend in backends
        for name in backend.names
    }


def running(name: str, **state: Any) -> ServiceRecord:
    url = f"http://127.0.0.1:{PORTS.get(name, 9000)}"
    return ServiceRecord(name, Path("/services") / name, {"url": url, **state}, alive=True)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site()
    monkeypatch.setattr(serve, "start", made.start)
    monkeypatch.setattr(waiting, "until_ready", made.until_ready)
    monkeypatch.setattr(stack_change, "end_all", made.end_all)
    monkeypatch.setattr(gateway_cases, "start", made.begin_gateway)
    monkeypatch.setattr(gateway_cases, "renew", made.renew)
    monkeypatch.setattr(stack_record, "write_record", made.write)
    # every port is free, also one that only root may open
    monkeypatch.setattr(reservation, "free_port", lambda host, after, root: after + 1)
    monkeypatch.setattr(registry, "find", running)
    monkeypatch.setattr(running_gateway, "set_routed", lambda name, engines, *, routed: None)
    monkeypatch.setattr(running_gateway, "routed_engines", lambda name: {})
    monkeypatch.setattr(gateway_job, "routed_names", lambda name: {"a": ("x", "z")})
    return made


def stack_of(content: str) -> StackFile:
    return parse_stack(content, Path("/stacks/s.yaml"))


def service(
    stack: StackFile, name: str, model: str, modules: tuple[int, ...] = (), *, runs: bool = False
) -> StackService:
    [found] = [each for each in stack.models if each.name == model]
    plan: Any = SimpleNamespace(
        engine=SimpleNamespace(simulated=False),
        placement=SimpleNamespace(modules=modules),
        estimate=None,
    )
    return StackService(name, found, LaunchOptions(port=str(PORTS[name])), plan, runs)


def changes(
    stack: StackFile,
    services: Sequence[StackService],
    steps: Sequence[ChangeStep],
    *,
    before: StackRecord | None = None,
    alive: Sequence[str] = (),
) -> StackChanges:
    planned = StackPlan(stack, tuple(services), (), (), (), gateway_runs=GATEWAY in alive)
    return StackChanges(planned, tuple(steps), before, {name: running(name) for name in alive})


def two(stack: StackFile) -> StackChanges:
    services = (service(stack, "s-a", "a", (2, 3)), service(stack, "s-b", "b"))
    steps = (ChangeStep(("b",), starts=("s-b",)), ChangeStep(("a",), starts=("s-a",)))
    return changes(stack, services, steps)


def test_an_engine_that_cannot_start_is_named_with_its_line_and_the_record_stays(
    site: Site,
) -> None:
    site.failing["s-a"] = LaunchError("cache.no_ledger", ExitCode.MODEL, key="k", why="w")
    with refused(
        "stack.at_line",
        ExitCode.MODEL,
        path="/stacks/s.yaml",
        line=5,
        why=str(site.failing["s-a"]),
    ):
        carry_out(two(stack_of(TWO)), site, ChangeOptions())
    assert site.events[-1] == ("wait", "s-b")


# --- waiting and ending --------------------------------------------------------------------------


def test_services_end_with_their_folders_and_the_first_error_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[tuple[Any, ...]] = []

    def end(found: ServiceRecord, drain: float, reporter: Any, *, forget: bool = False) -> str:
        ended.append((found.name, drain, forget))
        if found.name == "s-a":
            raise LaunchError("services.orphans_left", ExitCode.FAILED, pids="1")
        return found.name

    monkeypatch.setattr(stop, "end", end)
    assert stack_change.end_all((), 1, Silent()) == ()
    found: Any = stack_change.end_all((running("s-b"), running("c")), 5, Silent())
    assert found == ("s-b", "c")
    assert sorted(ended) == [("c", 5, True), ("s-b", 5, True)]
    with refused("services.orphans_left", ExitCode.FAILED, pids="1"):
        stack_change.end_all((running("s-a"), running("s-b")), 5, Silent())
    assert len(ended) == 4


# --- checks before a change ----------------------------------------------------------------------


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Record what is checked before anything starts."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(program, "needed", lambda: found.append(("program",)))
    monkeypatch.setattr(preflight, "check_port", lambda url: found.append(("port", url)))
    monkeypatch.setattr(
        stack_change,
        "_check_engine",
        lambda one, *, no_doctor: found.append(("engine", one.name, no_doctor)),
    )
    return found


def test_each_check_names_its_line(
    checked: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stack = stack_of(TWO)
    error = LaunchError("services.drain", ExitCode.MACHINE, found=1)

    def fail(*words: Any, **more: Any) -> None:
        raise error

    case = changes(stack, (service(stack, "s-a", "a"), service(stack, "s-b", "b")), ())
    monkeypatch.setattr(stack_change, "_check_engine", fail)
    where = {"path": "/stacks/s.yaml", "why": str(error)}
    with refused("stack.at_line", ExitCode.MACHINE, line=5, **where):
        stack_change.check_startable(case, no_doctor=False)
    monkeypatch.setattr(preflight, "check_port", fail)
    with refused("stack.at_line", ExitCode.MACHINE, line=3, **where):
        stack_change.check_startable(case, no_doctor=False)


@pytest.mark.parametrize(
    ("id", "line"),
    [("gateway.keys_none", 4), ("gateway.tls_unusable", 5), ("gateway.unknown_user", 6)],
)
def test_an_error_of_access_names_the_entry(
    id: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (
        "schema: 1\nname: s\ngateway:\n  keys-file: keys\n  tls: {certificate: c, key: k}\n"
        "  users: {alice: {concurrent: 1}}\nmodels:\n- {name: a, model: org/a}\n"
    )
    error = LaunchError(id, ExitCode.USAGE, path="/p", key="k", why="w", user="u", known="k")

    def fail(settings: Any) -> None:
        raise error

    monkeypatch.setattr("gaudi_launch.gateway.keys_file.check_access", fail)
    path = "/stacks/s.yaml"
    with refused("stack.at_line", ExitCode.USAGE, path=path, line=line, why=str(error)):
        stack_change.check_access(stack_of(content))
