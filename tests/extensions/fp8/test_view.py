"""A running calibration and its result."""

from __future__ import annotations

import pytest

from gaudi_launch.core.models.fp8.quant_config import QuantFile
from gaudi_launch.extensions.fp8 import view as calibrate
from gaudi_launch.extensions.fp8.case import CalibrationResult
from gaudi_launch.extensions.fp8.phases import CalibrationRequest
from tests.support.views import views

pytestmark = pytest.mark.usefixtures("plain_english")

RESULT = CalibrationResult(
    QuantFile("/c/q.json", "calibrated", "fp8_inc"),
    CalibrationRequest("/m/x", "x", 2, "g2", "/d.pkl"),
    "-d fp8",
)


def test_the_phases_and_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    def phases() -> None:
        terminal = calibrate.CalibrationTerminal()
        terminal.phase("measure", "begin", 1, 3)
        terminal.phase("measure", "done", 1, 3)
        terminal.phase("quantise", "skip", 2, 3)

    shows = [phases, lambda: calibrate.show(RESULT, "/m/x")]
    views(capsys, "calibrate", shows, [calibrate.to_json(RESULT)])
