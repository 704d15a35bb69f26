"""The speed that `bench` prints next to what is measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.launch import route
from gaudi_launch.core.launch.prediction import of_plan
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.extensions.bench import view as bench
from gaudi_launch.extensions.bench.case import BenchReport
from gaudi_launch.extensions.bench.run_file import BenchRun

pytestmark = pytest.mark.usefixtures("plain_english")

LLAMA = LaunchOptions(model="meta-llama/Llama-3.1-8B-Instruct", machine="simulated:hls2")
RUN = BenchRun({"tool": "builtin", "url": "http://x", "model": "m"}, {"arrivals": "closed"}, {})


def test_bench_prints_the_prediction_next_to_its_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made, prepared = route.plan(LLAMA)
    found = of_plan(prepared, made)
    assert found is not None
    report = BenchReport(RUN, Path("/tmp/run.json"), found)
    bench.show_report(report, False)
    shown = capsys.readouterr()
    assert "TPOT" in shown.out + shown.err
    bench.show_report(report, True)
    document = json.loads(capsys.readouterr().out)
    assert (
        document["predicted"]["tpot_seconds"]["expected"]
        == found.time(found.tpot).to_json()["expected"]
    )
    bench.show_report(replace(report, predicted=None), True)
    assert "predicted" not in json.loads(capsys.readouterr().out)
