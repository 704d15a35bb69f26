"""up, apply, down, ps, targets and restarts of a stack, with services that are no processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import stack as cases
from gaudi_launch.app import stop, waiting
from gaudi_launch.app.report import Silent
from gaudi_launch.app.stack import (
    AppliedStack,
    EndedStack,
    apply,
    down,
    restart,
    target,
    up,
)
from gaudi_launch.app.stack_change import ChangedStack, ChangeOptions
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.gateway import gateway_job, running
from gaudi_launch.gateway.running import RoutedEngine
from gaudi_launch.messages import text
from gaudi_launch.services.state import registry
from gaudi_launch.services.state.registry import ServiceRecord
from gaudi_launch.stack.stack_file import parse_stack
from gaudi_launch.stack.stack_record import (
    StackRecord,
    held,
    read_record,
    record_of,
    write_record,
)
from tests.support.refusals import refused
from tests.support.reporters import Lines

pytestmark = pytest.mark.usefixtures("plain_english")

CONTENT = """\
schema: 1
name: s
gateway: {port: 9000}
models:
- {name: a, model: org/a, aliases: [x], replicas: 2}
- {name: b, model: org/b}
"""
ENGINES = {"a": ("s-a", "s-a-2"), "b": ("s-b",)}
NAMES = ("s-gateway", "s-a", "s-a-2", "s-b")


class Site(Lines):
    """Services that exist, which of them run, and what is done to them."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[str, bool] = {}
        self.done: list[tuple[Any, ...]] = []
        self.interrupts = False
        self.current = True
        self.requests: list[int] = []
        self.fails: BaseException | None = None

    def read(self, name: str) -> ServiceRecord | None:
        if name not in self.alive:
            return None
        state = {"url": "http://127.0.0.1:9000"}
        return ServiceRecord(name, Path("/services") / name, state, self.alive[name])

    def find(self, name: str) -> ServiceRecord:
        found = self.read(name)
        assert found is not None
        return found

    def carry_out(self, changes: Any, reporter: Any, options: ChangeOptions) -> ChangedStack:
        self.done.append(("carry out", options))
        if self.fails is not None:
            raise self.fails
        return ChangedStack(("s-a",), (), "renewed")

    def wait_for(self, names: Sequence[str], reporter: Any) -> None:
        self.done.append(("wait", *names))

    def routed_engines(self, name: str) -> dict[str, RoutedEngine]:
        count = self.requests.pop(0) if self.requests else 0
        return {"s-a": RoutedEngine("UP", count)}

    def end_all(self, services: Sequence[ServiceRecord], drain: float, reporter: Any) -> Any:
        self.done.append(("end", drain, *(each.name for each in services)))
        return tuple(each.name for each in services)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site()
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.setattr(registry, "read", made.read)
    monkeypatch.setattr(registry, "find", made.find)
    monkeypatch.setattr(cases, "carry_out", made.carry_out)
    monkeypatch.setattr(cases, "wait_for", made.wait_for)
    monkeypatch.setattr(cases, "end_all", made.end_all)
    monkeypatch.setattr(
        cases, "changes_of", lambda stack: SimpleNamespace(interrupts=made.interrupts, stack=stack)
    )
    monkeypatch.setattr(
        cases,
        "check_startable",
        lambda changes, *, no_doctor: made.done.append(("check", no_doctor)),
    )
    monkeypatch.setattr(
        running,
        "set_routed",
        lambda name, engines, *, routed: made.done.append(("routed", name, (*engines,), routed)),
    )
    monkeypatch.setattr(running, "routed_engines", made.routed_engines)
    monkeypatch.setattr(gateway_job, "is_current", lambda name: made.current)
    monkeypatch.setattr(gateway_job, "routed_names", lambda name: {"a": ("x", "y")})
    monkeypatch.setattr(
        stop, "restart", lambda name, drain, reporter: made.done.append(("restart", name, drain))
    )
    monkeypatch.setattr(
        stop,
        "end",
        lambda found, drain, reporter, *, forget: made.done.append((found.name, drain, forget)),
    )
    monkeypatch.setattr(waiting, "until_ready", lambda name: pytest.fail("a wait"))
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "s.yaml"
    file.write_text(CONTENT, encoding="utf-8")
    return file


def started(path: Path, site: Site, *, alive: Sequence[str] = NAMES) -> StackRecord:
    """Record the stack of a file as started, of which these services run."""
    record = record_of(parse_stack(path.read_text(), path), ENGINES)
    with held("s"):
        write_record(record)
    site.alive = {name: name in alive for name in NAMES}
    return record


# --- up ------------------------------------------------------------------------------------------


def test_a_name_of_another_service_and_a_key_of_engines_are_refused(
    site: Site, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.alive = {"s-b": True}
    with refused("services.name_taken", ExitCode.USAGE, name="s-b"):
        up(path, Silent())
    monkeypatch.setenv("VLLM_API_KEY", "k")
    for work in (
        lambda: up(path, Silent()),
        lambda: apply(path, Silent(), ChangeOptions(), lambda changes: True),
    ):
        with refused("stack.api_key", ExitCode.USAGE):
            work()
    assert site.done == [] and read_record("s") is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), LaunchError("x", ExitCode.FAILED)])
def test_a_first_launch_that_fails_leaves_no_record(
    error: BaseException, site: Site, path: Path
) -> None:
    stack = parse_stack(CONTENT, path)
    record = record_of(stack, ENGINES)
    site.alive = {"s-gateway": True}
    with held("s"):
        write_record(record)
        with pytest.raises(type(error)), cases._forgotten_without_services(stack, None):
            raise error
        assert read_record("s") is None
        # an engine that was started stays, with its record
        write_record(record)
        site.alive["s-b"] = True
        with pytest.raises(type(error)), cases._forgotten_without_services(stack, None):
            raise error
        assert read_record("s") == record
        # one of an earlier start, too
        site.alive = {}
        with pytest.raises(type(error)), cases._forgotten_without_services(stack, record):
            raise error
        assert read_record("s") == record
    assert site.done == [("s-gateway", 0, True)]


# --- apply ---------------------------------------------------------------------------------------


def test_an_interruption_needs_consent(site: Site, path: Path) -> None:
    started(path, site, alive=("s-gateway",))
    stack = parse_stack(CONTENT, path)
    site.interrupts = True
    asked: list[Any] = []
    options = ChangeOptions(no_doctor=True, drain=3)
    found = apply(path, Silent(), options, lambda changes: bool(asked.append(changes)))  # type: ignore[func-returns-value]
    assert found == AppliedStack(stack, None)
    assert (len(asked), site.done) == (1, [("check", True)])
    agreed = apply(path, Silent(), options, lambda changes: True)
    assert agreed == AppliedStack(stack, ChangedStack(("s-a",), (), "renewed"))
    site.interrupts = False
    apply(path, Silent(), options, lambda changes: pytest.fail("a question"))
    assert site.done[1:] == [("check", True), ("carry out", options)] * 2
    with refused("services.drain", ExitCode.USAGE, found=-1):
        apply(path, Silent(), ChangeOptions(drain=-1), lambda changes: True)


# --- down and ps ---------------------------------------------------------------------------------


def test_a_file_of_no_started_stack_has_nothing_to_end(site: Site, path: Path) -> None:
    assert down(str(path), Silent()) == EndedStack("s", ())
    with refused("stack.unknown", ExitCode.USAGE, found="other", known="-"):
        down("other", Silent())
    with refused("services.drain", ExitCode.USAGE, found=86401):
        down("s", Silent(), 86401)
    assert site.done == []


# --- one model -----------------------------------------------------------------------------------


def test_engines_restart_one_by_one_without_new_requests(site: Site, path: Path) -> None:
    started(path, site)
    reporter: Any = site
    restart(target(), 5, reporter)
    steps: list[tuple[Any, ...]] = []
    for name in ("s-a", "s-a-2", "s-b"):
        steps += [
            ("routed", "s-gateway", (name,), False),
            ("restart", name),
            ("wait", name),
            ("routed", "s-gateway", (name,), True),
        ]
    # the time that the requests took is not waited for again
    done = [row[:2] if row[0] == "restart" else row for row in site.done]
    assert done == [*steps, ("restart", "s-gateway"), ("wait", "s-gateway")]
    assert [4.5 < row[2] <= 5 for row in site.done if row[0] == "restart"] == [True] * 4
    assert site.lines == [text("stack.gateway_ready", url="http://127.0.0.1:9000")]
    site.done.clear()
    with refused("services.drain", ExitCode.USAGE, found=-1):
        restart(target("b"), -1, reporter)


def test_requests_of_an_engine_are_waited_for_and_those_that_are_cut_are_reported(
    site: Site, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(path, site)
    reporter: Any = site
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    site.requests = [2, 1, 0]
    restart(target("s-a"), 5, reporter)
    assert site.lines == [text("services.stop_drain", name="s-a", count=2)]
    site.lines.clear()
    site.requests = [3]
    restart(target("s-a"), 0, reporter)
    assert site.lines == [text("stack.cut", names="s-a", count=3)]
