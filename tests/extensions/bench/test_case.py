"""bench: the load in numbers, the choice of a tool, what another tool gets, saved runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.launch import route
from gaudi_launch.core.launch.prediction import of_record, record_of
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.predict.load import Load, from_ranges
from gaudi_launch.core.services.endpoint import Target
from gaudi_launch.extensions.bench import case as bench
from gaudi_launch.extensions.bench.case import BenchCase
from gaudi_launch.extensions.bench.options import BenchOptions
from gaudi_launch.extensions.bench.run_file import BenchRun
from gaudi_launch.extensions.bench.workload import made_up
from tests.support.refusals import failing, refused
from tests.support.stand_in_server import KEY, serving

pytestmark = pytest.mark.usefixtures("plain_english")

URL = "http://127.0.0.1:9"
SENT = from_ranges((100, 301), (10, 21))
RUN = BenchRun(
    {"tool": "builtin", "model": "m", "began": 1_700_000_000.0},
    made_up(BenchOptions(requests=2, input=(8, 8), output=(4, 4), concurrency=1)).to_json(),
    {"completed": 2, "failed": 0},
)


def case(tool: str = "builtin", **changes: Any) -> BenchCase:
    """Return a measurement of a server without a record."""
    return BenchCase(BenchOptions(**changes), Target(URL), tool)


# --- the tool ------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", ["/no/python", None])
def test_a_client_that_is_not_here_is_an_error(python: str | None) -> None:
    found = Target(URL, plan={"engine": {"python": python}})
    assert bench._choose(BenchOptions(), found) == ("builtin", "")
    with refused("measure.no_vllm", ExitCode.FAILED, python=python or "-"):
        bench._choose(BenchOptions(tool="vllm"), found)


def test_a_server_that_cannot_be_asked_is_named() -> None:
    named = replace(case(), found=Target(URL, model="m"))
    for work in (lambda: bench.for_tool(case()), lambda: bench._check_server(named, None)):
        with failing("measure.no_server", ExitCode.FAILED) as raised:
            work()
        assert raised.value.text.values["url"] == URL


def test_lengths_that_the_server_refuses_are_not_sent_by_another_tool() -> None:
    with serving(longest=400, key=True) as (url, _):
        sent = replace(case(output=(144, 144)), found=Target(url, model="stand-in"))
        bench._check_server(sent, KEY)
        with refused("measure.all_too_long", ExitCode.USAGE, longest=400):
            bench._check_server(replace(sent, options=BenchOptions(output=(145, 145))), KEY)


# --- the outcome ---------------------------------------------------------------------------------


def test_a_run_whose_file_cannot_be_written_is_shown_with_the_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = bench.kept(case(save=str(tmp_path / "file" / "a")), RUN)
    assert (report.run, report.path, report.predicted) == (RUN, None, None)
    assert report.problem is not None and report.problem.exit_code is ExitCode.FAILED


@pytest.mark.parametrize(
    ("numbers", "load"),
    [
        ({}, SENT.of_clients(4)),
        ({"concurrency": 8}, SENT.of_clients(8)),
        ({"rate": 2.0}, SENT.at_rate(2.0)),
        # nothing is predicted of one token
        ({"output": (1, 1)}, None),
    ],
)
def test_a_service_is_predicted_for_the_load_that_is_sent(
    numbers: dict[str, Any], load: Load | None, tmp_path: Path
) -> None:
    options = LaunchOptions(model="Qwen/Qwen3-8B", machine="simulated:hls2", cards=1)
    made, prepared = route.plan(options)
    plan = record_of(prepared, made)
    lengths = {"input": (100, 301), "output": (10, 21)}
    measured = case(save=str(tmp_path / "run.json"), **{**lengths, **numbers})
    known = replace(measured, found=Target(URL, plan=plan))
    expected = of_record(plan, load) if load else None
    predicted = bench.kept(known, RUN).predicted
    assert (expected is None) is (load is None) is (predicted is None)
    if expected is not None and predicted is not None:
        assert predicted.load == load
        assert predicted.e2e.mean == expected.e2e.mean
    # nor of a trace, or a server without a record
    for other in (replace(known.options, trace="t.csv"), known.options):
        found = known.found if other.trace else Target(URL)
        one = replace(known, options=other, found=found)
        assert bench.kept(one, RUN).predicted is None
