"""Two runs side by side: verdicts, and what makes them incomparable."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.extensions.bench import compare
from gaudi_launch.extensions.bench.compare import ComparedFigure, doubts
from gaudi_launch.extensions.bench.run_file import BenchRun, Sample
from gaudi_launch.extensions.bench.statistics import summary


def run(*, count: int = 6, ttft: float = 1.0, **facts: Any) -> BenchRun:
    """Return a run whose requests all have the same times."""
    samples = tuple(
        Sample(float(at), float(at), 8, 2, at + ttft, at + ttft + 0.5, (0.5,), 8, 2)
        for at in range(count)
    )
    return BenchRun({"tool": "builtin", **facts}, {"digest": "a"}, summary(samples), samples)


def rows(before: BenchRun, after: BenchRun) -> dict[tuple[str, str], ComparedFigure]:
    return {(row.name, row.part): row for row in compare.compare(before, after)}


@pytest.mark.parametrize(("before", "after"), [(4, 6), (6, 4)])
def test_few_requests_are_judged_by_a_share(before: int, after: int) -> None:
    found = rows(run(count=before), run(count=after, ttft=0.75))
    assert found["ttft", "mean"] == ComparedFigure("ttft", "mean", 1.0, 0.75, "better")
    five = rows(run(count=5), run(count=5))["ttft", "mean"]
    assert (five.low, five.verdict) == (0.0, "same")


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (100.0, 104.9, "same"),
        (100.0, 105.0, "better"),
        (100.0, 95.0, "worse"),
        (0.0, 0.0, "same"),
        (0.0, 1.0, "better"),
    ],
)
def test_a_rate_differs_from_five_percent_on(before: float, after: float, verdict: str) -> None:
    runs = [BenchRun({}, {}, {"output_rate": rate, "ttft": None}) for rate in (before, after)]
    (row,) = compare.compare(*runs)
    assert (row.name, row.verdict, row.low, row.high) == ("output_rate", verdict, None, None)
    assert row.to_json()["percent"] == (round(after - before, 2) if before else None)


def test_what_makes_two_runs_incomparable() -> None:
    first = BenchRun(
        {"tool": "builtin", "model": "a", "form": "chat", "simulated": True},
        {"digest": "a"},
        {"failed": 2, "requests": 9},
    )
    second = BenchRun(
        {"tool": "vllm", "model": "b", "form": "completions"}, {"digest": "b"}, {"failed": 0}
    )
    assert doubts(first, second) == [
        message("measure.other_workload"),
        message("measure.other_fact", name="tool", before="builtin", after="vllm"),
        message("measure.other_fact", name="model", before="a", after="b"),
        message("measure.other_fact", name="form", before="chat", after="completions"),
        message("measure.simulated", run="A"),
        message("measure.had_failures", run="A", failed=2, total=9),
    ]
    assert [each.values.get("run") for each in doubts(second, first)][-2:] == ["B", "B"]
    assert doubts(first, first)[0] == message("measure.simulated", run="A")
