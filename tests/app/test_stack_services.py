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
    StackTarget,
    StartedStack,
    apply,
    down,
    ps,
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


def test_a_stack_that_runs_is_waited_for(site: Site, path: Path) -> None:
    started(path, site)
    reporter: Any = site
    stack = parse_stack(CONTENT, path)
    assert up(path, reporter) == StartedStack(stack, ())
    assert up(path, reporter, wait=False) == StartedStack(stack, ())
    assert site.done == [("wait", *NAMES)]


def test_what_does_not_run_is_checked_and_started(site: Site, path: Path) -> None:
    started(path, site, alive=("s-gateway", "s-b"))
    found = up(path, Silent(), no_doctor=True, wait=False)
    assert found.started == ("s-a", "s-a-2")
    assert site.done == [
        ("check", True),
        ("carry out", ChangeOptions(no_doctor=True, wait=False)),
    ]


def test_something_else_that_runs_is_never_changed_by_up(site: Site, path: Path) -> None:
    started(path, site)
    path.write_text(CONTENT.replace("org/b", "org/c"), encoding="utf-8")
    with refused("stack.changed", ExitCode.USAGE, path=str(path), name="s", services="s-b"):
        up(path, Silent())
    assert site.done == []
    # one that ended may be started with other settings
    site.alive["s-b"] = False
    up(path, Silent())
    assert [row[0] for row in site.done] == ["check", "carry out"]


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


def test_a_file_that_did_not_change_changes_nothing(site: Site, path: Path) -> None:
    started(path, site)
    stack = parse_stack(CONTENT, path)
    found = apply(path, Silent(), ChangeOptions(), lambda changes: pytest.fail("a question"))
    assert found == AppliedStack(stack, ChangedStack())
    assert site.done == [("wait", *NAMES)]


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


def test_the_gateway_ends_before_the_engines_and_the_record_goes(site: Site, path: Path) -> None:
    started(path, site)
    del site.alive["s-a-2"]
    assert down("s", Silent(), 4) == EndedStack("s", ("s-gateway", "s-a", "s-b"))  # type: ignore[arg-type]
    assert site.done[0] == ("routed", "s-gateway", ("s-a", "s-b"), False)
    assert [(row[0], *row[2:]) for row in site.done[1:]] == [
        ("end", "s-gateway"),
        ("end", "s-a", "s-b"),
    ]
    assert all(3.5 < row[1] <= 4 for row in site.done[1:])
    assert (read_record("s"), ps()) == (None, ())


def test_a_file_of_no_started_stack_has_nothing_to_end(site: Site, path: Path) -> None:
    assert down(str(path), Silent()) == EndedStack("s", ())
    with refused("stack.unknown", ExitCode.USAGE, found="other", known="-"):
        down("other", Silent())
    with refused("services.drain", ExitCode.USAGE, found=86401):
        down("s", Silent(), 86401)
    assert site.done == []


def test_a_stack_is_found_by_its_name_or_its_file(
    site: Site, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = started(path, site, alive=("s-a",))
    del site.alive["s-b"]
    [state] = ps()
    assert (state.record, [each.name for each in state.services]) == (
        record,
        ["s-gateway", "s-a", "s-a-2"],
    )
    monkeypatch.chdir(path.parent)
    assert ps("s") == ps(str(path)) == ps("s.yaml") == ps()
    # also where it was changed since
    path.write_text("no stack")
    assert ps("./s.yaml") == ps()
    path.unlink()
    assert ps(str(path)) == ps()
    with refused("stack.unknown", ExitCode.USAGE, found="t", known="s"):
        ps("t")


# --- one model -----------------------------------------------------------------------------------


def test_a_target_is_a_model_an_alias_a_service_or_the_gateway(site: Site, path: Path) -> None:
    record = started(path, site)
    everything = target()
    assert everything == StackTarget(record, "s-gateway", ("s-a", "s-a-2", "s-b"))
    assert everything.names == NAMES
    assert target("", "s") == target("", str(path)) == everything
    gateway = StackTarget(record, "s-gateway", ())
    assert target("gateway") == target("s-gateway") == gateway
    assert gateway.names == ("s-gateway",)
    model = StackTarget(record, "", ("s-a", "s-a-2"))
    assert target("a") == target("x") == model
    assert model.names == ("s-a", "s-a-2")
    assert target("s-b") == target("b") == StackTarget(record, "", ("s-b",))
    with refused("stack.unknown_model", ExitCode.USAGE, found="z", name="s", known="a, b"):
        target("z")


def test_several_stacks_need_a_name(site: Site, path: Path) -> None:
    with refused("stack.none_started", ExitCode.USAGE):
        target("a")
    started(path, site)
    with held("t"):
        write_record(StackRecord("t", "/t.yaml", {"t-gateway": ""}, {"t-gateway": ""}))
    with refused("stack.which", ExitCode.USAGE, known="s, t"):
        target("a")
    assert target("a", "s").engines == ("s-a", "s-a-2")
    assert target("", "t").gateway == "t-gateway"


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


def test_an_engine_that_does_not_come_back_gets_requests_again(
    site: Site, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(path, site)

    def fail(names: Sequence[str], reporter: Any) -> None:
        raise LaunchError("services.drain", ExitCode.FAILED, found=1)

    monkeypatch.setattr(cases, "wait_for", fail)
    with refused("services.drain", ExitCode.FAILED, found=1):
        restart(target("b"), 5, Silent())
    assert site.done[-1] == ("routed", "s-gateway", ("s-b",), True)


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


def test_a_gateway_that_serves_something_else_is_given_what_was_applied(
    site: Site, path: Path
) -> None:
    started(path, site)
    site.current = False
    stack = parse_stack(CONTENT, path)
    assert up(path, Silent()) == StartedStack(stack, (), "renewed")
    apply(path, Silent(), ChangeOptions(), lambda changes: pytest.fail("a question"))
    assert [row[0] for row in site.done] == ["check", "carry out"] * 2
    [state] = ps()
    assert (state.current, state.routed) == (False, {"s-a": RoutedEngine("UP", 0)})
