"""Workloads: the arrivals and lengths of requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.extensions.bench.options import BenchOptions
from gaudi_launch.extensions.bench.run_file import BenchWorkload, WorkloadRequest
from gaudi_launch.extensions.bench.workload import from_trace, made_up, within
from tests.support.refusals import failing


def test_a_trace_is_stretched_to_a_rate(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("t_seconds,input_tokens,output_tokens\n5,100,10\n6,200,20\n9,300,30\n")
    found = from_trace(BenchOptions(trace=str(trace), rate=4.0, concurrency=7))
    rows = (
        WorkloadRequest(0.0, 100, 10),
        WorkloadRequest(0.125, 200, 20),
        WorkloadRequest(0.5, 300, 30),
    )
    assert found == BenchWorkload(rows, "rate", 7, str(trace), rate=4.0)
    first = from_trace(BenchOptions(trace=str(trace), requests=2, seconds=1.0))
    assert ([row.at for row in first.requests], first.arrivals) == ([0, 1], "own")
    # the name of its file is no part of a workload
    assert found.digest != first.digest == replace(first, source="elsewhere").digest


def test_made_up_requests_arrive_at_a_rate_or_wait_for_a_place() -> None:
    found = made_up(BenchOptions(requests=200, input=(5, 5), output=(3, 9), rate=10.0, seed=1))
    times = [row.at for row in found.requests]
    assert (found.source, found.arrivals, found.rate) == ("made-up:5:3-9:1", "rate", 10.0)
    assert times[0] == 0.0 and times == sorted(times)
    assert times[-1] == pytest.approx(20.0, rel=0.3)
    closed = made_up(BenchOptions(requests=3, input=(1, 2), output=(4, 4), concurrency=2))
    assert (closed.arrivals, closed.concurrency, closed.rate) == ("closed", 2, None)
    assert [row.at for row in closed.requests] == [0.0, 0.0, 0.0]


def test_requests_that_a_server_would_refuse_are_left_out() -> None:
    rows = (
        WorkloadRequest(1.0, 90, 20),
        WorkloadRequest(2.0, 5, 90),
        WorkloadRequest(4.0, 60, 30),
        WorkloadRequest(5.0, 70, 5),
    )
    found = within(BenchWorkload(rows, "own", None, "t"), 100, 65, 10)
    kept = (WorkloadRequest(0.0, 10, 90), WorkloadRequest(2.0, 60, 30))
    assert (found.requests, found.left_out) == (kept, 2)
    for longest, longest_input, shown in ((5, None, 5), (None, 4, 4)):
        with failing("measure.all_too_long", ExitCode.USAGE) as caught:
            within(BenchWorkload(rows, "own", None, "t"), longest, longest_input, 1)
        assert caught.value.text.values == {"longest": shown}
