"""Benchmarks of others: their command lines, their reports (recorded from real runs against the
CPU engine), and their processes, played by small scripts."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch import interrupt
from gaudi_launch.bench import external_tools, run_file
from gaudi_launch.bench.external_tools import ToolLoad
from gaudi_launch.cli.main import run
from gaudi_launch.errors import ExitCode
from tests.support.places import DATA
from tests.support.refusals import failing
from tests.support.service_record import service
from tests.support.stand_in_server import KEY, serving

DATA = DATA / "bench"
LOAD = ToolLoad("http://h:1", "m", "org/m", 64, 16, 6, None, 2)


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / name).read_text())
    return found


def test_the_report_of_vllm() -> None:
    found = external_tools.vllm_summary(recorded("vllm-0.32.0.json"))
    assert found == {
        "requests": 4,
        "completed": 4,
        "failed": 0,
        "seconds": 1.4368486040002608,
        "input_tokens": 256,
        "output_tokens": 64,
        "request_rate": 2.7838701926311464,
        "output_rate": 44.54192308209834,
        "total_rate": 222.70961541049172,
        "ttft": {
            "mean": 0.193594,
            "p50": 0.164024,
            "p90": 0.297443,
            "p95": 0.318604,
            "p99": 0.335532,
        },
        "tpot": {
            "mean": 0.034332,
            "p50": 0.033381,
            "p90": 0.040031,
            "p95": 0.040965,
            "p99": 0.041713,
        },
        "itl": {
            "mean": 0.034332,
            "p50": 0.03083,
            "p90": 0.033979,
            "p95": 0.039365,
            "p99": 0.152011,
        },
        "latency": {
            "mean": 0.708575,
            "p50": 0.700074,
            "p90": 0.759358,
            "p95": 0.764564,
            "p99": 0.76873,
        },
    }


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["mean_ttft_ms", "p50_itl_ms", "completed", "num_prompts", "failed"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.lists(st.none()),
    )
)
def test_no_report_ends_in_a_traceback(report: dict[str, Any]) -> None:
    external_tools.vllm_summary(report)


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


ENGINE = """
import os, shutil, sys
if sys.argv[1] == "-c":
    print("True")
    sys.exit(0)
assert "s3cret" not in " ".join(sys.argv) and os.environ["OPENAI_API_KEY"] == "s3cret"
# a proxy must not swallow the server's own address
assert "127.0.0.1" in os.environ["no_proxy"].split(",") and os.environ["http_proxy"]
word = sys.argv.index
shutil.copy(DATA, os.path.join(sys.argv[word("--result-dir") + 1],
                               sys.argv[word("--result-filename") + 1]))
"""


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def bench(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    code = run(["bench", *words, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def test_the_engines_own_client(capsys: pytest.CaptureFixture[str], keyed: Path) -> None:
    python = script(
        keyed / "engine/python", ENGINE.replace("DATA", repr(str(DATA / "vllm-0.32.0.json")))
    )
    file = keyed / "run.json"
    plan: dict[str, Any] = {
        "engine": {"name": "vllm-fork", "version": "1.21", "python": str(python)}
    }
    with serving(key=True) as (url, _), service("mine", url, **plan):
        load = ("mine", "-i", "64", "-o", "16", "--requests", "4", "--save", str(file))
        code, found, err = bench(capsys, *load)
        assert (code, found["tool"], found["service"], found["engine"]) == (
            0,
            "vllm",
            "mine",
            "vllm-fork@1.21",
        )
        assert found["summary"]["ttft"]["p50"] == 0.164024 and str(python) in err
        assert (found["workload"]["requests"], found["workload"]["concurrency"]) == (4, 4)
        assert run_file.load(file).report == recorded("vllm-0.32.0.json")
        assert KEY not in file.read_text() + err
        # what it cannot do is not left out in silence
        for word in (("--form", "chat"), ("--stop-early",), ("-i", "20,30")):
            found = bench(capsys, "mine", "-o", "2", "--requests", "1", *word)[1]
            assert found["tool"] == "builtin"
            assert run(["bench", "mine", "--tool", "vllm", *word]) == 2
        capsys.readouterr()
        # it would let the answers be cut, and count them
        code, found, _ = bench(capsys, "mine", "-i", "4000", "-o", "97")
        assert (code, found["error"]["id"]) == (2, "measure.all_too_long")


def test_seconds_are_those_of_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "127.0.0.1:9", "--seconds", "5"]) == 2
    assert "--trace" in capsys.readouterr().err


def test_the_docker_command_is_printed_not_run(
    capsys: pytest.CaptureFixture[str], keyed: Path
) -> None:
    with serving(key=True) as (url, _):
        assert run(["bench", url, "--tool", "inference-benchmarker", "--tokenizer", "org/m"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("docker run --rm -it --net host") and "--model-name stand-in" in out
    assert "API_KEY" in err and KEY not in out + err


RATED = ToolLoad("http://h:1", "m", "org/m", 64, 16, 6, 2.5, None, 7)


def test_the_complete_command_of_vllms_client() -> None:
    def command(*pace: str, seed: str) -> list[str]:
        return [
            *("/e/python", "-m", "vllm.entrypoints.cli.main", "bench", "serve"),
            *("--base-url", "http://h:1", "--model", "m", "--tokenizer", "org/m"),
            *("--dataset-name", "random", "--random-input-len", "64"),
            *("--random-output-len", "16", "--num-prompts", "6", "--seed", seed, *pace),
            *("--ignore-eos", "--disable-tqdm", "--save-result"),
            *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99"),
            *("--result-dir", "/t", "--result-filename", "r.json"),
        ]

    path = Path("/t/r.json")
    closed = command("--max-concurrency", "2", seed="0")
    assert external_tools.vllm_words("/e/python", LOAD, path) == closed
    rated = command("--request-rate", "2.5", seed="7")
    assert external_tools.vllm_words("/e/python", RATED, path) == rated


def test_the_complete_docker_command() -> None:
    assert external_tools.benchmarker_words(LOAD, Path("/state"), "fixed") == [
        *("docker", "run", "--rm", "-it", "--net", "host"),
        *("-v", "/state:/opt/inference-benchmarker/results", "-e", "HF_TOKEN", "-e", "API_KEY"),
        *("ghcr.io/huggingface/inference-benchmarker:latest", "inference-benchmarker"),
        *("--tokenizer-name", "org/m", "--model-name", "m", "--url", "http://h:1"),
        *("--profile", "fixed"),
    ]
    folder = ToolLoad("u", "m", "/models/m", 1, 1, 1, None, 1)
    with failing("measure.hub_tokenizer", ExitCode.USAGE):
        external_tools.benchmarker_words(folder, Path("/state"))


def test_a_reports_missing_figures_are_left_out() -> None:
    assert external_tools.vllm_summary({"completed": 3, "num_prompts": 5, "mean_ttft_ms": 250}) == {
        "completed": 3,
        "requests": 5,
        "failed": 2,
        "ttft": {"mean": 0.25},
        "tpot": None,
        "itl": None,
        "latency": None,
    }
    assert external_tools.vllm_summary({"duration": True})["requests"] == 0


def ending(
    monkeypatch: pytest.MonkeyPatch, status: int, output: str, report: str | None
) -> list[Any]:
    """End each program with this status; return what is run."""
    ran: list[Any] = []

    def run_it(argv: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        ran.append((argv, options))
        if report is not None:
            (options["cwd"] / "report.json").write_text(report)
        return subprocess.CompletedProcess(argv, status, output, "")

    monkeypatch.setattr(interrupt, "run", run_it)
    return ran


def test_a_tool_runs_in_a_folder_of_its_own_with_its_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = ending(monkeypatch, 0, "", '{"a": 1}')
    assert external_tools.run_vllm("/p", LOAD, {"A": "1"}) == {"a": 1}
    folder = (options := ran[0][1])["cwd"]
    assert ran[0][0] == external_tools.vllm_words("/p", LOAD, folder / "report.json")
    assert options["ending"] == interrupt.Ending(folder=str(folder))
    assert (options["env"], options["streams"]) == ({"A": "1"}, interrupt.MIXED)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("status", "report", "values"),
    [
        (3, '{"a": 1}', {"tool": "vllm", "why": "exit status 3"}),
        (0, "[]", {"tool": "vllm", "why": "exit status 0"}),
    ],
)
def test_a_tool_without_a_report_has_failed(
    status: int, report: str, values: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = "".join(f"line {number}\n" for number in range(30))
    ending(monkeypatch, status, output, report)
    with failing("measure.tool_failed", ExitCode.FAILED) as caught:
        external_tools.run_vllm("/p", LOAD, {})
    assert {name: caught.value.text.values[name] for name in values} == values
    # the last twenty lines of its output
    assert caught.value.detail == "\n".join(f"line {number}" for number in range(10, 30))


@pytest.mark.parametrize("report", [None, "{"])
def test_a_report_that_cannot_be_read_is_a_failure(
    report: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = ending(monkeypatch, 0, "", report)
    with failing("measure.tool_failed", ExitCode.FAILED) as caught:
        external_tools.run_vllm("/p", LOAD, {})
    values = caught.value.text.values
    why = str(ran[0][1]["cwd"]) if report is None else "Expecting property name"
    assert values["tool"] == "vllm" and why in values["why"]


@pytest.mark.parametrize(
    ("status", "output", "has"), [(0, "True\n", True), (0, "False\n", False), (1, "True\n", False)]
)
def test_an_interpreter_shows_whether_it_has_vllms_client(
    status: int, output: str, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = ending(monkeypatch, status, output, None)
    assert external_tools.has_vllm_client("/p") is has
    assert (ran[0][0][:2], ran[0][1]) == (["/p", "-c"], {"seconds": 60})
