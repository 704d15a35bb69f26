"""What was learned of this host, for people and for programs."""

from __future__ import annotations

import pytest

from gaudi_launch.app.learn import LearnOutcome, ReadResult
from gaudi_launch.cli.views import learn
from gaudi_launch.messages import message
from gaudi_launch.performance.constants import constants
from gaudi_launch.performance.learned import LearnedConstants, SpeedMeasurement
from tests.support.clock import utc
from tests.support.views import for_programs, views

__all__ = ["utc"]

pytestmark = pytest.mark.usefixtures("plain_english", "utc")

NAMES = sorted(constants())[:2]
SPEED = SpeedMeasurement(
    "a.json", "ttft", "mean", "e", "m", {"generation": "gaudi2"}, {}, 1.0, 2.0, 3.0, 4.0
)
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


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "learn",
        [
            lambda: learn.show_outcome(OUTCOME, False),
            lambda: learn.show(None, False),
            lambda: learn.show_reset(True, False),
            lambda: learn.show_reset(False, False),
        ],
    )


def test_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    shipped = constants()
    learned = {
        "schema": 1,
        "version": 3,
        "learned_at": 1_800_000_000.0,
        "measurements": 2,
        "left_out": 1,
        "typical_factor": 1.2346,
        "typical_factor_before": 1.9877,
        "constants": [
            {
                "name": name,
                "unit": shipped[name].unit,
                "shipped": shipped[name].value,
                "learned": LEARNED.values[name],
            }
            for name in NAMES
        ],
    }
    assert for_programs(capsys, lambda: learn.show(LEARNED, True)) == learned
    assert for_programs(capsys, lambda: learn.show_outcome(OUTCOME, True)) == {
        **learned,
        "files": [
            {"path": "a.json", "kind": "bench", "measurements": 2, "why_not": None},
            {"path": "b.log", "kind": "log", "measurements": 0, "why_not": "Interrupted."},
        ],
    }
    assert for_programs(capsys, lambda: learn.show_reset(True, True)) == {
        "schema": 1,
        "removed": True,
    }
