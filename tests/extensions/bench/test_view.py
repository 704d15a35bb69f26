"""Runs of bench: progress, figures, remarks, and two runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message, text
from gaudi_launch.core.predict.constants import constants
from gaudi_launch.core.predict.learned import LearnedConstants
from gaudi_launch.core.predict.published import Figure, shapes
from gaudi_launch.core.predict.step_model import Setup
from gaudi_launch.extensions.bench import view as bench
from gaudi_launch.extensions.bench.case import BenchReport
from gaudi_launch.extensions.bench.learn import LearnOutcome, ReadResult
from gaudi_launch.extensions.bench.replay import Going
from gaudi_launch.extensions.bench.run_file import BenchRun, Sample
from gaudi_launch.extensions.bench.statistics import summary
from tests.support.clock import utc
from tests.support.views import for_programs, printed, views

__all__ = ["utc"]

pytestmark = pytest.mark.usefixtures("plain_english", "utc")

LOAD = {"arrivals": "closed", "concurrency": 4, "source": "made-up:256:16,64:7", "requests": 3}
FACTS = {"model": "m", "url": "http://h:1", "tool": "builtin"}


def run(
    ttft: float = 1.0,
    *,
    late: float = 0.0,
    load: Mapping[str, Any] = LOAD,
    facts: Mapping[str, Any] = FACTS,
) -> BenchRun:
    """Return a run of two answers, the second of them short, and a refusal."""
    samples = (
        Sample(0.0, late, 8, 2, ttft, ttft + 0.05, (0.05,), 8, 2),
        Sample(1.0, 1.0 + late, 8, 4, 1 + ttft, 1 + ttft + 0.05, (0.05,), 8, 2),
        Sample(2.0, 2.0, 8, 2, error="status 500", detail="[full]"),
    )
    return BenchRun(facts, load, summary(samples), samples)


REMARKED = run(
    late=0.25,
    load={
        "arrivals": "rate",
        "rate": 2.5,
        "source": "/t.csv",
        "left_out": 5,
        "requests": 40,
        "concurrency": 8,
    },
    facts={**FACTS, "simulated": True, "interrupted": True, "ruler": {"measured": False}},
)
OWN_TIMES = run(
    late=0.25,
    load={"arrivals": "own", "source": "made-up:odd", "concurrency": None},
    facts={**FACTS, "ruler": {"measured": True}},
)
EMPTY = BenchRun(FACTS, LOAD, summary(()), ())


def test_the_figures_of_a_run_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "bench",
        [
            partial(bench.show_report, BenchReport(run(), Path("/run.json")), False),
            partial(bench.show_report, BenchReport(REMARKED), False),
            partial(bench.show_report, BenchReport(OWN_TIMES), False),
            partial(bench.show_report, BenchReport(EMPTY), False),
        ],
    )


def test_a_run_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    made = run()
    report = BenchReport(made, Path("/run.json"))
    assert for_programs(capsys, lambda: bench.show_report(report, True)) == {
        **made.to_json(),
        "errors": [{"error": "status 500", "count": 1, "example": "[full]"}],
        "file": "/run.json",
    }


def test_figures_are_shown_before_the_failure_to_write_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = LaunchError("common.interrupted", ExitCode.FAILED)
    report = BenchReport(run(), problem=full)

    def show() -> None:
        with pytest.raises(LaunchError) as caught:
            bench.show_report(report, True)
        assert caught.value is full

    expected = printed(capsys, lambda: bench.show_report(BenchReport(run()), False))
    # stdout is for the error as JSON
    assert printed(capsys, show) == f"(stderr)\n{expected}"


def test_two_runs_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "bench-compare",
        [
            partial(bench.show_comparison, run(1.0), run(0.5), False),
            partial(bench.show_comparison, run(0.5), REMARKED, False),
        ],
    )
    found = for_programs(capsys, lambda: bench.show_comparison(run(1.0), REMARKED, True))
    assert found.keys() == {"schema", "before", "after", "rows", "doubts"}
    assert (found["schema"], found["before"]) == (1, run(1.0).to_json())
    assert found["after"] == REMARKED.to_json()
    assert found["rows"][0]["name"] == "request_rate"
    assert all(each.keys() == {"id", "message"} for each in found["doubts"])


def test_what_differs_from_a_plan_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    bench.show_differences((message("common.interrupted"), message("common.interrupted")))
    assert capsys.readouterr() == ("", "warning: Interrupted.\nwarning: Interrupted.\n")


def test_the_command_of_another_tool_is_printed_with_a_hint_about_the_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    bench.show_benchmarker(["docker", "run", "a b"], False)
    assert capsys.readouterr() == ("docker run 'a b'\n", "")
    monkeypatch.setenv("VLLM_API_KEY", "hunter2")
    bench.show_benchmarker(["docker"], False)
    out, err = capsys.readouterr()
    assert (out, "hunter2" in err, err.count("\n")) == ("docker\n", False, 1)
    found = for_programs(capsys, lambda: bench.show_benchmarker(["docker", "a b"], True))
    assert found == {"schema": 1, "tool": "inference-benchmarker", "argv": ["docker", "a b"]}


def test_a_run_says_that_it_prepares_unless_it_is_quiet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with bench.Watching(quiet=False) as watching:
        watching.say("a line")
    assert capsys.readouterr() == ("", f"{text('measure.preparing')}\na line\n")
    with bench.Watching(quiet=True) as watching:
        watching.going(Going(total=40, sent=5, done=3, failed=1, tokens=120))
    assert capsys.readouterr() == ("", "")


NAMES = sorted(constants())[:2]
SETUP = Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v1")
SHAPE = shapes()["Llama-3.1-8B"]
SPEED = Figure("a.json", "ttft", "mean", "e", "", "m", SETUP, SHAPE, 1.0, 2.0, 3.0, 4.0)
LEARNED = LearnedConstants(
    3, 1_800_000_000.0, {NAMES[0]: 0.123456, NAMES[1]: 1234567.0}, 1.23456, 1.98767, 1, (SPEED,) * 2
)
OUTCOME = LearnOutcome(
    LEARNED,
    (
        ReadResult("a.json", "bench", (SPEED, SPEED)),
        ReadResult("b.log", "log", (), message("common.interrupted")),
    ),
)


def test_what_was_learned(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "bench-learn",
        [lambda: bench.show_learning(OUTCOME, False), lambda: bench.show_learned(None, False)],
        [
            for_programs(capsys, lambda: bench.show_learned(LEARNED, True)),
            for_programs(capsys, lambda: bench.show_learning(OUTCOME, True)),
        ],
    )
    report = BenchReport(run(), Path("/run.json"), learned=OUTCOME)
    shown = for_programs(capsys, lambda: bench.show_report(report, True))
    assert shown["learned"] == OUTCOME.to_json()
