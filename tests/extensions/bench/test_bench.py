"""``gaudi-launch bench`` against a real server: arrivals that no answer holds back, files,
failures, Ctrl-C."""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.buckets.past_requests import read_past
from gaudi_launch.extensions.bench import run_file
from tests.support.cli import reading
from tests.support.plots import needs_matplotlib, size_of, texts
from tests.support.service_record import service
from tests.support.stand_in_server import FIXED, KEY, serving
from tests.support.waiting import GENEROUS, until


def bench(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["bench", *words, "--tool", "builtin", "--json"])
    out, err = capsys.readouterr()
    assert err == "", err
    return code, json.loads(out)


@pytest.mark.parametrize(("seed", "same_texts"), [((), False), (("--seed", "3"), True)])
def test_a_second_run_is_not_answered_from_the_cache_of_prefixes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, seed: tuple[str, ...], same_texts: bool
) -> None:
    runs, texts = [], []
    for name in ("a", "b"):
        with serving() as (url, manner):
            words = (
                *("-i", "40,60", "-o", "2", "--requests", "5"),
                *("--save", str(tmp_path / name), *seed),
            )
            assert bench(capsys, url, *words)[0] == 0
        runs.append(run_file.load(tmp_path / name))
        texts.append({q["messages"][0]["content"] for q in manner.questions if q.get("stream")})
    assert runs[0].workload == runs[1].workload
    # the head of a text is what a cache would know
    heads = [{" ".join(text.split()[:12]) for text in each} for each in texts]
    assert (texts[0] == texts[1], bool(heads[0] & heads[1])) == (same_texts, same_texts)


def test_a_run_is_measured_and_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    with serving(first=0.05, gap=0.02) as (url, manner):
        code, found = bench(
            capsys, url, "-i", "40,60", "-o", "5", "--requests", "12", "--save", str(file)
        )
    assert (code, found["schema"], found["tool"], found["form"], found["file"]) == (
        0,
        1,
        "builtin",
        "chat",
        str(file),
    )
    summary = found["summary"]
    assert (summary["completed"], summary["failed"], summary["output_tokens"]) == (12, 0, 60)
    # the server cannot have been quicker: the first piece after 0.05 s, four more and the end after
    # 0.02 s each
    saved = run_file.load(file)
    waits = [(sample.first or 0) - sample.at for sample in saved.samples]
    lives = [(sample.last or 0) - sample.at for sample in saved.samples]
    assert min(waits) >= 0.05 and min(lives) >= 0.13
    assert summary["ttft"]["p50"] == pytest.approx(statistics.median(waits), abs=1e-5)
    assert summary["latency"]["p50"] == pytest.approx(statistics.median(lives), abs=1e-5)
    assert summary["ttft"]["p50"] < summary["latency"]["p50"]
    paces = [(life - wait) / 4 for life, wait in zip(lives, waits, strict=True)]
    assert summary["tpot"]["p50"] == pytest.approx(statistics.median(paces), abs=1e-5)
    assert len(saved.samples) == 12
    # the texts have just the lengths that were asked for, and no two begin alike
    assert [sample.input for sample in saved.samples] == [
        sample.wanted_input for sample in saved.samples
    ]
    asked = [q["messages"][0]["content"] for q in manner.questions if q.get("stream")]
    assert {len(text.split()) + FIXED for text in asked} <= set(range(40, 61)) and len(
        set(asked)
    ) == 12
    assert all(q["ignore_eos"] for q in manner.questions if q.get("stream"))


def test_arrivals_are_not_held_back_by_slow_answers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One place in the server, and no answer before the last of ten arrivals in 0.45 s: whoever
    waits for answers would never send the second. The last of them is answered a second after
    all came, and that is what its user has waited."""
    trace = tmp_path / "trace.csv"
    rows = "\n".join(f"{0.05 * number},20,1" for number in range(10))
    trace.write_text(f"t_seconds,input_tokens,output_tokens\n{rows}\n")
    with serving(first=0.1, at_once=1, hold=10) as (url, _):
        code, found = bench(
            capsys, url, "--trace", str(trace), "--save", str(tmp_path / "own.json")
        )
    assert code == 0
    samples = run_file.load(tmp_path / "own.json").samples
    assert [round(sample.at, 2) for sample in samples] == [round(0.05 * n, 2) for n in range(10)]
    assert found["summary"]["ttft"]["max"] >= 1 and found["workload"]["arrivals"] == "own"
    # with a limit of ours the wait is on our side, and counts just the same
    with serving(first=0.1, at_once=1) as (url, manner):
        code, found = bench(capsys, url, "--trace", str(trace), "--concurrency", "1")
        times = manner.times[-10:]
    assert code == 0 and times[-1] - times[0] >= 0.9
    assert found["summary"]["ttft"]["max"] >= 0.55 and found["summary"]["late"]["max"] >= 0.45


def test_without_a_rate_each_waits_for_a_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "run.json"
    with serving(first=0.1) as (url, _):
        words = ("-i", "20", "-o", "1", "--requests", "6", "--concurrency", "2")
        code, found = bench(capsys, url, *words, "--save", str(file))
    assert (code, found["workload"]["arrivals"], found["workload"]["concurrency"]) == (
        0,
        "closed",
        2,
    )
    # three rounds of 0.1 s; nobody's wait for a place counts, so two places have room for all of
    # them one by one
    seconds = found["summary"]["seconds"]
    assert (
        seconds >= 0.3
        and sum((sample.last or 0) - sample.at for sample in run_file.load(file).samples)
        <= 2 * seconds
    )


def test_failures_are_counted_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(fail_from=8) as (url, _):
        code, found = bench(
            capsys, url, "-i", "20", "-o", "2", "--requests", "10", "--concurrency", "1"
        )
    assert code == 1 and found["summary"]["failed"] == 6
    assert found["errors"] == [{"error": "status 500", "count": 6, "example": "the engine is dead"}]
    with serving(bad="json") as (url, _):
        code, found = bench(capsys, url, "-i", "20", "-o", "2", "--requests", "3")
    assert (code, found["summary"]["completed"], found["errors"][0]["error"]) == (4, 0, "protocol")
    assert found["summary"]["ttft"] is None


@pytest.mark.parametrize("form", ["old-tgi", "base"])
def test_other_forms(capsys: pytest.CaptureFixture[str], form: str) -> None:
    with serving(form=form, gap=0.002) as (url, manner):
        code, found = bench(capsys, url, "-i", "30", "-o", "4", "--requests", "3")
    assert (code, found["summary"]["output_tokens"], found["summary"]["input_tokens"]) == (
        0,
        12,
        90,
    )
    assert ("inputs" in manner.questions[-1]) == (form == "old-tgi")


def test_too_long_requests_are_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        '{"prompt_tokens": 50, "completion_tokens": 2}\n'
        '{"prompt_tokens": 5000, "completion_tokens": 2}\n{"prompt_tokens": 7}\n'
    )
    with serving() as (url, _):
        code, found = bench(capsys, url, "--trace", str(trace))
        assert (code, found["workload"]["left_out"], found["summary"]["completed"]) == (0, 1, 1)
        notes = read_past(str(trace)).notes
        assert found["workload"]["notes"] == [each.to_json() for each in notes]
        assert run(["bench", url, "--tool", "builtin", "-i", "5000"]) == 2
    assert "longer than the server accepts (4,096 tokens)" in capsys.readouterr().err


def test_a_named_service_and_its_default_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    plan: dict[str, Any] = {"engine": {"name": "vllm-fork", "version": "1.21"}, "modules": [0, 1]}
    with serving(key=True, gap=0.002) as (url, _), service("mine", url, **plan):
        assert run(["bench", "mine", "-i", "20", "-o", "3", "--requests", "5"]) == 0
        assert run(["bench", "mine", "-i", "20", "-o", "3", "--requests", "5", "--lang", "zh"]) == 0
    out, err = capsys.readouterr()
    files = sorted((state_dir() / "bench").iterdir())
    assert len(files) == 2 and all(file.name.startswith("mine-") for file in files)
    saved = files[0].read_text()
    assert KEY not in out + err + saved
    assert (json.loads(saved)["engine"], json.loads(saved)["modules"]) == ("vllm-fork@1.21", [0, 1])
    assert "5 of 5 requests" in out and "完成 5 个请求中的 5 个" in out
    assert (
        "20 input tokens, 3 output tokens (seed 0)" in out and "输入 20 个 token，输出 3 个" in out
    )
    assert run(["bench", "compare", *map(str, files)]) == 0
    out = capsys.readouterr().out
    assert "time to first token (TTFT) p99" in out and "workloads differ" not in out
    compared = reading(capsys, "bench", "compare", *map(str, files))
    assert {"rate" in row["name"] for row in compared["rows"]} == {
        True,
        False,
    }


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["URL", "--rate", "fast"], 2, "--rate"),
        (["URL", "--rate", "0"], 2, "--rate"),
        (["URL", "-i", "9,3"], 2, "-i is"),
        (["URL", "-o", "0"], 2, "-o is"),
        (["URL", "--requests", "-3"], 2, "--requests"),
        (["URL", "--concurrency", "x"], 2, "--concurrency"),
        (["URL", "--trace", "/nonexistent"], 2, "/nonexistent"),
        (["URL", "--tool", "wrk"], 2, "not a valid measuring tool"),
        (["URL", "--form", "poem"], 2, "not a valid API"),
        (["URL", "--plot", "a.png"], 2, "bench compare"),
        (["compare", "a", "b", "--plot", "a.gif"], 2, ".png or .svg"),
        (["URL", "--tool", "vllm", "--trace", "x"], 2, "vllm cannot replay"),
        (["URL", "--tool", "vllm", "-i", "1,2"], 2, "takes one input length"),
        (["URL", "--tool", "guidellm"], 2, "not a valid measuring tool"),
        (["URL", "--tool", "vllm"], 1, "vllm bench serve"),
        (["URL", "other"], 2, "Expected one server"),
        (["compare", "a"], 2, "two files"),
        (["compare", "a", "b"], 2, "cannot be read"),
        (["nobody"], 2, "nobody"),
        ([], 2, "There is no service"),
    ],
)
def test_bad_words_change_nothing(
    current_folder: Path,
    no_programs: None,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    says: str,
    tmp_path: Path,
) -> None:
    with serving() as (url, manner):
        assert run(["bench", *(url if word == "URL" else word for word in words)]) == code
    out, err = capsys.readouterr()
    assert says in err and "Traceback" not in out + err
    assert manner.questions == [] and list(tmp_path.iterdir()) == []


@needs_matplotlib
def test_runs_are_drawn_by_the_ending_of_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    options = ["--tool", "builtin", "-i", "20", "-o", "3", "--requests", "3"]
    with serving() as (url, _):
        for file in files:
            assert run(["bench", url, *options, "--save", str(file)]) == 0
    raster, both = tmp_path / "both.png", tmp_path / "both.svg"
    for picture in (raster, both):
        assert run(["bench", "compare", *map(str, files), "--plot", str(picture)]) == 0
    assert size_of(raster.read_bytes()) == (1650, 720)
    capsys.readouterr()
    labels = texts(both.read_bytes())
    assert {"A: one", "B: two"} <= set(labels)
    load = "3 requests, 60 input and 9 output tokens in all"
    assert [label for label in labels if label.startswith(load)] != []


def test_a_file_that_cannot_be_written_is_told_before_measuring(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with serving() as (url, manner):
        for option, place in (("--save", tmp_path / "file/x.json"), ("--save", tmp_path)):
            assert run(["bench", url, "--tool", "builtin", option, str(place)]) == 2
            assert "cannot be written" in capsys.readouterr().err
    assert manner.heads == []


def test_a_disk_that_fills_up_costs_the_file_not_the_figures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["bench", "--tool", "builtin", "-i", "20", "-o", "2", "--requests", "2"]
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    with serving() as (url, _):
        # as on a full disk, a file can be created and takes only its first bytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, old[1]))
        try:
            code = run([*words, url, "--save", str(tmp_path / "run.json")])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
    out, err = capsys.readouterr()
    assert (code, [*tmp_path.glob("*run.json*")]) == (1, [])
    assert "2 of 2 requests" in out and "File too large" in err


def test_a_server_that_refuses_is_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(key=True) as (url, _):
        assert run(["bench", url, "--tool", "builtin"]) == 1
    assert "VLLM_API_KEY" in capsys.readouterr().err
    assert run(["bench", "127.0.0.1:9", "--tool", "builtin"]) == 1
    with serving(status=500) as (url, _):
        assert run(["bench", url, "--tool", "builtin"]) == 4
    assert not (state_dir() / "bench").exists()


def test_control_c_keeps_what_is_done(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    with serving(gap=0.02) as (url, manner):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gaudi_launch", "bench", url, "--tool", "builtin"),
                *("--rate", "20"),
                *("--requests", "5000", "-i", "20", "-o", "5", "--save", str(file), "--json"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )
        until(lambda: manner.streamed >= 20, "the twentieth answer")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert (found["interrupted"], found["errors"]) == (True, [])
    assert 10 < found["summary"]["completed"] < 5000 and found["summary"]["failed"] == 0
    assert len(run_file.load(file).samples) == found["summary"]["requests"]
    assert "Traceback" not in err
