"""Samples into figures, runs into files and back, two runs side by side, pictures: arithmetic
only."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.extensions.bench import plot, run_file, statistics
from gaudi_launch.extensions.bench.compare import compare, doubts
from gaudi_launch.extensions.bench.run_file import BenchRun, BenchWorkload, Sample, WorkloadRequest
from tests.support.plots import needs_matplotlib, size_of, texts
from tests.support.refusals import failing, raising

# two answers of three and two tokens, one failure; the second was sent 0.5 s late
SAMPLES = (
    Sample(0.0, 0.0, 10, 3, first=1.0, last=1.4, gaps=(0.1, 0.3), input=12, output=3),
    Sample(1.0, 1.5, 10, 2, first=2.0, last=2.2, gaps=(0.2,), input=None, output=2),
    Sample(2.0, 2.0, 10, 2, last=3.0, error="status 500", detail="dead"),
)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 100),
            st.floats(0.001, 10),
            st.lists(st.floats(0, 1), max_size=5),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_figures_hold_together(rows: list[tuple[float, float, list[float], bool]]) -> None:
    samples = []
    for at, first, gaps, failed in rows:
        last = at + first + sum(gaps)
        whole = Sample(at, at, 5, 5, at + first, last, tuple(gaps), 5, len(gaps) + 1)
        samples.append(replace(whole, error="cut") if failed else whole)
    found = statistics.summary(samples)
    assert found["completed"] + found["failed"] == len(samples)
    for name in statistics.TIMES:
        if found[name]:
            parts = [found[name][part] for part in ("p50", "p90", "p95", "p99", "max")]
            assert parts == sorted(parts)
    width, rates = statistics.over_time(samples, 13)
    assert sum(rates) * width == pytest.approx(found["output_tokens"]) or not found["output_tokens"]
    plot.terminal(samples, ("a", "b"), ascii=True)


def run_of(samples: tuple[Sample, ...], **facts: Any) -> BenchRun:
    workload = BenchWorkload(
        tuple(WorkloadRequest(s.at, s.wanted_input, s.wanted_output) for s in samples),
        "own",
        None,
        "test",
    )
    return BenchRun(
        {"tool": "builtin", **facts}, workload.to_json(), statistics.summary(samples), samples
    )


def test_a_run_comes_back_from_its_file(tmp_path: Path) -> None:
    run = run_of(SAMPLES, model="m")
    path = tmp_path / "deep" / "run.json"
    run_file.save(run, path)
    assert run_file.load(path) == run
    assert [entry.name for entry in path.parent.iterdir()] == ["run.json"]
    assert json.loads(path.read_text())["samples"][2]["error"] == "status 500"


def test_files_that_are_no_runs(tmp_path: Path) -> None:
    whole = json.loads(json.dumps(run_of(SAMPLES).to_json() | {"samples": [{"at": 0}]}))
    texts = [
        "",
        "[]",
        "{}",
        '{"kind": "bench"}',
        json.dumps(whole),
        json.dumps(whole | {"samples": 3}),
    ]
    texts += [json.dumps(whole | {"samples": [], "summary": {"ttft": "fast"}}), "[" * 10_000]
    for text in texts:
        (tmp_path / "x.json").write_text(text)
        with failing("measure.not_a_run", ExitCode.USAGE):
            run_file.load(tmp_path / "x.json")
    for path in (tmp_path / "missing", tmp_path):
        with raising("measure.unreadable"):
            run_file.load(path)
    (tmp_path / "file").write_text("")
    with failing("measure.save", ExitCode.FAILED):
        run_file.save(run_of(SAMPLES), tmp_path / "file" / "run.json")


def many(scale: float, seed: int, count: int = 60) -> tuple[Sample, ...]:
    chance = random.Random(seed)
    samples = []
    for number in range(count):
        first, gaps = (
            scale * chance.uniform(0.5, 1.5),
            tuple(scale * chance.uniform(0.02, 0.04) for _ in range(9)),
        )
        at = 0.5 * number
        samples.append(Sample(at, at, 50, 10, at + first, at + first + sum(gaps), gaps, 50, 10))
    return tuple(samples)


def test_a_real_difference_is_told_from_scatter() -> None:
    before, again, faster = run_of(many(1.0, 1)), run_of(many(1.0, 2)), run_of(many(0.7, 3))
    same = {(row.name, row.part): row.verdict for row in compare(before, again)}
    better = {(row.name, row.part): row for row in compare(before, faster)}
    assert same[("ttft", "mean")] == same[("ttft", "p50")] == same[("tpot", "mean")] == "same"
    row = better[("ttft", "p50")]
    assert row.verdict == "better" and row.low is not None and row.high is not None
    assert row.low <= row.difference <= row.high < 0
    assert {row.verdict for row in compare(faster, before) if row.name == "tpot"} == {"worse"}
    assert ("late", "p50") not in better


def test_what_cannot_be_compared_is_said() -> None:
    first, second = run_of(SAMPLES, model="a"), run_of(many(1.0, 1), model="b")
    assert [doubt.id for doubt in doubts(first, second)] == [
        "measure.other_workload",
        "measure.other_fact",
        "measure.had_failures",
    ]
    assert doubts(second, second) == []


@needs_matplotlib
def test_the_picture_shows_both_runs_with_axes_and_units() -> None:
    one = texts(plot.picture([("first", many(1.0, 1))], "title", "load", ".svg"))
    two = texts(
        plot.picture([("first", many(1.0, 1)), ("second", many(0.5, 2))], "title", "load", ".svg")
    )
    labels = {
        "title",
        "load",
        "TTFT (ms)",
        "requests answered within this time (%)",
        "output tokens per second",
    }
    assert labels - set(one) == set()
    assert (one.count("first"), one.count("second")) == (2, 0)
    assert (two.count("first"), two.count("second")) == (2, 2)


@needs_matplotlib
@pytest.mark.parametrize("samples", [(), SAMPLES[2:], SAMPLES])
def test_runs_without_answers_can_be_drawn(samples: tuple[Sample, ...]) -> None:
    assert size_of(plot.picture([("x", samples)], "t", "", ".png")) == (1650, 720)


def test_the_terminal_plot() -> None:
    lines = plot.terminal(SAMPLES, ("spread", "course"), width=40, ascii=True)
    assert lines[0] == "spread" and lines[1] == "     1 s -     1 s |@@@@@@@@@@@@@@@@@@@@ 2"
    assert "course" in lines and lines[-1].endswith("2 s")
    assert all(len(line) < 60 for line in lines)
    # cells of a narrow spread have different names
    close = plot.terminal(
        [Sample(0.0, 0.0, 1, 1, first=0.062 + at / 1e4, last=0.1) for at in range(20)], ("a", "b")
    )
    names = [line.partition("|")[0] for line in close[1:9]]
    assert len(set(names)) == 8 and names[0].split() == ["62", "ms", "-", "62.2", "ms"]
