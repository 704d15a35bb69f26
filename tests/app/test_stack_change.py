"""The steps of a change: order, routes, records, what stays where a step fails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import gateway as gateway_cases
from gaudi_launch.app import prepare, serve, stack_change, stop, waiting
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.report import Silent
from gaudi_launch.app.serve import ServeMode
from gaudi_launch.app.stack_change import ChangedStack, ChangeOptions, carry_out
from gaudi_launch.app.stack_plan import StackChanges, StackPlan, StackService
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.gateway import gateway_job, program
from gaudi_launch.gateway import running as running_gateway
from gaudi_launch.gateway.gateway_settings import Backend, GatewayReplica
from gaudi_launch.messages import text
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
ONE = "schema: 1\nname: s\ngateway: {port: 9000}\nmodels:\n- {name: a, model: org/a}\n"
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


BOTH = ("record", (GATEWAY, "s-a", "s-b"), ("", "a", "b"))
ALL_ROUTES = {"a": ("s-a",), "x": ("s-a",), "y": ("s-a",), "b": ("s-b",)}


def test_a_first_start_records_routes_and_waits_group_by_group(site: Site) -> None:
    done = carry_out(two(stack_of(TWO)), site, ChangeOptions(no_doctor=True))
    assert done == ChangedStack(("s-b", "s-a"), (), "started")
    assert site.events == [
        BOTH,
        ("gateway", GATEWAY, 9000, ALL_ROUTES),
        ("wait", GATEWAY),
        ("start", "s-b", "1002"),
        ("wait", "s-b"),
        ("start", "s-a", "1001"),
        ("wait", "s-a"),
        BOTH,
    ]
    assert site.modes["s-a"] == ServeMode(
        name="s-a", no_doctor=True, quiet=True, restart="no", detach=True
    )
    assert site.modes["s-b"].restart == "on-failure"
    assert site.lines == [
        text("stack.gateway_ready", url="http://127.0.0.1:9000"),
        "s-b begins",
        text("stack.started", name="s-b", cards="-"),
        text("stack.ready", name="s-b", model="s-b model"),
        "s-a begins",
        text("stack.started", name="s-a", cards="2,3"),
        text("stack.ready", name="s-a", model="s-a model"),
    ]


def test_without_wait_only_the_last_group_is_not_waited_for(site: Site) -> None:
    carry_out(two(stack_of(TWO)), site, ChangeOptions(wait=False))
    assert [event for event in site.events if event[0] == "wait"] == [
        ("wait", GATEWAY),
        ("wait", "s-b"),
    ]


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


def replaced(stack: StackFile) -> tuple[StackRecord, tuple[str, ...]]:
    record = StackRecord(
        "s", "/stacks/s.yaml", {GATEWAY: "old", "s-a": "old"}, {GATEWAY: "", "s-a": "a"}
    )
    return record, (GATEWAY, "s-a")


def test_a_new_version_is_routed_to_when_it_answers_and_then_the_old_one_ends(site: Site) -> None:
    stack = stack_of(TWO)
    before, alive = replaced(stack)
    services = (service(stack, "s-a.v2", "a"), service(stack, "s-b", "b"))
    steps = (
        ChangeStep(("a",), starts=("s-a.v2",), ends_after=("s-a",)),
        ChangeStep(("b",), starts=("s-b",)),
    )
    case = changes(stack, services, steps, before=before, alive=alive)
    done = carry_out(case, site, ChangeOptions(drain=7))
    assert done == ChangedStack(("s-a.v2", "s-b"), ("s-a",), "renewed")
    # until the end the record has the gateway that was there before
    new = stack_record.gateway_hash(stack)
    assert site.hashes == ["old", "old", new]
    models = ("", "a", "b")
    # the new version's own alias is routed when the old one has ended
    assert site.events == [
        ("record", (GATEWAY, "s-a.v2", "s-b", "s-a"), (*models, "a")),
        ("renew", GATEWAY, 9000, {"a": ("s-a",), "x": ("s-a",), "b": ("s-b",)}),
        ("start", "s-a.v2", "1003"),
        ("wait", "s-a.v2"),
        (
            "renew",
            GATEWAY,
            9000,
            {"a": ("s-a", "s-a.v2"), "x": ("s-a", "s-a.v2"), "b": ("s-b",)},
        ),
        (
            "renew",
            GATEWAY,
            9000,
            {"a": ("s-a.v2",), "x": ("s-a.v2",), "y": ("s-a.v2",), "b": ("s-b",)},
        ),
        ("end", 7, "s-a"),
        ("record", (GATEWAY, "s-a.v2", "s-b"), models),
        ("start", "s-b", "1002"),
        ("wait", "s-b"),
        ("record", (GATEWAY, "s-a.v2", "s-b"), models),
    ]


def test_an_old_engine_ends_first_where_the_new_one_needs_its_cards(site: Site) -> None:
    stack = stack_of(ONE)
    before, alive = replaced(stack)
    step = ChangeStep(("a",), ends_first=("s-a",), starts=("s-a.v2",))
    case = changes(stack, (service(stack, "s-a.v2", "a"),), (step,), before=before, alive=alive)
    carry_out(case, site, ChangeOptions())
    assert site.events[1:-1] == [
        ("renew", GATEWAY, 9000, {"a": ("s-a",)}),
        ("renew", GATEWAY, 9000, {"a": ("s-a.v2",)}),
        ("end", 30.0, "s-a"),
        ("record", (GATEWAY, "s-a.v2"), ("", "a")),
        ("start", "s-a.v2", "1003"),
        ("wait", "s-a.v2"),
    ]


def test_an_old_replica_is_routed_to_by_the_address_that_it_has(site: Site) -> None:
    stack = stack_of(ONE)
    before, alive = replaced(stack)
    case = changes(stack, (service(stack, "s-a.v2", "a"),), (), before=before, alive=alive)
    change = stack_change._Change(case, Silent(), ChangeOptions())
    assert change._backends() == (
        Backend("a", (GatewayReplica("http://127.0.0.1:1001", "s-a"),), (), "least-load"),
    )


def test_a_gateway_that_moves_is_started_again_and_engines_stay(site: Site) -> None:
    stack = stack_of(ONE.replace("9000", "9001"))
    before = StackRecord("s", "", {GATEWAY: "old", "s-a": "h"}, {GATEWAY: "", "s-a": "a"})
    case = changes(
        stack,
        (service(stack, "s-a", "a", runs=True),),
        (),
        before=before,
        alive=(GATEWAY, "s-a"),
    )
    assert case.moved_from == "http://127.0.0.1:9000"
    assert case.interrupts
    done = carry_out(case, site, ChangeOptions())
    assert done == ChangedStack((GATEWAY,), (GATEWAY,), "moved")
    assert site.events == [
        ("record", (GATEWAY, "s-a"), ("", "a")),
        ("end", 30.0, GATEWAY),
        ("gateway", GATEWAY, 9001, {"a": ("s-a",)}),
        ("wait", GATEWAY),
        ("record", (GATEWAY, "s-a"), ("", "a")),
    ]


def test_what_a_file_dropped_and_does_not_run_is_forgotten(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[Any, ...]] = []
    monkeypatch.setattr(registry, "read", running)
    monkeypatch.setattr(
        stop,
        "end",
        lambda found, drain, reporter, *, forget: ended.append((found.name, drain, forget)),
    )
    before = StackRecord("s", "", {GATEWAY: "", "s-a": "", "gone": "", "old": ""}, {})
    final = StackRecord("s", "", {GATEWAY: "", "s-a": ""}, {})
    stack_change._forget_dropped(before, final, ["old"])
    assert ended == [("gone", 0, True)]


# --- waiting and ending --------------------------------------------------------------------------


def test_all_are_waited_for_before_a_failure_is_raised(site: Site) -> None:
    site.failing = {
        "s-a": LaunchError("services.failed", ExitCode.FAILED, name="s-a", why="first"),
        "s-b": LaunchError("services.failed", ExitCode.FAILED, name="s-b", why="second"),
    }
    with refused("services.failed", ExitCode.FAILED, name="s-a", why="first"):
        stack_change.wait_for(("s-a", "s-b", "c"), site)
    assert site.events == [("wait", "s-a"), ("wait", "s-b"), ("wait", "c")]
    assert site.lines == [
        text("stack.failed", name="s-a"),
        text("stack.failed", name="s-b"),
        text("stack.ready", name="c", model="c model"),
    ]


def test_a_service_without_a_model_is_ready_without_a_line(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "until_ready", lambda name: running(name))
    stack_change.wait_for((GATEWAY,), site)
    assert site.lines == []


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


def test_program_port_and_one_engine_of_each_new_model_are_checked(
    checked: list[tuple[Any, ...]],
) -> None:
    stack = stack_of(TWO.replace("balance: prefix", "replicas: 2"))
    services = (
        service(stack, "s-a", "a"),
        service(stack, "s-a.v2", "a"),
        service(stack, "s-b", "b", runs=True),
    )
    stack_change.check_startable(changes(stack, services, ()), no_doctor=True)
    assert checked == [("program",), ("port", "http://127.0.0.1:9000"), ("engine", "s-a", True)]
    checked.clear()
    # a gateway that stays has its port
    stays = changes(stack, services, (), alive=(GATEWAY,))
    stack_change.check_startable(stays, no_doctor=False)
    assert checked == [("program",), ("engine", "s-a", False)]


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


@pytest.mark.parametrize("no_doctor", [False, True])
def test_a_service_starts_where_its_plan_is_not_refused(
    no_doctor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[Any, ...]] = []

    def made(options: LaunchOptions, *, secret_file: bool = False) -> Any:
        done.append(("prepare", options.port, secret_file))
        return "prepared"

    def checked(*words: Any) -> Any:
        done.append(words)
        return SimpleNamespace(refuse=lambda **how: done.append(("refuse", how)))

    monkeypatch.setattr(prepare, "prepare", made)
    monkeypatch.setattr(prepare, "checked", checked)
    one = service(stack_of(ONE), "s-a", "a")
    stack_change._check_engine(one, no_doctor=no_doctor)
    assert done == [
        ("prepare", "1001", True),
        ("prepared", one.plan),
        ("refuse", {"no_doctor": no_doctor}),
    ]
