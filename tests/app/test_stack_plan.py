"""The plan of a stack: cards and ports, what is kept, times, and lines of errors."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import stack_plan
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.stack_plan import Downtime, StackChanges, StackPlan, StackService
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.hardware import Host
from gaudi_launch.host.simulated import make
from gaudi_launch.services.state import registry
from gaudi_launch.services.state.registry import ServiceRecord
from gaudi_launch.stack.changes import ChangeCase, ChangeStep, NewEngine, RunningEngine
from gaudi_launch.stack.division import CardShare
from gaudi_launch.stack.stack_file import StackFile, parse_stack
from gaudi_launch.stack.stack_record import StackRecord, engine_hash
from tests.support.refusals import refused

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


def test_models_of_a_group_start_together_and_groups_one_after_the_other() -> None:
    stack = stack_of(A + B)
    services = (engine(stack, 0, (10, 20)), engine(stack, 0, (5, 40)), engine(stack, 1, (1, 2)))

    def seconds(*groups: tuple[str, ...], found: tuple[Any, ...] = services) -> object:
        return StackPlan(stack, found, groups, (), (), False).start_seconds

    assert seconds(("a",), ("b",)) == (11, 42)
    assert seconds(("a", "b")) == (10, 40)
    # nothing is known of one group: the others count
    assert seconds(("b",), ("a",), found=(engine(stack, 1, (3, 4)),)) == (3, 4)
    assert seconds(("a",), found=(engine(stack, 0, None),)) is None


def test_simulated_cards_are_none_of_this_machine() -> None:
    stack = stack_of(A)
    assert engine(stack, 0, None).modules == (1, 2)
    assert engine(stack, 0, None, simulated=True).modules == ()


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


def test_a_gateway_at_another_address_interrupts() -> None:
    stack = stack_of(A + B)
    here = {"s-gateway": record("s-gateway", url=stack.gateway.url)}
    assert (changes(stack, (), here).moved_from, changes(stack, (), here).interrupts) == ("", False)
    other = {"s-gateway": record("s-gateway", url="http://127.0.0.1:1")}
    found = changes(stack, (), other)
    assert (found.moved_from, found.interrupts) == ("http://127.0.0.1:1", True)


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


def sized(stack: StackFile, number: int, cards: int, modules: tuple[int, ...] | None = None) -> Any:
    prepared: Any = SimpleNamespace(host=make("hls2"))
    return stack_plan._Sized(stack.models[number], LaunchOptions(), prepared, cards, modules)


def test_only_engines_that_do_not_run_are_started() -> None:
    stack = stack_of(A + B)
    models = {"a": sized(stack, 0, 2, (3, 4)), "b": sized(stack, 1, 1)}
    names = {"a": ("s-a",), "b": ("s-b", "s-b-2")}
    assert stack_plan._new_engines(models, names, {"s-b"}) == (
        NewEngine("s-a", "a", CardShare(2, (3, 4))),
        NewEngine("s-b-2", "b", CardShare(1, None)),
    )


def test_the_machine_is_that_of_a_model_with_cards() -> None:
    stack = stack_of(A + B)
    assert stack_plan._machine_of([sized(stack, 0, 0), sized(stack, 1, 1)]) == make("hls2")
    assert stack_plan._machine_of([sized(stack, 0, 0)]) == Host()


def test_a_module_of_two_models_is_refused() -> None:
    stack = stack_of(A + B)
    models = {"a": sized(stack, 0, 2, (0, 1)), "b": sized(stack, 1, 2, (1, 2))}
    with refused(
        "stack.same_module", ExitCode.USAGE, path=PATH, line=6, name="b", module=1, first=5
    ):
        stack_plan._check_modules(stack, models)
    stack_plan._check_modules(stack, {**models, "b": sized(stack, 1, 2, (2, 3))})


def test_the_first_model_without_cards_is_named() -> None:
    stack = stack_of(A + B)
    case = ChangeCase(make("hls2+busy=0,1,2,3"), (), (RunningEngine("s-a", "a", (3,)),), ())
    # cards of this stack count as free
    assert stack_plan._free_of(case) == (3, 4, 5, 6, 7)
    stack_plan._check_enough(stack, {"a": sized(stack, 0, 1), "b": sized(stack, 1, 2)}, case)
    with refused(
        "stack.too_few",
        ExitCode.MACHINE,
        path=PATH,
        line=6,
        name="b",
        cards=6,
        count=5,
        free="3,4,5,6,7",
    ):
        stack_plan._check_enough(stack, {"a": sized(stack, 0, 2), "b": sized(stack, 1, 2)}, case)
    full = ChangeCase(make("hls2+busy=0,1,2,3,4,5,6,7"), (), (), ())
    with pytest.raises(LaunchError) as raised:
        stack_plan._check_enough(stack, {"a": sized(stack, 0, 1)}, full)
    assert (raised.value.text.values["line"], raised.value.text.values["free"]) == (5, "-")


def test_ports_follow_each_other_and_leave_the_gateways_out() -> None:
    with socket.socket() as held:
        with suppress(OSError):  # another process has it
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", 30101))
            held.listen()
        elsewhere = stack_plan._ports(("x", "y", "z"), 30102, here=False)
        first = stack_plan._ports(("x",), 8000, here=True)["x"]
    assert elsewhere == {"x": 30101, "y": 30103, "z": 30104}, "not the ports of this machine"
    assert first > 30101


def test_services_of_file_and_record_that_run_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def read(name: str) -> ServiceRecord | None:
        asked.append(name)
        if name == "s-b":
            return None
        return record(name, alive=name != "s-b-2", modules=(len(asked),))

    monkeypatch.setattr(registry, "read", read)
    stack = stack_of(A + B)
    before = StackRecord("s", PATH, {"s-gateway": "", "s-a.v2": "", "s-b-2": ""}, {})
    found = stack_plan.alive_services(stack, before)
    assert asked == ["s-gateway", "s-a", "s-b", "s-b-2", "s-a.v2"]
    assert list(found) == ["s-gateway", "s-a", "s-a.v2"]


def test_an_error_gets_its_line_once() -> None:
    stack = stack_of(A)
    error = LaunchError("services.drain", ExitCode.MACHINE, detail="more", found=1)
    placed = stack_plan.at_line(stack, 7, error)
    assert (placed.id, placed.exit_code, placed.detail, dict(placed.text.values)) == (
        "stack.at_line",
        ExitCode.MACHINE,
        "more",
        {"path": PATH, "line": 7, "why": str(error)},
    )
    assert stack_plan.at_line(stack, 9, placed) is placed


# --- options of a model --------------------------------------------------------------------------


def test_a_models_entries_are_options_of_serve() -> None:
    stack = stack_of(
        "- name: a\n  model: ./Small\n  aliases: [x, y]\n"
        "  options: {cards: 2, engine-arguments: [--seed, '1']}\n"
        "- {name: b, model: org/b, options: {dtype: fp8}}\n"
    )
    one, other = (stack_plan.options_of(stack, model, "simulated:hls2") for model in stack.models)
    assert one == LaunchOptions(
        model="/stacks/Small",
        host="127.0.0.1",
        machine="simulated:hls2",
        cards="2",
        extra=("--served-model-name", "a", "x", "y", "--seed", "1"),
    )
    assert other == LaunchOptions(
        model="org/b", host="127.0.0.1", machine="simulated:hls2", dtype="fp8", served_name="b"
    )


def test_a_secret_is_no_option_of_a_stack() -> None:
    stack = stack_of("- {name: a, model: m, options: {engine-arguments: [--api-key, k]}}\n")
    with pytest.raises(LaunchError) as raised:
        stack_plan.options_of(stack, stack.models[0], None)
    assert raised.value.exit_code is ExitCode.USAGE


def test_named_modules_are_for_one_replica() -> None:
    stack = stack_of("- {name: a, model: m, replicas: 2, options: {modules: '0,1'}}\n")
    error = LaunchError("stack.modules_replicas", ExitCode.USAGE, name="a", count=2)
    with refused("stack.at_line", ExitCode.USAGE, path=PATH, line=5, why=str(error)):
        stack_plan.sized_model(stack, stack.models[0], "simulated:hls2")


@pytest.mark.parametrize(
    ("model", "cards"),
    [("Qwen/Qwen3-8B", 1), ("Qwen/Qwen2-72B-Instruct", 2)],
)
def test_a_model_gets_the_fewest_cards_that_fit_it(model: str, cards: int) -> None:
    stack = stack_of(f"- {{name: a, model: {model}, options: {{max-model-len: 2048}}}}\n")
    found = stack_plan.sized_model(stack, stack.models[0], "simulated:hls2+busy=0,1,2,3,4,5,6")
    # how many it needs does not depend on what is free now
    assert (found.cards, found.options.cards, found.modules) == (cards, str(cards), None)


def test_a_model_that_fits_no_number_names_its_line() -> None:
    stack = stack_of(
        "- {name: a, model: meta-llama/Llama-3.1-405B-Instruct, options: {dtype: bf16}}\n"
    )
    with pytest.raises(LaunchError) as raised:
        stack_plan.sized_model(stack, stack.models[0], "simulated:gaudi2e-4")
    values = raised.value.text.values
    assert (raised.value.id, values["path"], values["line"]) == ("stack.at_line", PATH, 5)


# --- a plan --------------------------------------------------------------------------------------


def test_a_machine_is_divided_among_the_models(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(HEAD + B + A.replace("cards: 1,", "modules: '6,7',"), encoding="utf-8")
    found = stack_plan.plan(path, "simulated:hls2+busy=0")
    rows = [
        (each.name, each.model.name, each.modules, each.options.modules, each.running)
        for each in found.services
    ]
    assert rows == [
        ("s-b", "b", (1,), "1", False),
        ("s-b-2", "b", (2,), "2", False),
        ("s-a", "a", (6, 7), "6,7", False),
    ]
    ports = [int(each.options.port or 0) for each in found.services]
    assert ports == sorted(set(ports)) and ports[0] > 30100
    urls = [each.plan.url for each in found.services]
    assert urls == [f"http://127.0.0.1:{port}" for port in ports]
    assert (found.groups, found.cards, found.free, found.gateway_runs) == (
        (("b", "a"),),
        tuple(range(8)),
        (3, 4, 5),
        False,
    )


def test_an_engine_that_runs_stays_on_its_cards_and_its_port(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from gaudi_launch.host.simulated import write_tree
    from gaudi_launch.stack.stack_record import held, record_of, write_record

    write_tree("hls2+busy=5", tmp_path / "machine")
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "machine"))
    monkeypatch.setenv("PATH", str(tmp_path / "machine" / "bin"))
    stack = stack_of(B)
    with held("s"):
        write_record(record_of(stack, {"b": ("s-b", "s-b-2")}))
    running = record("s-b", modules=(5,), url="http://127.0.0.1:30777")
    monkeypatch.setattr(registry, "read", lambda name: running if name == "s-b" else None)
    found = stack_plan.changes_of(stack)
    rows = [
        (each.name, each.modules, each.options.port, each.running)
        for each in found.planned.services
    ]
    assert rows[0] == ("s-b", (5,), "30777", True)
    assert rows[1][0] == "s-b-2" and rows[1][1] != (5,) and not rows[1][3]
    assert found.steps == (ChangeStep(("b",), starts=("s-b-2",)),)
    assert 5 not in found.planned.free and len(found.planned.free) == 6
