"""A finished search: its launches, its answer and the proof."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gaudi_launch.core.launch.saved_plan import SavedTraffic
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.extensions.bench.tune import view as tune
from gaudi_launch.extensions.bench.tune.case import TuneOutcome
from gaudi_launch.extensions.bench.tune.state import TuneCandidate, TuneFigure, TuneStart, TuneState
from tests.support.views import for_programs, views

pytestmark = pytest.mark.usefixtures("plain_english")


def figure(file: str, score: float) -> TuneFigure:
    return TuneFigure(file, 1000.12345 * score, 0.1234567 / score, 0.0123456 / score, 3.0, score)


GIVEN = TuneStart(
    0, 1, True, 61.256, 121.256, 64, (figure("g3", 1.2), figure("g1", 1.0), figure("g2", 1.1))
)
BEST = TuneStart(
    1, 1, True, 62.5, 122.5, 64, (figure("b2", 2.1), figure("b3", 2.2), figure("b1", 2.0))
)
FAILED = TuneStart(1, 0, False, 0.0, 9.0, 0, why="out of memory")
STATE = TuneState(
    Path("/tune/m"),
    "throughput",
    SavedTraffic(input="128", concurrency="8"),
    64,
    (
        TuneCandidate("given", LaunchOptions(machine="simulated:hls2"), 2, "sha256:a"),
        TuneCandidate("seqs-64", LaunchOptions(machine="simulated:hls2"), 4, "sha256:b"),
    ),
    (FAILED, GIVEN, BEST),
)
OUTCOME = TuneOutcome(STATE, BEST, GIVEN, 0.04321, 1.909090, Path("/plans/best.json"), True)


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = (
        OUTCOME,
        replace(OUTCOME, best=GIVEN, gain=1.0, in_time=False),
        replace(OUTCOME, given=None, gain=None),
    )
    views(capsys, "tune", [partial(tune.show, each, False) for each in outcomes])


def test_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    found = for_programs(capsys, lambda: tune.show(OUTCOME, True))
    simulated = found.pop("simulated")
    assert simulated is OUTCOME.simulated
    starts = found.pop("starts")
    assert found == {
        "schema": 1,
        "goal": "throughput",
        "traffic": {"input": "128", "concurrency": "8"},
        "candidates": [
            {"name": "given", "cards": 2, "hash": "sha256:a"},
            {"name": "seqs-64", "cards": 4, "hash": "sha256:b"},
        ],
        "best": {
            "candidate": "seqs-64",
            "is_given": False,
            "gain": 1.9091,
            "noise": 0.0432,
            "plan": "/plans/best.json",
        },
        "complete": True,
        # of each the run in the middle
        "compare": ["/tune/m/g2", "/tune/m/b2"],
        "folder": "/tune/m",
    }
    assert starts[0] == {
        "candidate": "seqs-64",
        "round": 1,
        "last": False,
        "start_seconds": 0.0,
        "seconds": 9.0,
        "runs": [],
        "why": "out of memory",
    }
    assert starts[1] | {"runs": starts[1]["runs"][1:2]} == {
        "candidate": "given",
        "round": 2,
        "last": True,
        "start_seconds": 61.26,
        "seconds": 121.26,
        "runs": [
            {
                "file": "/tune/m/g1",
                "output_tokens_per_second": 1000.123,
                "ttft_seconds": 0.123457,
                "tpot_seconds": 0.012346,
            }
        ],
        "why": "",
    }


def test_the_given_plan_alone_is_compared_with_nothing() -> None:
    alone = tune.to_json(replace(OUTCOME, best=GIVEN, gain=None))
    assert alone["compare"] == []
    assert (alone["best"]["is_given"], alone["best"]["gain"]) == (True, None)
