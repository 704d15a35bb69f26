"""warmup: goals in numbers, what is assumed, which list is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.app import warmup
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.warmup import WarmupRequest, ask_of, read
from gaudi_launch.buckets.strategies import Judged
from gaudi_launch.errors import ExitCode
from gaudi_launch.messages import message
from gaudi_launch.performance.learned import LearnedConstants, SpeedMeasurement, write_learned
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

NOTHING = WarmupRequest(0, "")
FORK = "vllm-fork@1.21"


def reading(**changes: Any) -> warmup.WarmupCase:
    options = LaunchOptions(engine=FORK, machine="simulated:hls2", cards="1", model="Qwen/Qwen3-8B")
    return read(options, **{"trace": "", "goal": NOTHING, "constants": [], **changes})


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
        ask_of(reading(goal=goal))


def test_the_constants_of_the_step_time_are_stated_and_can_be_given() -> None:
    usual = reading()
    name, value = next(iter(usual.cost.constants().items()))
    given = reading(constants=[f"{name}={value + 1}"])
    assert given.cost.constants()[name] == value + 1
    shown = next(each for each in given.assumptions if each.id == "warmup.assume_cost")
    assert f"{name} {value + 1:g}" in str(shown.values["constants"])
    assert shown.values["basis"] == given.cost.basis
    cards = {"generation": "gaudi3"}
    one = SpeedMeasurement("s", "tpot", "mean", "e", "m", cards, {}, 1, 2, 1, 0.1)
    write_learned(LearnedConstants(3, 0.0, {}, 1.1, 1.2, 0, (one, one)))
    assert message("learn.used", version=3, count=2) in reading().assumptions


# --- lists ---------------------------------------------------------------------------------------


def test_past_requests_without_a_list_have_no_padding() -> None:
    found = warmup._met_by_trace(reading(), [], Judged("x", 1, 1, None, None, None))
    assert found == message("warmup.trace_padding_unknown")
