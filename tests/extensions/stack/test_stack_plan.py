"""The plan of a stack: cards and ports, what is kept, times, and lines of errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.services.state.registry import ServiceRecord
from gaudi_launch.extensions.stack import stack_plan
from gaudi_launch.extensions.stack.changes import ChangeStep, RunningEngine
from gaudi_launch.extensions.stack.stack_file import StackFile, parse_stack
from gaudi_launch.extensions.stack.stack_plan import Downtime, StackChanges, StackPlan, StackService
from gaudi_launch.extensions.stack.stack_record import StackRecord, engine_hash

pytestmark = pytest.mark.usefixtures("plain_english")

PATH = "/stacks/s.yaml"
HEAD = "schema: 1\nname: s\ngateway: {port: 9000}\nmodels:\n"
SMALL = "options: {cards: 1, max-num-seqs: 32, max-model-len: 2048}"
A = f"- {{name: a, model: Qwen/Qwen3-8B, {SMALL}}}\n"
B = f"- {{name: b, model: Qwen/Qwen3-8B, replicas: 2, {SMALL}}}\n"


def stack_of(models: str) -> StackFile:
    return parse_stack(HEAD + models, Path(PATH))


def engine(stack: StackFile, number: int, estimate: tuple[float, float] | None, **more: Any) -> Any:
    """Return a planned engine of a model, with the range of its warm-up."""
    model = stack.models[number]
    shown = None
    if estimate is not None:
        shown = SimpleNamespace(low_seconds=estimate[0], high_seconds=estimate[1])
    plan: Any = SimpleNamespace(
        estimate=shown,
        engine=SimpleNamespace(simulated=more.get("simulated", False)),
        placement=SimpleNamespace(modules=(1, 2)),
    )
    return StackService(f"s-{model.name}", model, LaunchOptions(), plan, False)


def record(
    name: str, *, alive: bool = True, modules: tuple[int, ...] = (), **state: Any
) -> ServiceRecord:
    return ServiceRecord(name, Path("/x"), {**state, "modules": list(modules)}, alive)


# --- times ---------------------------------------------------------------------------------------


def changes(
    stack: StackFile, steps: tuple[ChangeStep, ...], alive: Mapping[str, ServiceRecord]
) -> StackChanges:
    services = (engine(stack, 0, (10, 20)), engine(stack, 1, None))
    before = StackRecord("s", PATH, {}, {"s-a": "a", "s-b": "b", "s-gateway": ""})
    return StackChanges(StackPlan(stack, services, (), (), (), True), steps, before, alive)


def test_a_model_that_does_not_answer_is_named_with_its_time() -> None:
    stack = stack_of(A + B)
    steps = (ChangeStep(interrupted=("a",)), ChangeStep(interrupted=("b", "a")))
    assert changes(stack, steps, {}).downtimes == (
        Downtime("a", 10, 20, False),
        Downtime("b", 0, 0, False),
    )
    # a launch that was measured counts, with its load
    alive = {
        "s-a": record("s-a", engine_began=100.0, ready_at=150.0),
        "s-b": record("s-b", engine_began=100.0),
    }
    found = changes(stack, steps, alive)
    assert found.downtimes == (Downtime("a", 10, 50, True), Downtime("b", 0, 0, False))
    assert (found.interrupts, found.moved_from) == (True, "")
    assert not changes(stack, (ChangeStep(models=("a",)),), alive).interrupts


# --- engines that run and engines to start -------------------------------------------------------


def test_each_running_engine_is_kept_replaced_or_gone() -> None:
    stack = stack_of(A + B)
    same = {model.name: engine_hash(model) for model in stack.models}
    before = StackRecord(
        "s",
        PATH,
        {"s-gateway": "g", "s-a": same["a"], "s-b": "other", "s-b-3": same["b"], "s-c": "c"},
        {"s-gateway": "", "s-a": "a", "s-b": "b", "s-b-3": "b", "s-c": "c"},
    )
    alive = {name: record(name, modules=(at,)) for at, name in enumerate(before.services)}
    names = {"a": ("s-a",), "b": ("s-b.v2", "s-b-2")}
    assert stack_plan._running(stack, before, alive, names) == (
        RunningEngine("s-a", "a", (1,), "kept"),
        RunningEngine("s-b", "b", (2,), "old"),
        RunningEngine("s-b-3", "b", (3,), "gone"),
        RunningEngine("s-c", "c", (4,), "gone"),
    )
    assert stack_plan._running(stack, None, alive, names) == ()


def test_an_error_gets_its_line_once() -> None:
    stack = stack_of(A)
    error = LaunchError("services.drain", ExitCode.MACHINE, detail="more", found=1)
    placed = stack_plan.error_at(stack, 7, error)
    assert (placed.id, placed.exit_code, placed.detail, dict(placed.text.values)) == (
        "stack.at_line",
        ExitCode.MACHINE,
        "more",
        {"path": PATH, "line": 7, "why": str(error)},
    )
    assert stack_plan.error_at(stack, 9, placed) is placed
