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


def test_a_finished_search(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = (
        OUTCOME,
        replace(OUTCOME, best=GIVEN, gain=1.0, in_time=False),
        replace(OUTCOME, given=None, gain=None),
    )
    document = for_programs(capsys, lambda: tune.show(OUTCOME, True))
    views(capsys, "tune", [partial(tune.show, each, False) for each in outcomes], [document])


def test_the_given_plan_alone_is_compared_with_nothing() -> None:
    alone = tune.to_json(replace(OUTCOME, best=GIVEN, gain=None))
    assert alone["compare"] == []
    assert (alone["best"]["is_given"], alone["best"]["gain"]) == (True, None)
