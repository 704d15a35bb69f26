"""Benchmarks of others: their command lines, their reports (recorded from real runs against the
CPU engine), and their processes, played by small scripts."""

from __future__ import annotations

import json
import shutil
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
from gaudi_launch.errors import ExitCode, LaunchError
from tests.support.places import DATA
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


def test_the_report_of_guidellm() -> None:
    found = external_tools.guidellm_summary(recorded("guidellm-0.8.1.json"))
    counts = {
        name: found[name]
        for name in ("requests", "completed", "failed", "input_tokens", "output_tokens")
    }
    assert counts == {
        "requests": 6,
        "completed": 6,
        "failed": 0,
        "input_tokens": 564,
        "output_tokens": 96,
    }
    assert found["ttft"] == {
        "mean": 0.283644,
        "p50": 0.27531,
        "p90": 0.404037,
        "p95": 0.404037,
        "p99": 0.404037,
        "max": 0.404037,
    }
    # its report says 49.1 ms between tokens, and 63.7 ms a token with the first one counted in
    assert 0.049 < found["tpot"]["mean"] < 0.05 and 0.9 < found["latency"]["mean"] < 1.1
    assert found["seconds"] == pytest.approx(3.156, abs=0.001)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "benchmarks",
                        "metrics",
                        "successful",
                        "percentiles",
                        "duration",
                        "request_totals",
                    ]
                )
                | st.sampled_from(
                    ["time_to_first_token_ms", "mean_ttft_ms", "completed", "num_prompts", "failed"]
                ),
                inner,
            )
        ),
    )
)
def test_no_report_ends_in_a_traceback(report: Any) -> None:
    if isinstance(report, dict):
        external_tools.guidellm_summary(report)
        external_tools.vllm_summary(report)


def test_the_words_of_each() -> None:
    words = external_tools.vllm_words("/e/python", LOAD, Path("/t/report.json"))
    assert words[:5] == ["/e/python", "-m", "vllm.entrypoints.cli.main", "bench", "serve"]
    assert words[words.index("--max-concurrency") + 1] == "2" and "--request-rate" not in words
    rated = external_tools.vllm_words(
        "p", ToolLoad("u", "m", "t", 1, 1, 1, 2.5, None), Path("/t/r.json")
    )
    assert rated[rated.index("--request-rate") + 1] == "2.5" and "--max-concurrency" not in rated
    spec = external_tools.guidellm_config(LOAD, KEY, Path("/t/r.json"))["spec"]
    assert (
        spec["profile"] == {"kind": "concurrent", "streams": 2}
        and spec["backend"]["api_key"] == KEY
    )
    assert (
        "api_key"
        not in external_tools.guidellm_config(LOAD, None, Path("/t/r.json"))["spec"]["backend"]
    )
    words = external_tools.benchmarker_words(LOAD, Path("/state/results"))
    assert words[-9:] == [
        *("inference-benchmarker", "--tokenizer-name", "org/m", "--model-name", "m"),
        *("--url", "http://h:1", "--profile", "chat"),
    ]
    with pytest.raises(LaunchError):
        external_tools.benchmarker_words(
            ToolLoad("u", "m", "/models/m", 1, 1, 1, None, 1), Path("/state")
        )


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


GUIDELLM = """
import json, os, shutil, sys
if "--help" in sys.argv:
    print("--profile --constraint")
    sys.exit(0)
assert "s3cret" not in " ".join(sys.argv)
path = sys.argv[sys.argv.index("--config") + 1]
assert oct(os.stat(os.path.dirname(path)).st_mode & 0o777) == "0o700"
spec = json.load(open(path))["spec"]
assert spec["backend"]["api_key"] == "s3cret", spec
if os.environ.get("BREAK"):
    sys.exit("no tokenizer of this name")
shutil.copy(DATA, spec["outputs"][0]["path"])
"""

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


def test_guidellm_is_preferred_and_gets_the_key_unseen(
    capsys: pytest.CaptureFixture[str], keyed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(
        keyed / "bin/guidellm", GUIDELLM.replace("DATA", repr(str(DATA / "guidellm-0.8.1.json")))
    )
    file = keyed / "run.json"
    with serving(key=True) as (url, _):
        code, found, err = bench(capsys, url, "-i", "64", "-o", "16", "--save", str(file))
        assert (code, found["tool"], found["summary"]["completed"]) == (0, "guidellm", 6)
        assert "guidellm is measuring" in err and KEY not in file.read_text() + err
        assert run_file.load(file).report == recorded("guidellm-0.8.1.json")
        # ranges are beyond it
        code, found, _ = bench(capsys, url, "-i", "20,30", "-o", "2", "--requests", "2")
        assert (code, found["tool"]) == (0, "builtin")
        monkeypatch.setenv("BREAK", "1")
        code, found, err = bench(capsys, url, "-i", "64", "-o", "16")
    assert (code, found["error"]["id"]) == (1, "measure.tool_failed")
    assert "no tokenizer of this name" in found["error"]["detail"]


def test_an_older_guidellm_is_passed_over(capsys: pytest.CaptureFixture[str], keyed: Path) -> None:
    script(keyed / "bin/guidellm", "import sys; sys.exit(2)")
    with serving(key=True) as (url, _):
        code, found, _ = bench(capsys, url, "-i", "20", "-o", "2", "--requests", "2")
        assert (code, found["tool"]) == (0, "builtin")
        assert run(["bench", url, "--tool", "guidellm"]) == 1
    assert "No supported guidellm" in capsys.readouterr().err


def test_the_engines_own_client(capsys: pytest.CaptureFixture[str], keyed: Path) -> None:
    python = script(
        keyed / "engine/python", ENGINE.replace("DATA", repr(str(DATA / "vllm-0.32.0.json")))
    )
    plan: dict[str, Any] = {
        "engine": {"name": "vllm-fork", "version": "1.21", "python": str(python)}
    }
    with serving(key=True) as (url, _), service("mine", url, **plan):
        code, found, err = bench(capsys, "mine", "-i", "64", "-o", "16", "--requests", "4")
        assert (code, found["tool"], found["service"], found["engine"]) == (
            0,
            "vllm",
            "mine",
            "vllm-fork@1.21",
        )
        assert found["summary"]["ttft"]["p50"] == 0.164024 and str(python) in err
        assert (found["workload"]["requests"], found["workload"]["concurrency"]) == (4, 4)
        # what it cannot do is not left out in silence
        for word in (("--form", "chat"), ("--stop-early",)):
            assert (
                bench(capsys, "mine", "-i", "64", "-o", "2", "--requests", "1", *word)[1]["tool"]
                == "builtin"
            )
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


def test_the_complete_scenario_of_guidellm() -> None:
    def scenario(profile: dict[str, Any], seed: int, **key: str) -> dict[str, Any]:
        backend = {
            "kind": "openai_http",
            "target": "http://h:1",
            "model": "m",
            "follow_redirects": False,
        }
        data = {"kind": "synthetic_text", "prompt_tokens": 64, "output_tokens": 16}
        return {
            "spec": {
                "backend": {**backend, **key},
                "profile": profile,
                "constraints": [{"kind": "max_requests", "count": 6}],
                "tokenizer": {"kind": "hf_auto", "model": "org/m"},
                "data": [data],
                "seed": {"kind": "static", "value": seed},
                "outputs": [{"kind": "json", "path": "/t/r.json"}],
            }
        }

    path = Path("/t/r.json")
    closed = scenario({"kind": "concurrent", "streams": 2}, 0)
    assert external_tools.guidellm_config(LOAD, None, path) == closed
    poisson = scenario({"kind": "poisson", "rate": 2.5}, 7, api_key=KEY)
    assert external_tools.guidellm_config(RATED, KEY, path) == poisson


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
    with pytest.raises(LaunchError) as caught:
        external_tools.benchmarker_words(folder, Path("/state"))
    assert (caught.value.id, caught.value.exit_code) == ("measure.hub_tokenizer", ExitCode.USAGE)


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
    totals = {"total": 5, "successful": 3, "errored": 2}
    spread = {"successful": {"mean": 250, "max": 500, "percentiles": {"p50": 240, "p90": "x"}}}
    metrics = {
        "request_totals": totals,
        "time_to_first_token_ms": spread,
        "request_latency": {"successful": {"mean": 1.5}, "errored": {"mean": 9}},
        "tokens_per_second": {"successful": {"mean": 12.5}},
        "requests_per_second": {"successful": {"mean": 1.25}},
        "output_tokens_per_second": {"successful": {"mean": 2.5}},
    }
    report = {"benchmarks": [{"metrics": metrics, "duration": 2.0}, {"duration": 9}]}
    assert external_tools.guidellm_summary(report) == {
        "requests": 5,
        "completed": 3,
        "failed": 2,
        "seconds": 2.0,
        "request_rate": 1.25,
        "output_rate": 2.5,
        "total_rate": 12.5,
        "ttft": {"mean": 0.25, "p50": 0.24, "max": 0.5},
        "latency": {"mean": 1.5},
    }
    none = {"requests": 0, "completed": 0, "failed": 0}
    assert external_tools.guidellm_summary({"benchmarks": ["x"]}) == none


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
    ((argv, options),) = ran
    folder = options["cwd"]
    assert argv == external_tools.vllm_words("/p", LOAD, folder / "report.json")
    assert options == {"cwd": folder, "env": {"A": "1"}, "streams": interrupt.MIXED}
    assert not folder.exists()


@pytest.mark.parametrize(
    ("status", "report", "values"),
    [
        (3, '{"a": 1}', {"tool": "guidellm", "why": "exit status 3"}),
        (0, "[]", {"tool": "guidellm", "why": "exit status 0"}),
    ],
)
def test_a_tool_without_a_report_has_failed(
    status: int, report: str, values: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = "".join(f"line {number}\n" for number in range(30))
    ending(monkeypatch, status, output, report)
    with pytest.raises(LaunchError) as caught:
        external_tools.run_guidellm("/g", LOAD, {}, KEY)
    assert (caught.value.id, caught.value.exit_code) == ("measure.tool_failed", ExitCode.FAILED)
    assert {name: caught.value.text.values[name] for name in values} == values
    # the last twenty lines of its output
    assert caught.value.detail == "\n".join(f"line {number}" for number in range(10, 30))


@pytest.mark.parametrize("report", [None, "{"])
def test_a_report_that_cannot_be_read_is_a_failure(
    report: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = ending(monkeypatch, 0, "", report)
    with pytest.raises(LaunchError) as caught:
        external_tools.run_vllm("/p", LOAD, {})
    assert (caught.value.id, caught.value.exit_code) == ("measure.tool_failed", ExitCode.FAILED)
    values = caught.value.text.values
    why = str(ran[0][1]["cwd"]) if report is None else "Expecting property name"
    assert values["tool"] == "vllm" and why in values["why"]


@pytest.mark.parametrize(
    ("shown", "found"),
    [("--profile --constraint", "/bin/guidellm"), ("--profile", None), (None, None)],
)
def test_a_guidellm_of_another_release_is_not_used(
    shown: str | None, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def output(argv: list[str]) -> str | None:
        asked.append(argv)
        return shown

    monkeypatch.setattr(shutil, "which", {"guidellm": "/bin/guidellm"}.get)
    monkeypatch.setattr(external_tools, "_output", output)
    assert external_tools.find_guidellm() == found
    assert asked == [["/bin/guidellm", "run", "--help"]]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert external_tools.find_guidellm() is None


@pytest.mark.parametrize(
    ("status", "output", "has"), [(0, "True\n", True), (0, "False\n", False), (1, "True\n", False)]
)
def test_an_interpreter_shows_whether_it_has_vllms_client(
    status: int, output: str, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = ending(monkeypatch, status, output, None)
    assert external_tools.has_vllm_client("/p") is has
    assert (ran[0][0][:2], ran[0][1]) == (["/p", "-c"], {"seconds": 60})
    assert external_tools.has_vllm_client(None) is False
