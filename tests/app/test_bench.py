"""bench: the load in numbers, the choice of a tool, what another tool gets, saved runs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
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
    BenchReport,
    prepare,
)
from gaudi_launch.bench import external_tools, run_file, server, statistics
from gaudi_launch.bench import run as bench_run
from gaudi_launch.bench.client import Client, ServerError
from gaudi_launch.bench.external_tools import ToolLoad
from gaudi_launch.bench.run_file import BenchRun, Sample
from gaudi_launch.bench.server import ServerFacts
from gaudi_launch.bench.workload import made_up
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text
from gaudi_launch.performance.prediction import Load
from gaudi_launch.services.endpoint import Target, target
from tests.support.plots import needs_matplotlib, texts
from tests.support.refusals import failing, refused
from tests.support.reporters import Lines
from tests.support.service_record import service

pytestmark = pytest.mark.usefixtures("plain_english")

URL = "http://127.0.0.1:9"
OURS = BenchOptions(tool="builtin")
NUMBERS = BenchNumbers((256, 256), (64, 64), None, None, None, None, 0, 7, 600.0)
RUN = BenchRun(
    {"tool": "builtin", "model": "m", "began": 1_700_000_000.0},
    made_up(requests=2, input=(8, 8), output=(4, 4), rate=None, concurrency=1).to_json(),
    {"completed": 2, "failed": 0},
)

SAMPLE = Sample(0.0, 0.0, 8, 4, first=0.1, last=0.2, output=4)


class Watcher(Lines):
    """Keeps the lines of a measurement."""

    def going(self, state: object) -> None:
        """Receive progress, which these tests do not look at."""


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


def test_the_load_is_read_from_the_options() -> None:
    options = BenchOptions(
        rate="2.5",
        concurrency="3",
        requests="9",
        input="10,20",
        output="30",
        seed="5",
        tool="builtin",
        timeout="7",
    )
    assert prepare((URL,), options) == BenchCase(
        options,
        Target(URL),
        BenchNumbers((10, 20), (30, 30), 2.5, 3, 9, None, 5, 5, 7.0),
        "builtin",
    )


def test_without_options_texts_are_new_and_the_workload_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "new_seed", lambda: 77)
    found = prepare(("127.0.0.1:9/v1",), BenchOptions())
    assert (found.numbers, found.tool, found.program, found.with_our_client) == (
        replace(NUMBERS, texts=77),
        "builtin",
        "",
        True,
    )
    assert found.numbers.most_at_once == 4
    assert replace(found.numbers, rate=1.0).most_at_once is None
    assert replace(found.numbers, rate=1.0, concurrency=2).most_at_once == 2


@pytest.mark.parametrize(
    ("words", "options", "id", "values"),
    [
        ((), OURS, "usage.missing_argument", {"name": "URL|NAME"}),
        (("a", "b"), OURS, "measure.one_server", {"found": "a b"}),
        (
            (URL,),
            BenchOptions(tool="ab"),
            "measure.tool",
            {"found": "ab", "known": ", ".join(external_tools.TOOLS)},
        ),
        (
            (URL,),
            BenchOptions(tool="vllm", trace="t.csv"),
            "measure.tool_no_trace",
            {"tool": "vllm"},
        ),
        ((URL,), BenchOptions(seconds="3"), "measure.seconds_trace", {}),
        ((URL,), BenchOptions(tool="vllm", input="1,2"), "measure.tool_plain", {"tool": "vllm"}),
        (
            (URL,),
            BenchOptions(tool="vllm", rate="1", concurrency="2"),
            "measure.tool_plain",
            {"tool": "vllm"},
        ),
        ((URL,), BenchOptions(tool="vllm", form="chat"), "measure.tool_plain", {"tool": "vllm"}),
        (
            (URL,),
            BenchOptions(tool="vllm", stop_early=True),
            "measure.tool_plain",
            {"tool": "vllm"},
        ),
        ((URL,), BenchOptions(save="/proc/a"), "measure.not_writable", {"path": "/proc/a"}),
    ],
)
def test_options_that_cannot_be_are_refused(
    words: Sequence[str],
    options: BenchOptions,
    id: str,
    values: dict[str, Any],
    tmp_path: Path,
) -> None:
    if options.save is not None:
        # a file has no folder
        (tmp_path / "file").write_text("")
        options = replace(options, save=str(tmp_path / "file" / "a"))
        values = {"path": str(options.save)}
    with refused(id, ExitCode.USAGE, **values):
        prepare(words, options)


@pytest.mark.parametrize("given", [{"concurrency": "0"}, {"requests": "0"}, {"seed": "-1"}])
def test_numbers_have_limits(given: dict[str, str]) -> None:
    with pytest.raises(LaunchError) as raised:
        prepare((URL,), replace(OURS, **given))  # type: ignore[arg-type]
    assert raised.value.exit_code is ExitCode.USAGE


def test_a_trace_may_be_cut_by_seconds() -> None:
    found = prepare((URL,), replace(OURS, trace="t.csv", seconds="1.5"))
    assert (found.numbers.seconds, found.tool) == (1.5, "builtin")
    # no other tool replays one
    assert prepare((URL,), BenchOptions(trace="t.csv")).tool == "builtin"


# --- the tool ------------------------------------------------------------------------------------


def test_auto_prefers_the_engines_client(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Target(URL, plan={"engine": {"python": "/engine/python"}})
    monkeypatch.setattr(
        external_tools, "has_vllm_client", lambda python: python == "/engine/python"
    )
    choose = bench._choose
    assert choose(BenchOptions(), found, NUMBERS) == ("vllm", "/engine/python")
    assert choose(BenchOptions(), Target(URL), NUMBERS) == ("builtin", "")
    # only our client draws lengths from a range
    assert choose(BenchOptions(), found, replace(NUMBERS, input=(1, 2))) == ("builtin", "")
    assert choose(BenchOptions(), found, replace(NUMBERS, output=(1, 2))) == ("builtin", "")
    assert choose(BenchOptions(tool="vllm"), found, NUMBERS) == ("vllm", "/engine/python")
    assert choose(BenchOptions(tool="inference-benchmarker"), found, NUMBERS) == (
        "inference-benchmarker",
        "",
    )


@pytest.mark.parametrize("python", ["/no/python", None])
def test_a_client_that_is_not_here_is_an_error(python: str | None) -> None:
    found = Target(URL, plan={"engine": {"python": python}})
    assert bench._choose(BenchOptions(), found, NUMBERS) == ("builtin", "")
    with refused("measure.no_vllm", ExitCode.FAILED, python=python or "-"):
        bench._choose(BenchOptions(tool="vllm"), found, NUMBERS)


def test_another_tool_gets_the_names_of_the_plan(looked: list[Any]) -> None:
    known = Target(URL, model="small", plan={"model": {"path": "/models/small"}})
    one = replace(case(concurrency=3), found=known)
    load = ToolLoad(URL, "small", "/models/small", 256, 64, 40, None, 3, 7)
    assert bench.tool_load(one) == load
    named = replace(one, options=BenchOptions(model="other", tokenizer="org/t"))
    assert bench.tool_load(named) == replace(load, model="other", tokenizer="org/t")
    given = replace(known, plan={"argv": ["--tokenizer", "/t"], "model": {"path": "/models/small"}})
    assert bench.tool_load(replace(one, found=given)).tokenizer == "/t"
    assert looked == []
    # a server without a record is asked for its model, which is the tokenizer's name, too
    assert bench.tool_load(case(rate=2.0, requests=5)) == ToolLoad(
        URL, "served", "served", 256, 64, 5, 2.0, None, 7
    )
    assert looked == [(URL, None, 10, None)]


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


def test_a_run_of_another_tool_is_kept_as_one_of_ours(
    looked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[Any, ...]] = []

    def run(*words: Any) -> dict[str, Any]:
        called.append(words)
        return {"raw": 1}

    monkeypatch.setattr(external_tools, "run_vllm", run)
    monkeypatch.setattr(external_tools, "vllm_summary", lambda report: {"completed": report["raw"]})
    monkeypatch.setattr(bench_run, "child_environment", lambda url, key: {"URL": url, "KEY": key})
    monkeypatch.setattr(time, "time", lambda: 12.0)
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    one = replace(case("vllm", seed=4, requests=3), program="/bin/tool")
    watcher = Watcher()
    outcome = bench.measure(one, watcher)
    load = ToolLoad(URL, "served", "served", 256, 64, 3, None, 4, 7)
    environment = {"URL": URL, "KEY": "secret"}
    assert called == [("/bin/tool", load, environment)]
    assert watcher.lines == [text("measure.tool_runs", tool="vllm", program="/bin/tool")]
    planned = made_up(
        requests=3, input=(256, 256), output=(64, 64), rate=None, concurrency=4, seed=4
    )
    assert outcome == BenchOutcome(
        BenchRun(
            {
                "tool": "vllm",
                "url": URL,
                "service": None,
                "model": "served",
                "engine": None,
                "modules": None,
                "simulated": False,
                "plan": None,
                "form": "completions",
                "began": 12.0,
                "interrupted": False,
            },
            planned.to_json(),
            {"completed": 1},
            (),
            {"raw": 1},
        )
    )


def test_our_client_gets_the_load_and_the_manner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called: list[tuple[Any, ...]] = []

    async def builtin(client: Client, *words: Any) -> tuple[BenchRun, bool]:
        called.append((client.url, client._timeout, *words))
        return RUN, True

    monkeypatch.setattr(bench_run, "builtin", builtin)
    watcher = Watcher()
    one = replace(
        case(input=(10, 20), rate=3.0, seed=2, timeout=9.0),
        options=BenchOptions(form="completions", model="m", stop_early=True),
    )
    assert bench.measure(one, watcher) == BenchOutcome(RUN, interrupted=True)
    drawn = made_up(
        requests=40, input=(10, 20), output=(64, 64), rate=3.0, concurrency=None, seed=2
    )
    manner = bench_run.RequestManner("completions", "m", ignore_eos=False, texts=7)
    assert called == [(URL, 9.0, Target(URL), drawn, watcher.going, manner)]
    with refused(
        "measure.form", ExitCode.USAGE, found="x", known="auto, chat, completions, generate"
    ):
        bench.measure(replace(one, options=BenchOptions(form="x")), watcher)
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,input_tokens,output_tokens\n0,5,6\n1,7,8\n2,9,10\n")
    replayed = replace(
        one, options=BenchOptions(trace=str(trace)), numbers=replace(NUMBERS, seconds=1.0)
    )
    bench.measure(replayed, watcher)
    workload = called[-1][3]
    assert [(row.at, row.input, row.output) for row in workload.requests] == [(0, 5, 6), (1, 7, 8)]
    assert called[-1][5] == bench_run.RequestManner(None, None, ignore_eos=True, texts=7)


def test_times_of_simulated_cards_are_those_of_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {
        "schema": 1, "steps": 0, "late_steps": 0, "busy_seconds": 0.0, "behind_seconds": 0.0,
        "real_time": True, "time_scale": 8.0, "batches": {},
    }  # fmt: skip
    sample = replace(SAMPLE, at=0.05, sent=0.06, gaps=(0.02, 0.03))
    manners: list[bench_run.RequestManner] = []
    with service("rehearsal", URL, engine={"name": "simulated", "simulated": True}) as folder:
        path = folder / "simulated-0.json"
        path.write_text(json.dumps(record))

        async def builtin(client: Client, *words: Any) -> tuple[BenchRun, bool]:
            manners.append(words[-1])
            after = {"steps": 40, "late_steps": 9, "busy_seconds": 2.0, "behind_seconds": 0.5}
            path.write_text(json.dumps(record | after))
            return replace(RUN, summary=statistics.summary([sample]), samples=(sample,)), False

        monkeypatch.setattr(bench_run, "builtin", builtin)
        one = case()
        by_name = bench.measure(replace(one, found=target("rehearsal")), Watcher()).run
        by_url = bench.measure(one, Watcher()).run
    slow = replace(sample, at=0.4, sent=0.48, first=0.8, last=1.6, gaps=(0.16, 0.24))
    assert by_name.samples == (slow,)
    expected = statistics.summary([slow])
    assert by_name.summary["tpot"] == pytest.approx(expected["tpot"], rel=1e-4)
    assert by_name.summary["output_rate"] == pytest.approx(expected["output_rate"])
    assert by_name.summary["seconds"] == pytest.approx(expected["seconds"])
    part = by_name.facts["simulated_run"]
    assert (part["steps"], part["late_steps"], part["time_scale"]) == (40, 9, 8.0)
    assert (part["real_time"], "simulated_run" in by_url.facts) == (False, False)
    assert [manner.time_scale for manner in manners] == [8.0, 1.0]
    workload = made_up(requests=9, input=(8, 8), output=(4, 4), rate=2.0, concurrency=None)
    fast = workload.hastened(8.0)
    assert [8 * each.at for each in fast.requests] == [each.at for each in workload.requests]
    # by_url is not scaled
    assert by_url.samples == (sample,)


def test_the_command_of_the_benchmarker_names_the_server() -> None:
    known = replace(case(), found=Target(URL, model="org/m"))
    words = bench.benchmarker_command(known)
    assert words[-8:] == (
        "--tokenizer-name",
        "org/m",
        "--model-name",
        "org/m",
        "--url",
        URL,
        "--profile",
        "chat",
    )
    volume = words[words.index("-v") + 1]
    assert volume.endswith("/bench/inference-benchmarker:/opt/inference-benchmarker/results")


# --- the outcome ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("summary", "interrupted", "code"),
    [
        ({"completed": 2, "failed": 0}, False, ExitCode.DONE),
        ({"completed": 2, "failed": 1}, False, ExitCode.FAILED),
        ({"completed": 0, "failed": 1}, False, ExitCode.ENGINE),
        ({"completed": 2, "failed": 0}, True, ExitCode.INTERRUPTED),
    ],
)
def test_the_exit_code_shows_how_many_requests_failed(
    summary: dict[str, int], interrupted: bool, code: ExitCode
) -> None:
    assert BenchOutcome(replace(RUN, summary=summary), interrupted).exit_code is code


def test_a_run_is_written_and_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_predicted", lambda one: "speed")
    monkeypatch.setattr(
        bench_run, "default_file", lambda label, began: tmp_path / f"{label}-{began}"
    )
    default = tmp_path / "127.0.0.1-9-1700000000.0"
    assert bench.kept(case(), BenchOutcome(RUN)) == BenchReport(RUN, default, "speed")  # type: ignore[arg-type]
    assert run_file.load(default).summary == RUN.summary
    named = replace(case(), options=BenchOptions(save=str(tmp_path / "a" / "b")))
    report = bench.kept(named, BenchOutcome(RUN))
    assert (report.path, run_file.load(tmp_path / "a" / "b").facts["model"]) == (
        tmp_path / "a" / "b",
        "m",
    )


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


def test_the_server_of_a_saved_plan_is_the_ready_service_at_its_address() -> None:
    with service("other", "http://127.0.0.1:8"), service("chat", URL):
        assert bench._service_at(URL) == "chat"
    with service("chat", URL, phase="load"):
        assert bench._service_at(URL) == URL


# --- saved runs ----------------------------------------------------------------------------------


def test_two_runs_are_compared(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    runs = [RUN, replace(RUN, summary={"completed": 3, "failed": 1})]
    for run, file in zip(runs, files, strict=True):
        run_file.save(run, Path(file))
    before, after = bench.comparison(files, None)
    assert (before.summary, after.summary) == (runs[0].summary, runs[1].summary)
    for found in ([], files[:1], [*files, files[0]]):
        with refused("measure.two_runs", ExitCode.USAGE, found=len(found)):
            bench.comparison(found, None)


@needs_matplotlib
def test_a_picture_of_two_runs_names_both(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("old.json", "new.json")]
    for file in files:
        run_file.save(replace(RUN, samples=(SAMPLE,)), Path(file))
    drawn = tmp_path / "both.SVG"
    bench.comparison(files, drawn)
    shown = " ".join(texts(drawn.read_bytes()))
    assert "A: old" in shown and "B: new" in shown
    folder = tmp_path / "folder.svg"
    folder.mkdir()
    with refused("plot.not_written", ExitCode.USAGE, path=str(folder), why="Is a directory"):
        bench.comparison(files, folder)


def test_the_name_of_a_picture_is_checked_before_the_runs_are_read() -> None:
    with refused("plot.ending", ExitCode.USAGE, path="a.jpg"):
        bench.comparison(["none", "none"], Path("a.jpg"))
