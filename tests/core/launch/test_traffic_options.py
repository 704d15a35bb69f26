"""Traffic and targets as typed: values, units, refusals, notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.launch.traffic_options import (
    TrafficOptions,
    demand_of,
    load_of,
    past_of,
    rate_of_trace,
    read_percentile,
    targets_of,
)
from gaudi_launch.core.planning.parse_ranges import Ranges
from gaudi_launch.core.predict.load import LoadRequest, from_ranges
from gaudi_launch.core.predict.targets import Targets

TIMED = "timestamp,input_tokens,output_tokens\n0,100,10\n30,200,20\n60,300,30\n"
UNTIMED = "input_tokens,output_tokens\n100,10\n200,20\n"


def refused(what: Callable[[], object]) -> tuple[str, dict[str, Any]]:
    with pytest.raises(LaunchError) as caught:
        what()
    assert caught.value.exit_code == ExitCode.USAGE
    assert str(caught.value)
    return caught.value.id, dict(caught.value.text.values)


def test_a_percentile_is_below_a_hundred() -> None:
    texts = ("1", "p95", "P99.9", "99.999")
    assert [read_percentile("-x", text) for text in texts] == [1.0, 95.0, 99.9, 99.999]
    for text in ("0", "0.9", "100", "95%", "99.9999"):
        assert refused(partial(read_percentile, "-x", text)) == (
            "capacity.bad_percentile",
            {"found": text},
        )


def given(**texts: Any) -> TrafficOptions:
    """Return the options of a command line."""
    return TrafficOptions(**texts)


def test_targets_are_read_one_by_one() -> None:
    found = given(ttft="1s", tpot="50ms", e2e="20s", percentile="90")
    assert targets_of(found) == Targets(1.0, 0.05, 90.0, 20.0)
    assert targets_of(TrafficOptions()) == Targets(None, None, 95.0, None)
    flags = {
        name: refused(partial(given, **{name: "x"}))[1]["flag"] for name in ("ttft", "tpot", "e2e")
    }
    assert flags == {"ttft": "--ttft", "tpot": "--tpot", "e2e": "--e2e"}


def test_a_demand_is_a_rate_or_a_number_of_clients() -> None:
    assert demand_of(TrafficOptions()) == (0.0, 0)
    assert demand_of(given(rate="60/m")) == (1.0, 0)
    # a small rate is read again from its text
    daily = given(rate="1/d")
    assert replace(daily, trace="x").rate == daily.rate == 1 / 86400
    assert demand_of(given(concurrency="8")) == (0.0, 8)
    both = given(rate="1", concurrency="1")
    assert refused(partial(demand_of, both)) == ("capacity.one_demand", {})
    assert refused(partial(given, concurrency="0")) == (
        "plan.number",
        {"flag": "--concurrency", "found": "0", "least": 1, "most": 100_000_000},
    )


@pytest.fixture
def traces(tmp_path: Path) -> dict[str, str]:
    found = {"timed": TIMED, "untimed": UNTIMED}
    for name, content in found.items():
        (tmp_path / f"{name}.csv").write_text(content)
    return {name: str(tmp_path / f"{name}.csv") for name in found}


def test_past_requests_arrive_at_their_times_unless_others_are_wanted(
    traces: dict[str, str],
) -> None:
    def own(trace: str, arrivals: str = "") -> bool:
        given = TrafficOptions(trace=traces.get(trace, ""), arrivals=arrivals)
        past = past_of(given)
        return past is not None and past.own_times

    assert (own("timed"), own("timed", "trace"), own("timed", "poisson")) == (True, True, False)
    assert (own("untimed"), own("untimed", "poisson")) == (False, False)
    assert past_of(TrafficOptions(arrivals="poisson")) is None
    for trace, arrivals in (("untimed", "trace"), ("", "trace"), ("timed", "daily")):
        given = partial(own, trace, arrivals)
        assert refused(given) == ("capacity.arrivals", {"found": arrivals})


def test_a_load_states_what_it_was_made_of(traces: dict[str, str]) -> None:
    notes: list[Message] = []
    made = load_of(None, Ranges((100, 200), (50, 50)), notes)
    assert made == from_ranges((100, 200), (50, 50))
    values = {"input": "100-200", "output": "50-50"}
    assert notes == [Message("capacity.assume_ranges", values)]
    for arrivals, id in (("", "capacity.of_trace_own"), ("poisson", "capacity.of_trace")):
        past = past_of(TrafficOptions(trace=traces["timed"], arrivals=arrivals))
        notes.clear()
        assert load_of(past, Ranges(), notes).recorded is (arrivals == "")
        assert notes == [message(id, requests=3)]


def test_the_rate_of_a_trace_is_its_mean() -> None:
    notes: list[Message] = []
    past: list[LoadRequest] = [(at * 10.0, 100, 10) for at in range(13)]
    rate = rate_of_trace(past, notes)
    assert rate == pytest.approx(0.1, rel=0.1)
    assert notes[0] == message("capacity.rate_of_trace", rate=f"{rate:.3g}")
    assert [note.id for note in notes[1:]] == ["capacity.busiest"]
    assert refused(lambda: rate_of_trace(None, notes)) == ("capacity.no_rate", {})
