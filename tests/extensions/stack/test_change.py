"""The steps of a change, of services without processes: order, routes, records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.launch.serve import ServeMode
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.services.state.registry import ServiceRecord
from gaudi_launch.extensions.stack import change as stack_change
from gaudi_launch.extensions.stack import stack_record
from gaudi_launch.extensions.stack.change import ChangedStack, ChangeOptions, carry_out
from gaudi_launch.extensions.stack.changes import ChangeStep
from gaudi_launch.extensions.stack.gateway import gateway_job
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
PORTS = {"s-a": 1001, "s-b": 1002, "s-a.v2": 1003}


class Site(Lines):
    """Services without processes: every change of them is an event, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[Any, ...]] = []
        self.hashes: list[str] = []

    def start(self, options: LaunchOptions, how: ServeMode, reporter: Any) -> None:
        name = str(how.name)
        reporter.say(f"{name} begins")
        self.events.append(("start", name, options.port, how.restart))

    def until_ready(self, name: str, timeout: float | None = None) -> ServiceRecord:
        self.events.append(("wait", name))
        return running(name, served=f"{name} model")

    def end_all(self, services: Sequence[ServiceRecord], drain: float, reporter: Any) -> Any:
        # the wait for requests takes a moment of the drain
        self.events.append(("end", math.ceil(drain), *(each.name for each in services)))
        return tuple(SimpleNamespace(service=each) for each in services)

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
        (gateway_job, "renew", made.renew),
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


def service(stack: StackFile, name: str, model: str) -> StackService:
    [found] = [each for each in stack.models if each.name == model]
    plan: Any = SimpleNamespace(
        engine=SimpleNamespace(simulated=False),
        placement=SimpleNamespace(modules=()),
        estimate=None,
    )
    return StackService(name, found, LaunchOptions(port=PORTS[name]), plan, False)


def test_a_new_version_is_routed_to_when_it_answers_and_then_the_old_one_ends(site: Site) -> None:
    stack = parse_stack(TWO, Path("/stacks/s.yaml"))
    services = (service(stack, "s-a.v2", "a"), service(stack, "s-b", "b"))
    before = StackRecord(
        "s", "/stacks/s.yaml", {GATEWAY: "old", "s-a": "old"}, {GATEWAY: "", "s-a": "a"}
    )
    planned = StackPlan(stack, services, (), (), (), gateway_runs=True)
    alive = {name: running(name) for name in before.services}
    steps = (
        ChangeStep(("a",), starts=("s-a.v2",), ends_after=("s-a",)),
        ChangeStep(("b",), starts=("s-b",)),
    )
    done = carry_out(
        StackChanges(planned, steps, before, alive), site, ChangeOptions(drain=7, wait=False)
    )
    assert done == ChangedStack(("s-a.v2", "s-b"), ("s-a",), "renewed")
    # until the end the record has the gateway that was there before
    new = stack_record.gateway_hash(stack)
    assert site.hashes == ["old", "old", new]
    models = ("", "a", "b")
    # the new version's own alias is routed when the old one has ended
    assert site.events == [
        ("record", (GATEWAY, "s-a.v2", "s-b", "s-a"), (*models, "a")),
        ("renew", GATEWAY, 9000, {"a": ("s-a",), "x": ("s-a",), "b": ("s-b",)}),
        ("start", "s-a.v2", 1003, "no"),
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
        # the last one is not waited for
        ("start", "s-b", 1002, "on-failure"),
        ("record", (GATEWAY, "s-a.v2", "s-b"), models),
    ]
