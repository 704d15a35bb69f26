"""warmup: goals in numbers, what is assumed, which list is judged."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.commands.warmup import case as warmup
from gaudi_launch.commands.warmup.case import WarmupRequest, ask_of, read
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets.optimiser.padding_cost import score
from gaudi_launch.core.buckets.optimiser.workload_mix import expect
from gaudi_launch.core.buckets.strategies import Judged
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.parse import if_given
from gaudi_launch.core.planning.parse_ranges import pair
from gaudi_launch.core.predict.learned import LearnedConstants, write_learned
from gaudi_launch.core.predict.published import Figure, shapes
from gaudi_launch.core.predict.simulator import serve
from gaudi_launch.core.predict.step_model import Setup
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

NOTHING = WarmupRequest(0, "")
FORK = "vllm-fork@1.21"


def reading(**changes: Any) -> warmup.WarmupCase:
    options = LaunchOptions(engine=FORK, machine="simulated:hls2", cards=1, model="Qwen/Qwen3-8B")
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
    cards, shape = Setup("gaudi3", 1, "bf16", 2.0, 2.0, "v1"), shapes()["Llama-3.1-8B"]
    one = Figure("s", "tpot", "mean", "e", "", "m", cards, shape, 1, 2, 1, 0.1)
    write_learned(LearnedConstants(3, 0.0, {}, 1.1, 1.2, 0, (one, one)))
    assert message("learn.used", version=3, count=2) in reading().assumptions


# --- lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", ["", "30,600", "2000,4000"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_trace_that_breaks_the_padding_of_the_plan_is_a_warning(
    lengths: str, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    middle = chance.choice((30, 300, 3000))
    arrivals = (
        f"{0.2 * at:.1f},{round(middle * chance.uniform(0.5, 1.3))},{chance.randint(20, 200)}\n"
        for at in range(120)
    )
    trace = tmp_path / "other.csv"
    trace.write_text("timestamp,input_tokens,output_tokens\n" + "".join(arrivals))
    options = LaunchOptions(
        engine="vllm-gaudi", machine="simulated:hls2", cards=1, model="Qwen/Qwen3-8B"
    )
    options = replace(
        options, input_range=if_given(pair, "-i", lengths), max_num_seqs=16, max_model_len=8192
    )
    case = read(options, trace=str(trace), goal=NOTHING, constants=[])
    notes = {each.id: each.values for each in warmup.solve(case).notes}
    assert notes["warmup.workload"] == {"requests": 120, "trace": str(trace)}
    assert case.workload is not None and case.asked.used is not None
    limits, cost = case.asked.limits, case.cost
    met = serve(case.workload, limits, cost)[0]
    ranges = expect(None, limits, cost).forecast
    claimed, paid = (score(case.asked.used[1], each, cost).overhead for each in (ranges, met))
    warned = notes.get("warmup.other_mix")
    assert (warned is not None) == (paid > claimed + 0.01)
    if warned is not None:
        assert (warned["claimed"], warned["paid"]) == (f"{100 * claimed:.1f}", f"{100 * paid:.1f}")


def test_past_requests_without_a_list_have_no_padding() -> None:
    found = warmup._met_by_trace(reading(), [], Judged("x", 1, 1, None, None, None))
    assert list(found) == [message("warmup.trace_padding_unknown")]
