"""The steps of a change, of services without processes: order, routes, records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.base.messages import text
from gaudi_launch.core.launch.serve import ServeMode
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.services.state.registry import ServiceRecord
from gaudi_launch.extensions.stack import change as stack_change
from gaudi_launch.extensions.stack import stack_record
from gaudi_launch.extensions.stack.change import ChangedStack, ChangeOptions, carry_out
from gaudi_launch.extensions.stack.changes import ChangeStep
from gaudi_launch.extensions.stack.gateway import gateway_job
from gaudi_launch.extensions.stack.gateway import gateway_job as gateway_cases
from gaudi_launch.extensions.stack.gateway import running as running_gateway
from gaudi_launch.extensions.stack.gateway.gateway_settings import Backend
from gaudi_launch.extensions.stack.stack_file import StackFile, parse_stack
from gaudi_launch.extensions.stack.stack_plan import StackChanges, StackPlan, StackService
from gaudi_launch.extensions.stack.stack_record import StackRecord
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
        self.modes: dict[str, ServeMode] = {}
        self.hashes: list[str] = []

    def start(self, options: LaunchOptions, how: ServeMode, reporter: Any) -> None:
        name = str(how.name)
        reporter.say(f"{name} begins")
        self.modes[name] = how
        self.events.append(("start", name, options.port))

    def until_ready(self, name: str, timeout: float | None = None) -> ServiceRecord:
        self.events.append(("wait", name))
        return running(name, served=f"{name} model")

    def end_all(self, services: Sequence[ServiceRecord], drain: float, reporter: Any) -> Any:
        # the wait for requests takes a moment of the drain
        self.events.append(("end", math.ceil(drain), *(each.name for each in services)))
        return tuple(SimpleNamespace(service=each) for each in services)

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
        name: tuple(backend.replicas.values()) for backend in backends for name in backend.names
    }


def running(name: str, **state: Any) -> ServiceRecord:
    url = f"http://127.0.0.1:{PORTS.get(name, 9000)}"
    return ServiceRecord(name, Path("/services") / name, {"url": url, **state}, alive=True)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site()
    for module, name, stand_in in (
        (stack_change, "start", made.start),
        (stack_change, "until_ready", made.until_ready),
        (stack_change, "end_all", made.end_all),
        (gateway_cases, "start", made.begin_gateway),
        (gateway_cases, "renew", made.renew),
        (stack_change, "write_record", made.write),
        # every port is free, also one that only root may open
        (stack_change, "free_port", lambda host, after, root: after + 1),
        (stack_change, "find", running),
        (running_gateway, "set_routed", lambda name, engines, *, routed: None),
        (running_gateway, "routed_engines", lambda name: {}),
        (gateway_job, "routed_names", lambda name: {"a": ("x", "z")}),
    ):
        monkeypatch.setattr(module, name, stand_in)
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
    return StackService(name, found, LaunchOptions(port=PORTS[name]), plan, runs)


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
        ("start", "s-b", 1002),
        ("wait", "s-b"),
        ("start", "s-a", 1001),
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
    site.events.clear()
    carry_out(two(stack_of(TWO)), site, ChangeOptions(wait=False))
    waited = [event for event in site.events if event[0] == "wait"]
    assert waited == [("wait", GATEWAY), ("wait", "s-b")]


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
        ("start", "s-a.v2", 1003),
        ("wait", "s-a.v2"),
        ("renew", GATEWAY, 9000, {"a": ("s-a", "s-a.v2"), "x": ("s-a", "s-a.v2"), "b": ("s-b",)}),
        (
            "renew",
            GATEWAY,
            9000,
            {"a": ("s-a.v2",), "x": ("s-a.v2",), "y": ("s-a.v2",), "b": ("s-b",)},
        ),
        ("end", 7, "s-a"),
        ("record", (GATEWAY, "s-a.v2", "s-b"), models),
        ("start", "s-b", 1002),
        ("wait", "s-b"),
        ("record", (GATEWAY, "s-a.v2", "s-b"), models),
    ]


def test_a_gateway_that_moves_is_started_again_and_engines_stay(site: Site) -> None:
    stack = stack_of(ONE.replace("9000", "9001"))
    before = StackRecord("s", "", {GATEWAY: "old", "s-a": "h"}, {GATEWAY: "", "s-a": "a"})
    case = changes(
        stack, (service(stack, "s-a", "a", runs=True),), (), before=before, alive=(GATEWAY, "s-a")
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
