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
from gaudi_launch.buckets.strategies import Judged
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


# --- goals ---------------------------------------------------------------------------------------


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


def reading(**changes: Any) -> warmup.WarmupCase:
    options = LaunchOptions(engine=FORK, machine="simulated:hls2", cards="1", model="Qwen/Qwen3-8B")
    words: dict[str, Any] = {
        "trace": "",
        "goal": NOTHING,
        "constants": [],
    }
    given = {name: changes.pop(name) for name in tuple(changes) if name in words}
    return read(replace(options, **changes), **{**words, **given})


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


def test_past_requests_without_a_list_have_no_padding() -> None:
    found = warmup._met_by_trace(case(), [], row("x", None))
    assert found == message("warmup.trace_padding_unknown")
