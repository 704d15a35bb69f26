"""Benchmarks of others: their command lines, their reports (recorded from real runs against the
CPU engine), and their processes, played by small scripts."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.cli.main import run
from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.services.endpoint import Target
from gaudi_launch.extensions.bench import external_tools
from gaudi_launch.extensions.bench.options import BenchOptions
from tests.support.places import DATA
from tests.support.refusals import failing
from tests.support.stand_in_server import KEY, serving

DATA = DATA / "bench"
NUMBERS = BenchOptions(input=(64, 64), output=(16, 16), concurrency=2, requests=6)
SERVER = Target("http://h:1", model="m")


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / name).read_text())
    return found


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["mean_ttft_ms", "p50_itl_ms", "completed", "num_prompts", "failed"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.lists(st.none()),
    )
)
def test_no_report_ends_in_a_traceback(report: dict[str, Any]) -> None:
    external_tools.vllm_summary(report)


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def bench(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    code = run(["bench", *words, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


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


RATED = replace(NUMBERS, rate=2.5, concurrency=None, texts=7)


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
    assert external_tools.vllm_words("/e/python", SERVER, "org/m", NUMBERS, path) == closed
    rated = command("--request-rate", "2.5", seed="7")
    assert external_tools.vllm_words("/e/python", SERVER, "org/m", RATED, path) == rated


def test_the_complete_docker_command() -> None:
    assert external_tools.benchmarker_words(SERVER, "org/m", Path("/state"), "fixed") == [
        *("docker", "run", "--rm", "-it", "--net", "host"),
        *("-v", "/state:/opt/inference-benchmarker/results", "-e", "HF_TOKEN", "-e", "API_KEY"),
        *("ghcr.io/huggingface/inference-benchmarker:latest", "inference-benchmarker"),
        *("--tokenizer-name", "org/m", "--model-name", "m", "--url", "http://h:1"),
        *("--profile", "fixed"),
    ]
    with failing("measure.hub_tokenizer", ExitCode.USAGE):
        external_tools.benchmarker_words(SERVER, "/models/m", Path("/state"))


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
        external_tools.run_vllm("/p", SERVER, "org/m", NUMBERS, {})
    assert {name: caught.value.text.values[name] for name in values} == values
    # the last twenty lines of its output
    assert caught.value.detail == "\n".join(f"line {number}" for number in range(10, 30))


@pytest.mark.parametrize("report", [None, "{"])
def test_a_report_that_cannot_be_read_is_a_failure(
    report: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = ending(monkeypatch, 0, "", report)
    with failing("measure.tool_failed", ExitCode.FAILED) as caught:
        external_tools.run_vllm("/p", SERVER, "org/m", NUMBERS, {})
    values = caught.value.text.values
    why = str(ran[0][1]["cwd"]) if report is None else "Expecting property name"
    assert values["tool"] == "vllm" and why in values["why"]
