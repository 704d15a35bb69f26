"""warmup: goals in numbers, what is assumed, which list is judged."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import warmup
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.warmup import WarmupRequest, ask_of, read
from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.buckets.optimiser.bucket_planner import BucketGoal
from gaudi_launch.buckets.strategies import Judged, arguments_of
from gaudi_launch.errors import ExitCode
from gaudi_launch.messages import message
from gaudi_launch.performance import learned
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

NOTHING = WarmupRequest(0, "")
FORK = "vllm-fork@1.21"
OURS, THEIRS = Buckets([[1, 128, 0]], [[1, 1, 128]]), Buckets([[1, 256, 0]], [])


def row(name: str, buckets: Buckets | None = OURS) -> Judged:
    return Judged(name, 1, 1, buckets, None, None)


def case(**changes: Any) -> Any:
    """Return the inputs of a plan; ``used`` and ``reduce`` are of its engine."""
    request = SimpleNamespace(reduce=changes.pop("reduce", None), tuning="auto", python=None)
    asked = SimpleNamespace(
        request=request,
        used=changes.pop("used", None),
        limits="limits",
    )
    base: dict[str, Any] = {"workload": None, "goal": NOTHING}
    return warmup.WarmupCase(
        asked=asked,  # type: ignore[arg-type]
        model=None,  # type: ignore[arg-type]
        cost="cost",  # type: ignore[arg-type]
        assumptions=[],
        **{**base, **changes},
    )


def delivered(*rows: Judged, **more: Any) -> Any:
    return warmup_delivered(comparison=list(rows), **more)


def warmup_delivered(**more: Any) -> Any:
    from gaudi_launch.buckets.bucket_file import Delivered

    aim = SimpleNamespace(expectation=SimpleNamespace(shapes="shapes", distance=None))
    base: dict[str, Any] = {
        "settings": {"VLLM_A": "1"},
        "max_prefill_seqs": 2,
        "buckets": OURS,
        "aim": aim,
        "price": 0.1,
    }
    return Delivered(**{**base, **more})


# --- goals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "numbers"),
    [
        (NOTHING, BucketGoal(None, None, None)),
        (replace(NOTHING, graphs=7), BucketGoal(None, 7, None)),
        (replace(NOTHING, overhead="5%"), BucketGoal(None, None, 0.05)),
        (replace(NOTHING, overhead=" 250 "), BucketGoal(None, None, 2.5)),
        (replace(NOTHING, overhead="0"), BucketGoal(None, None, 0.0)),
    ],
)
def test_a_goal_is_a_number(goal: WarmupRequest, numbers: BucketGoal) -> None:
    assert ask_of(case(goal=goal)) == numbers
    assert goal.count == (0 if goal == NOTHING else 1)
    assert case(goal=goal).has_goal == (goal != NOTHING)


@pytest.mark.parametrize(
    ("goal", "id", "values"),
    [
        (replace(NOTHING, graphs=1, overhead="5%"), "warmup.one_ask", {}),
        (replace(NOTHING, graphs=-1), "warmup.too_few_graphs", {"found": -1, "floor": 2}),
        (replace(NOTHING, overhead="x"), "warmup.bad_overhead", {"found": "x"}),
        (replace(NOTHING, overhead="-1"), "warmup.bad_overhead", {"found": "-1"}),
        (replace(NOTHING, overhead="10000"), "warmup.bad_overhead", {"found": "10000"}),
    ],
)
def test_a_goal_that_cannot_be_is_refused(
    goal: WarmupRequest, id: str, values: dict[str, Any]
) -> None:
    with refused(id, ExitCode.USAGE, **values):
        ask_of(case(goal=goal))


def test_the_goal_keeps_the_reduction_of_the_options() -> None:
    assert ask_of(case(reduce=(8, 24000))) == BucketGoal(reduce=(8, 24000))
    assert case(workload=[(0.0, 1, 1)]).has_goal


def reading(**changes: Any) -> warmup.WarmupCase:
    options = LaunchOptions(engine=FORK, machine="simulated:hls2", cards="1", model="Qwen/Qwen3-8B")
    words: dict[str, Any] = {
        "trace": "",
        "goal": NOTHING,
        "constants": [],
    }
    given = {name: changes.pop(name) for name in tuple(changes) if name in words}
    return read(replace(options, **changes), **{**words, **given})


def test_an_engine_with_its_own_list_takes_no_goal() -> None:
    name = "tgi@3.3.5"
    with refused("warmup.own_list", ExitCode.USAGE, engine=name):
        reading(
            engine=name, model="meta-llama/Llama-3.1-8B-Instruct", goal=replace(NOTHING, graphs=5)
        )


def test_everything_assumed_is_stated() -> None:
    found = reading()
    ids = [each.id for each in found.assumptions]
    assert ids == [
        "warmup.machine_blocks",
        "warmup.assume_cost",
        "warmup.assume_ranges",
    ]
    limits = found.asked.limits
    assert found.assumptions[-1].values == {
        "input": f"{limits.input_min}-{limits.input_max}",
        "output": f"{limits.output_min}-{limits.output_max}",
    }
    nameless = reading(model=None)
    assert nameless.assumptions[0].id == "warmup.assume_model"
    assert nameless.model.name == ""
    typo = reading(model="Qwen/Qwen2-72B-Intsruct", cards="4")
    assert typo.assumptions[0].id == "plan.name_sizeless"


def test_the_constants_of_the_step_time_are_stated_and_can_be_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = reading()
    name, value = next(iter(usual.cost.constants().items()))
    given = reading(constants=[f"{name}={value + 1}"])
    assert given.cost.constants()[name] == value + 1
    shown = next(each for each in given.assumptions if each.id == "warmup.assume_cost")
    assert f"{name} {value + 1:g}" in str(shown.values["constants"])
    assert shown.values["basis"] == given.cost.basis
    monkeypatch.setattr(
        learned, "read_learned", lambda: SimpleNamespace(version=3, measurements=(1, 2))
    )
    assert warmup._of_step_time(usual.cost)[1] == message("learn.used", version=3, count=2)


# --- lists ---------------------------------------------------------------------------------------


def test_the_plans_own_list_is_judged_unless_more_is_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    best, other = row("planned"), row("linear", THEIRS)
    found = delivered(best, other)
    chosen = warmup._chosen
    assert chosen(case(), found) == (found, best)
    assert chosen(case(used=("linear", THEIRS)), found) == (found, other)
    goal = replace(NOTHING, graphs=3)
    assert chosen(case(used=("linear", THEIRS), goal=goal), found) == (found, best)
    # the reference tuning gives the engine its own list in any case
    reference = case(used=("linear", THEIRS), goal=goal)
    reference.asked.request.tuning = "reference"
    assert chosen(reference, found) == (found, other)
    monkeypatch.setattr(
        "gaudi_launch.buckets.strategies.judged",
        lambda name, buckets, limits, shapes, cost: (name, buckets, limits, shapes, cost),
    )
    third = Buckets([], [])
    more: Any
    theirs: Any
    more, theirs = chosen(case(used=("file", third)), found)
    assert theirs == ("file (plan)", third, "limits", "shapes", "cost")
    assert more.comparison == [best, other, theirs]


def test_past_requests_without_a_list_have_no_padding() -> None:
    found = warmup._met_by_trace(case(), [], row("x", None))
    assert found == message("warmup.trace_padding_unknown")


def test_the_padding_of_past_requests_is_in_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    score = SimpleNamespace(overhead=0.1234, prompt_overhead=0.5, decode_overhead=0.01)
    asked: list[Any] = []

    def scored(*words: Any) -> Any:
        asked.append(words)
        return score

    monkeypatch.setattr("gaudi_launch.buckets.optimiser.padding_cost.score", scored)
    monkeypatch.setattr("gaudi_launch.performance.simulator.simulate", lambda *words: words)
    workload = [(0.0, 5, 6)]
    found = warmup._met_by_trace(case(), workload, row("x"))
    assert found == message("warmup.trace_padding", percent="12.3", prompt="50.0", decode="1.0")
    assert asked == [(OURS, (workload, "limits", "cost"), "cost")]


def test_the_arguments_of_a_question_are_the_limits() -> None:
    found = reading()
    assert arguments_of(found.asked.limits)["max_num_seqs"] == found.asked.limits.max_num_seqs
