"""Runs in the terminal, and the titles of their pictures."""

from __future__ import annotations

from datetime import datetime

from gaudi_launch.core.base.plotting import label
from gaudi_launch.extensions.bench.plot import titles
from gaudi_launch.extensions.bench.run_file import BenchRun


def test_the_titles_name_models_times_and_the_load() -> None:
    workload = {"requests": 9, "input_tokens": 90, "output_tokens": 45}
    runs = [
        BenchRun({"model": "a", "began": 0}, {**workload, "rate": 2.5, "concurrency": 4}, {}),
        BenchRun({"model": "b", "began": 60}, {}, {}),
        BenchRun({}, {}, {}),
    ]
    title, load = titles(runs)
    first, second = (f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}" for at in (0, 60))
    assert title == f"a / b / ?, {first}, {second}"
    assert load == "; ".join(
        [
            label("plot.load", **workload),
            label("plot.load_rate", rate="2.5"),
            label("plot.load_limit", limit=4),
        ]
    )
    assert titles([BenchRun({"model": "a"}, workload, {})]) == ("a", label("plot.load", **workload))
    unknown = dict.fromkeys(workload, "?")
    assert titles([BenchRun({}, {}, {})]) == ("?", label("plot.load", **unknown))
