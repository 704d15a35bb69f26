"""warmup: goals in numbers, what is assumed, which list is judged, the engine's own answer."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import serve, warmup
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.report import Silent
from gaudi_launch.app.serve import ServeMode, StartedService
from gaudi_launch.app.warmup import FilledCache, WarmupRequest, ask_of, fill_cache, read
from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.buckets.optimiser.bucket_planner import BucketGoal
from gaudi_launch.buckets.strategies import Judged, arguments_of
from gaudi_launch.engines import introspect
from gaudi_launch.engines.introspect import IntrospectedBuckets
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message
from gaudi_launch.performance import learned
from gaudi_launch.planning.engine import BucketQuestion
from gaudi_launch.services.log.follow import LaunchPhase, LaunchProgress
from gaudi_launch.services.process.supervise import EngineOutcome
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

NOTHING = WarmupRequest(0, "", "", 0.0)
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
        ask=changes.pop("ask", None),
        question=SimpleNamespace(family="grid", package="extension"),
    )
    base: dict[str, Any] = {"workload": None, "blocks": 0, "goal": NOTHING}
    return warmup.WarmupCase(
        asked=asked,  # type: ignore[arg-type]
        model=None,  # type: ignore[arg-type]
        cost="cost",  # type: ignore[arg-type]
        trace_share=0.5,
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
        # 2 seconds a graph
        (replace(NOTHING, budget="1m"), BucketGoal(None, 30, None)),
        (replace(NOTHING, budget="1s"), BucketGoal(None, 1, None)),
        (replace(NOTHING, price=0.01), BucketGoal(0.01, None, None)),
    ],
)
def test_a_goal_is_a_number(goal: WarmupRequest, numbers: BucketGoal) -> None:
    assert ask_of(case(goal=goal), 2.0) == numbers
    assert goal.count == (0 if goal == NOTHING else 1)
    assert case(goal=goal).has_goal == (goal != NOTHING)


@pytest.mark.parametrize(
    ("goal", "id", "values"),
    [
        (replace(NOTHING, graphs=1, budget="1m"), "warmup.one_ask", {}),
        (replace(NOTHING, graphs=-1), "warmup.too_few_graphs", {"found": -1, "floor": 2}),
        (replace(NOTHING, overhead="x"), "warmup.bad_overhead", {"found": "x"}),
        (replace(NOTHING, overhead="-1"), "warmup.bad_overhead", {"found": "-1"}),
        (replace(NOTHING, overhead="10000"), "warmup.bad_overhead", {"found": "10000"}),
        (replace(NOTHING, budget="soon"), "warmup.bad_budget", {"found": "soon"}),
        (replace(NOTHING, budget="0"), "warmup.bad_budget", {"found": "0"}),
        (replace(NOTHING, price=1.0), "warmup.bad_price", {"found": 1.0}),
    ],
)
def test_a_goal_that_cannot_be_is_refused(
    goal: WarmupRequest, id: str, values: dict[str, Any]
) -> None:
    with refused(id, ExitCode.USAGE, **values):
        ask_of(case(goal=goal), 2.0)


def test_the_goal_keeps_the_reduction_of_the_options() -> None:
    assert ask_of(case(reduce=(8, 24000)), 2.0) == BucketGoal(reduce=(8, 24000))
    assert case(blocks=5).has_goal and case(workload=[(0.0, 1, 1)]).has_goal


def reading(**changes: Any) -> warmup.WarmupCase:
    options = LaunchOptions(engine=FORK, machine="simulated:hls2", cards="1", model="Qwen/Qwen3-8B")
    words: dict[str, Any] = {
        "trace": "",
        "goal": NOTHING,
        "trace_share": 0.5,
        "blocks": 0,
        "constants": [],
    }
    given = {name: changes.pop(name) for name in tuple(changes) if name in words}
    return read(replace(options, **changes), **{**words, **given})


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_the_share_of_a_trace_is_between_nothing_and_all(share: float) -> None:
    with refused("warmup.bad_share", ExitCode.USAGE, found=share):
        reading(trace_share=share)


def test_an_engine_with_its_own_list_takes_no_goal() -> None:
    name = "tgi@3.3.5"
    with refused("warmup.own_list", ExitCode.USAGE, engine=name):
        reading(
            engine=name, model="meta-llama/Llama-3.1-8B-Instruct", goal=replace(NOTHING, graphs=5)
        )


def test_everything_assumed_is_stated() -> None:
    found = reading(trace_share=0.0)
    ids = [each.id for each in found.assumptions]
    assert ids == [
        "warmup.assume_name",
        "warmup.machine_blocks",
        "warmup.assume_cost",
        "warmup.assume_ranges",
    ]
    limits = found.asked.limits
    assert found.assumptions[-1].values == {
        "input": f"{limits.input_min}-{limits.input_max}",
        "output": f"{limits.output_min}-{limits.output_max}",
    }
    nameless = reading(model=None, blocks=900)
    assert nameless.assumptions[0].id == "warmup.assume_model"
    assert (nameless.model.name, nameless.blocks, nameless.asked.limits.num_blocks) == (
        "",
        900,
        900,
    )
    assert "warmup.machine_blocks" not in {each.id for each in nameless.assumptions}
    typo = reading(model="Qwen/Qwen2-72B-Intsruct", cards="4")
    assert typo.assumptions[0].id == "plan.name_assumed_near"


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


def test_a_log_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert warmup._compiled(None) == []
    (tmp_path / "log").write_text("nothing\n")
    assert warmup._compiled(tmp_path / "log") == []
    path = str(tmp_path / "gone")
    with refused("warmup.trace_unreadable", ExitCode.USAGE, path=path, error=os.strerror(2)):
        warmup._compiled(tmp_path / "gone")


# --- the engine's answer -------------------------------------------------------------------------


class Engine:
    """Answers for an installed engine; keeps the question and the bucket file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: IntrospectedBuckets) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answer = answer
        monkeypatch.setattr(introspect, "ask_engine", self.ask)
        monkeypatch.setattr(
            "gaudi_launch.buckets.strategies.arguments_of", lambda limits: {"limits": limits}
        )

    def ask(self, python: str, package: str, env: Any, arguments: Any) -> IntrospectedBuckets:
        file = env.get("VLLM_BUCKETING_FROM_FILE")
        shown = {**env, **({"VLLM_BUCKETING_FROM_FILE": Path(file).read_text()} if file else {})}
        self.asked.append((python, package, shown, arguments))
        return self.answer


def test_the_engine_is_asked_with_the_settings_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(monkeypatch, IntrospectedBuckets(OURS))
    best = row("planned")
    agrees = message("warmup.engine_agrees", graphs=2, ours=2)
    assert warmup._asked(case(), delivered(best), best) == agrees
    arguments = {"limits": "limits", "max_num_prefill_seqs": 2}
    assert engine.asked == [("python3", "extension", {"VLLM_A": "1"}, arguments)]
    with_file = delivered(best, file="(1, 128, 0)\n")
    named = case()
    named.asked.request.python = "/p"
    warmup._asked(named, with_file, best)
    assert engine.asked[1] == (
        "/p",
        "extension",
        {"VLLM_A": "1", "VLLM_BUCKETING_FROM_FILE": "(1, 128, 0)\n"},
        {**arguments, "bucket_file": "(1, 128, 0)\n"},
    )


def test_a_plans_own_list_is_asked_for_with_its_own_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(monkeypatch, IntrospectedBuckets(THEIRS))
    best, other = row("planned"), row("linear", THEIRS)
    ask = BucketQuestion("grid", "own", "linear", {"B": "2"}, {"c": 3})
    agrees = message("warmup.engine_agrees", graphs=1, ours=1)
    assert warmup._asked(case(ask=ask), delivered(best, other), other) == agrees
    assert engine.asked == [("python3", "own", {"B": "2"}, {"c": 3})]
    differs = message("warmup.engine_differs", graphs=1, ours=2)
    assert warmup._asked(case(ask=ask), delivered(best, other), best) == differs
    assert engine.asked[1][1] == "extension"
    # a list that is too long to write is compared by the plan's
    assert warmup._asked(case(), delivered(row("x", None)), row("x", None)) == differs


def test_an_engine_that_does_not_answer_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    why = message("services.drain", found=1)
    engine = Engine(monkeypatch, IntrospectedBuckets(None, why=why))
    best = row("planned")
    asked = warmup._asked(case(), delivered(best), best)
    assert asked == message("warmup.no_answer", why=why.render())
    engine.answer = IntrospectedBuckets(None)
    assert warmup._asked(case(), delivered(best), best).values == {"why": "-"}


def test_the_arguments_of_a_question_are_the_limits() -> None:
    found = reading(trace_share=0.0)
    assert arguments_of(found.asked.limits)["max_num_seqs"] == found.asked.limits.max_num_seqs


# --- a filled cache ------------------------------------------------------------------------------


def test_a_run_for_the_cache_ends_when_the_engine_is_ready(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    phases = tuple(
        LaunchPhase(name, 0.0, 1.0, items)
        for name, items in (("load", 9), ("warmup_prompt", 3), ("warmup_decode", 4))
    )
    progress = LaunchProgress(facts={"warmup_seconds": 12.5}, phases=phases)
    plan = SimpleNamespace(cache={"key": "k", "folder": "/f", "state": "miss"})
    outcome = EngineOutcome("stopped", 0, progress, was_ready=True)
    started = StartedService("x", outcome, tmp_path / "log", plan)  # type: ignore[arg-type]

    def start(options: Any, how: ServeMode, reporter: Any) -> StartedService:
        asked.append((options, how))
        return started

    monkeypatch.setattr(serve, "start", start)
    options = LaunchOptions(model="m")
    found = fill_cache(options, Silent())
    assert asked == [(options, ServeMode(quiet=True, once=True))]
    assert found == FilledCache(7, 12.5, "k", "/f", "miss", tmp_path / "log")
    # Ctrl-C before it was ready
    started = replace(started, outcome=replace(outcome, was_ready=False))
    assert fill_cache(options, Silent()) is None
    bare = SimpleNamespace(cache={})
    started = replace(started, outcome=replace(outcome, progress=LaunchProgress()), plan=bare)  # type: ignore[arg-type]
    assert fill_cache(options, Silent()) == FilledCache(0, 0, None, "", None, tmp_path / "log")
    (tmp_path / "log").write_text("RuntimeError: x\n")
    started = replace(started, outcome=replace(outcome, kind="died", status=1))
    with pytest.raises(LaunchError) as raised:
        fill_cache(options, Silent())
    assert raised.value.exit_code is ExitCode.ENGINE
