"""bench: the load in numbers, the choice of a tool, what another tool gets, saved runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app import bench
from gaudi_launch.app.bench import (
    BenchCase,
    BenchNumbers,
    BenchOptions,
    BenchOutcome,
)
from gaudi_launch.bench import server
from gaudi_launch.bench.client import Client, ServerError
from gaudi_launch.bench.external_tools import ToolLoad
from gaudi_launch.bench.run_file import BenchRun
from gaudi_launch.bench.server import ServerFacts
from gaudi_launch.bench.workload import made_up
from gaudi_launch.errors import ExitCode
from gaudi_launch.performance.prediction import Load
from gaudi_launch.services.endpoint import Target
from tests.support.refusals import failing, refused

pytestmark = pytest.mark.usefixtures("plain_english")

URL = "http://127.0.0.1:9"
NUMBERS = BenchNumbers((256, 256), (64, 64), None, None, None, None, 0, 7, 600.0)
RUN = BenchRun(
    {"tool": "builtin", "model": "m", "began": 1_700_000_000.0},
    made_up(requests=2, input=(8, 8), output=(4, 4), rate=None, concurrency=1).to_json(),
    {"completed": 2, "failed": 0},
)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None, float, object]]:
    """Answer for the server: model "served", at most 400 tokens; record how it is asked."""
    asked: list[tuple[str, str | None, float, object]] = []

    async def look(client: Client, model: str | None = None) -> ServerFacts:
        asked.append(
            (client.url, model, client._timeout, dict(client._headers).get("Authorization"))
        )
        return ServerFacts(model or "served", ("served",), longest=400)

    async def pick_form(client: Client, served: ServerFacts) -> str:
        return "chat"

    monkeypatch.setattr(server, "look", look)
    monkeypatch.setattr(server, "pick_form", pick_form)
    return asked


def case(tool: str = "builtin", **changes: Any) -> BenchCase:
    """Return a measurement of a server without a record."""
    return BenchCase(BenchOptions(), Target(URL), replace(NUMBERS, **changes), tool)


# --- options -------------------------------------------------------------------------------------


# --- the tool ------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", ["/no/python", None])
def test_a_client_that_is_not_here_is_an_error(python: str | None) -> None:
    found = Target(URL, plan={"engine": {"python": python}})
    assert bench._choose(BenchOptions(), found, NUMBERS) == ("builtin", "")
    with refused("measure.no_vllm", ExitCode.FAILED, python=python or "-"):
        bench._choose(BenchOptions(tool="vllm"), found, NUMBERS)


def test_a_server_that_cannot_be_asked_is_named(
    monkeypatch: pytest.MonkeyPatch, looked: list[Any]
) -> None:
    async def look(client: Client, model: str | None = None) -> ServerFacts:
        raise ServerError("timeout", "no data")

    monkeypatch.setattr(server, "look", look)
    for work in (
        lambda: bench.tool_load(case()),
        lambda: bench._check_server(Target(URL), ToolLoad(URL, "m", "m", 1, 1, 1, None, 1), None),
    ):
        with failing("measure.no_server", ExitCode.ENGINE) as raised:
            work()
        assert raised.value.text.values["url"] == URL


def test_lengths_that_the_server_refuses_are_not_sent_by_another_tool(looked: list[Any]) -> None:
    load = ToolLoad(URL, "served", "served", 300, 100, 1, None, 1)
    bench._check_server(Target(URL), load, "secret")
    assert looked == [(URL, "served", 120.0, "Bearer secret")]
    with refused("measure.all_too_long", ExitCode.USAGE, longest=400):
        bench._check_server(Target(URL), replace(load, output=101), None)


# --- the outcome ---------------------------------------------------------------------------------


def test_a_run_whose_file_cannot_be_written_is_shown_with_the_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = bench.kept(
        replace(case(), options=BenchOptions(save=str(tmp_path / "file" / "a"))), BenchOutcome(RUN)
    )
    assert (report.run, report.path, report.predicted) == (RUN, None, None)
    assert report.problem is not None and report.problem.exit_code is ExitCode.FAILED


def test_a_service_is_predicted_for_the_middle_of_the_lengths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[object, Load]] = []
    monkeypatch.setattr(
        "gaudi_launch.app.estimate.of_record", lambda plan, load: asked.append((plan, load))
    )
    plan = {"engine": {"name": "x"}}
    known = replace(case(input=(100, 301), output=(10, 21)), found=Target(URL, plan=plan))

    def loads(one: BenchCase) -> list[Load]:
        asked.clear()
        bench._predicted(one)
        assert all(found == plan for found, _ in asked)
        return [load for _, load in asked]

    assert loads(known) == [Load("concurrency", 200, 15, 4)]
    several = replace(known, numbers=replace(known.numbers, concurrency=8))
    assert loads(several) == [Load("concurrency", 200, 15, 8)]
    rate = replace(known, numbers=replace(known.numbers, rate=2.0))
    assert loads(rate) == [Load("rate", 200, 15, 256, 2.0)]
    limited = replace(known, numbers=replace(known.numbers, rate=2.0, concurrency=8))
    assert loads(limited) == [Load("rate", 200, 15, 8, 2.0)]
    # nothing is predicted of one token, a trace, or a server without a record
    short = replace(known, numbers=replace(known.numbers, output=(1, 2)))
    trace = replace(known, options=BenchOptions(trace="t.csv"))
    assert loads(short) == loads(trace) == loads(case()) == []
    two = replace(known, numbers=replace(known.numbers, output=(2, 2)))
    assert loads(two) == [Load("concurrency", 200, 2, 4)]


# --- saved runs ----------------------------------------------------------------------------------
