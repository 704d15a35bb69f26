"""Runs in the terminal, and the titles of their pictures."""

from __future__ import annotations

from datetime import datetime

import pytest

from gaudi_launch.bench.plot import histogram, terminal, titles
from gaudi_launch.bench.run_file import BenchRun, Sample
from gaudi_launch.messages import set_language


def sample(at: float, ttft: float) -> Sample:
    return Sample(at, at, 8, 2, at + ttft, at + ttft + 1.0, (1.0,), 8, 2)


def test_the_cells_are_equal_on_a_logarithmic_scale() -> None:
    found = histogram([1.0, 1.5, 3.0, 16.0, 0.0], rows=4)
    assert [count for _, _, count in found] == [2, 1, 0, 1]
    ends = [low for low, _, _ in found] + [found[-1][1]]
    assert ends == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0])
    assert histogram([2.0, 2.0]) == [(2.0, 2.0, 2)]
    assert histogram([0.0, -1.0]) == []


def test_the_lines_of_both_plots() -> None:
    samples = [sample(0.0, 0.25), sample(1.0, 0.25), sample(2.0, 4.0)]
    lines = terminal(samples, ("TTFT", "rate"), width=30, ascii=True)
    assert (lines[0], lines[9], lines[10], len(lines)) == ("TTFT", "", "rate", 13)
    assert lines[1] == "  250 ms -  354 ms |" + "@" * 10 + " 2"
    assert lines[2] == "  354 ms -  500 ms | 0"
    assert lines[8] == "  2.83 s -     4 s |" + "@" * 5 + " 1"
    assert lines[12] == " " * 10 + "0" + "7 s".rjust(29)
    assert terminal([], ("a", "b")) == []


def test_the_titles_name_models_times_and_the_load() -> None:
    set_language("en")
    workload = {"requests": 9, "input_tokens": 90, "output_tokens": 45}
    runs = [
        BenchRun({"model": "a", "began": 0}, {**workload, "rate": 2.5, "concurrency": 4}, {}),
        BenchRun({"model": "b", "began": 60}, {}, {}),
        BenchRun({}, {}, {}),
    ]
    title, load = titles(runs)
    first, second = (f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}" for at in (0, 60))
    assert title == f"a / b / ?, {first}, {second}"
    plain = titles([BenchRun({"model": "a"}, workload, {})])
    assert plain[0] == "a"
    assert load.startswith(f"{plain[1]}; ")
    assert ("9" in plain[1], "90" in plain[1], "45" in plain[1]) == (True, True, True)
    assert ("2.5" in load, "4" in load.rpartition(";")[2]) == (True, True)
