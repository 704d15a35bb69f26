"""``gaudi-launch warmup`` from the command line, on a machine without cards or engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.buckets.past_requests import read_past
from tests.support.cli import reading
from tests.support.plots import needs_matplotlib, texts

QWQ = [
    *("-w", "/models/QwQ-32B", "-n", "8", "-b", "24", "-i", "4,38912", "-o", "4,2048"),
    *("-l", "40960", "-t", "40960", "--reduce", "8,24000"),
]
FORK = ("--engine", "vllm-fork@1.21")
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"


@pytest.fixture(autouse=True)
def _no_machine(
    no_programs: None, tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine").mkdir()
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "machine"))


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = run(["warmup", "--json", *words])
    out, err = capsys.readouterr()
    assert (code, err) == (0, ""), out
    found: dict[str, Any] = json.loads(out)
    return found


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, *QWQ, *FORK)
    assert (found["schema"], found["engine"], found["max_prefill_seqs"]) == (1, "vllm-fork@1.21", 1)
    plans = {plan["strategy"]: plan for plan in found["plans"]}
    assert list(plans) == ["planned", "linear", "exponential", "linear -r 8,24000"]
    mine, script = plans["planned"], plans["linear -r 8,24000"]
    assert [plan["chosen"] for plan in plans.values()] == [True, False, False, False]
    assert (mine["uncovered"], mine["outside"]) == (0, 0.0)
    assert (len(mine["prompt"]), len(mine["decode"])) == (
        mine["prompt_graphs"],
        mine["decode_graphs"],
    )
    assert mine["prompt_graphs"] + mine["decode_graphs"] < 200
    assert mine["seconds"]["low"] < mine["seconds"]["high"]
    assert (script["prompt_graphs"], script["uncovered"] > 0, script["outside"] > 0.2) == (
        232,
        True,
        True,
    )
    assert {"plan.name_listed", "warmup.assume_cost"} <= {
        entry["id"] for entry in found["assumptions"]
    }


def test_prompts_per_step_follow_the_lengths_of_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "chat.csv"
    rows = [f"{number / 20},{40 + number % 60},{8 + number % 16}" for number in range(300)]
    trace.write_text("\n".join(["t_seconds,input_tokens,output_tokens", *rows]) + "\n")
    words = ["--engine", "vllm-gaudi", "-l", "4096", "-b", "32", "--trace", str(trace)]
    found = answer(capsys, *words)
    reason = next(entry for entry in found["assumptions"] if entry["id"] == "plan.prompts_several")
    prompts = found["max_prefill_seqs"]
    assert prompts == found["limits"]["max_num_prefill_seqs"] > 1
    assert reason["message"].startswith(f"{prompts} prompts per step: ")
    mine = {
        plan["strategy"]: plan["prompt_graphs"] + plan["decode_graphs"] for plan in found["plans"]
    }["planned"]
    one = answer(capsys, *words, "--max-prefill-seqs", "1")
    single = {
        plan["strategy"]: plan["prompt_graphs"] + plan["decode_graphs"] for plan in one["plans"]
    }["planned"]
    assert (
        one["max_prefill_seqs"] == 1
        and f", about {mine - single} more graphs to warm up" in reason["message"]
    )
    # each kind of assumption once
    assert len({entry["id"] for entry in found["assumptions"]}) == len(found["assumptions"])


def test_page_of_the_scripts_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["warmup", "--all", "--reduce", "8,24000", *FORK]) == 0
    page = capsys.readouterr().out
    for words in (
        "vllm-fork@1.21",
        "planned *",
        "linear -r 8,24000",
        "VLLM_DECODE_BLOCK_BUCKET_MAX=",
        "Assumed:",
    ):
        assert words in page


def test_page_without_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["warmup", "--all"]) == 0
    page = capsys.readouterr().out
    for words in ("vllm-gaudi", "planned *", "VLLM_BUCKETING_FROM_FILE", "Assumed:"):
        assert words in page
    assert "Memory was not checked" not in page


def test_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["warmup", "--lang", "zh", "--graphs", "60"]) == 0
    assert "未覆盖形状" in capsys.readouterr().out


def test_reference_keeps_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "--tuning", "reference")
    assert [plan["strategy"] for plan in found["plans"] if plan["chosen"]] == ["linear"]


@needs_matplotlib
def test_plugin_with_trace_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{i / 5},{200 + i % 700},{20 + i % 90}\n" for i in range(400))
    trace.write_text("t_seconds,input_tokens,output_tokens\n" + rows)
    words = ["--engine", "vllm-gaudi", "-l", "8192", "-b", "32", "--trace", str(trace)]
    found = answer(capsys, *words, "--plot", str(tmp_path / "grid.svg"))
    assert "vllm-gaudi: planned" in " ".join(texts((tmp_path / "grid.svg").read_bytes()))
    assert found["workload"]["requests"] == len(read_past(str(trace)).requests) == 400
    assert 0 < found["workload"]["distance"] <= 1
    assert found["bucket_file"].count("\n") - 1 == len(
        found["plans"][0]["prompt"] + found["plans"][0]["decode"]
    )
    assert run(["warmup", *words, "--list", "--plot", str(tmp_path / "grid.png")]) == 0
    assert found["bucket_file"] in capsys.readouterr().out
    assert (tmp_path / "grid.png").read_bytes()[:4] == b"\x89PNG"


# --- the same answer as a plan's


@pytest.mark.parametrize(
    "words",
    [
        "--engine vllm-gaudi -w Qwen/QwQ-32B -n 2 -b 64 -l 32768 -t 8192",
        "--engine vllm-gaudi -w Qwen/QwQ-32B -n 2 -- --max-model-len 8192",
        "--engine vllm-fork@1.21 -w meta-llama/Llama-3.1-8B-Instruct",
        "--engine vllm-fork@1.22 -w Qwen/QwQ-32B -n 4",
        "--engine tgi -w meta-llama/Llama-3.1-8B-Instruct -n 2",
        "--engine tgi@3.2.3 -w meta-llama/Llama-3.1-8B-Instruct -b 8",
    ],
)
def test_on_a_known_machine_it_counts_what_the_plan_counts(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--machine", "simulated:hls2", "--json", *words.split()]
    planned = reading(capsys, "plan", *line)
    found = reading(capsys, "warmup", *line)
    chosen = next(plan for plan in found["plans"] if plan["chosen"])
    assert chosen["prompt_graphs"] + chosen["decode_graphs"] == planned["buckets"]["graphs"]
    seconds = planned["estimate"]["warmup_seconds"]
    assert chosen["seconds"] == pytest.approx(seconds)
    told = [
        entry["message"] for entry in found["assumptions"] if entry["id"] == "warmup.machine_blocks"
    ]
    assert len(told) == 1 and "hls2" in told[0]


def test_tgi_makes_its_list_itself(capsys: pytest.CaptureFixture[str]) -> None:
    # facts of the 3.3.5 examples: 8B on one card 21 + 30, 70B on eight 31 + 125
    for words, prompt, decode in ((["-b", "32"], 21, 30), (["-n", "8"], 31, 125)):
        found = answer(capsys, "--engine", "tgi", *words)
        (plan,) = found["plans"]
        assert (plan["strategy"], plan["chosen"]) == ("exponential", True)
        assert (plan["prompt_graphs"], plan["decode_graphs"]) == (prompt, decode)
        assert (found["settings"], found["bucket_file"]) == ({}, None)
    # three prompts of 640 tokens are padded to four, which the budget did not warm
    assert answer(capsys, "--engine", "tgi")["plans"][0]["uncovered"] > 0
    assert answer(capsys, "--engine", "tgi", "-t", "32768")["plans"][0]["uncovered"] == 0
    assert run(["warmup", "--engine", "tgi"]) == 0
    page = capsys.readouterr().out
    assert "tgi@3.3.5" in page and "Settings" not in page and "three times" in page


def test_busy_cards_do_not_matter_where_nothing_is_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--engine", "vllm-gaudi", "-w", "meta-llama/Llama-3.1-8B-Instruct", "-b", "16"]
    free = answer(capsys, *words, "--machine", "simulated:hls2")
    busy = answer(capsys, *words, "--machine", "simulated:hls2+busy=0,1,2,3,4,5,6,7")
    assert free["plans"] == busy["plans"]


# --- the list in hand is the one that a plan of the same words takes


@pytest.mark.parametrize(
    ("words", "exported", "strategy"),
    [
        # only the engine knows its highest block, so it gets no file
        ("--engine vllm-gaudi -b 16 -- --no-enable-prefix-caching", {}, "pad"),
        ("--engine vllm-gaudi -b 16", {"VLLM_CONTIGUOUS_PA": "true"}, "pad"),
        ("--engine vllm-gaudi -b 16 --padding-limit 0.2", {}, "pad (plan)"),
        ("--engine vllm-gaudi -b 16", {"VLLM_PROMPT_BS_BUCKET_MAX": "2"}, "planned"),
        ("--engine vllm-gaudi -b 16", {"VLLM_BUCKETING_STRATEGY": "lin"}, "linear"),
        # a cache larger than all sequences together has a bucket of its own size
        ("--engine vllm-fork@1.22 -b 4 -l 2048", {}, "planned"),
        ("--engine vllm-fork@1.22 -b 4 -l 2048", {"VLLM_CONTIGUOUS_PA": "0"}, "planned"),
        (
            "--engine vllm-fork@1.22 -b 4 -l 2048",
            {"VLLM_PROMPT_BS_BUCKET_MAX": "3"},
            "linear (plan)",
        ),
        ("--engine vllm-fork@1.21 --tuning reference -r 8,8000", {}, "linear -r 8,8000"),
        # one replica's
        ("--engine ray-serve:vllm-gaudi -m 4,5,6,7 --replicas 2 -b 16", {}, "planned"),
    ],
)
def test_warmup_and_plan_agree(
    words: str,
    exported: dict[str, str],
    strategy: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in exported.items():
        monkeypatch.setenv(name, value)
    line = [
        *("--machine", "simulated:hls2", "-w", "meta-llama/Llama-3.1-8B-Instruct"),
        *("--json", *words.split()),
    ]
    planned = reading(capsys, "plan", *line)["buckets"]
    found = reading(capsys, "warmup", *line)
    (chosen,) = [plan for plan in found["plans"] if plan["chosen"]]
    assert (chosen["strategy"], chosen["prompt"], chosen["decode"]) == (
        strategy,
        planned["prompt"],
        planned["decode"],
    )
    # only the planner's list is something to set by hand
    assert bool(found["settings"] or found["bucket_file"]) == (strategy == "planned")
    assert ("warmup.used" in {note["id"] for note in found["notes"]}) == (strategy != "planned")


def test_what_a_plan_cannot_be_asked_for_is_the_planners(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "--engine vllm-gaudi -b 16 --machine simulated:hls2 -w Qwen/QwQ-32B -n 2"
    found = answer(capsys, *words.split(), "--graphs", "40", "--", "--no-enable-prefix-caching")
    assert [plan["strategy"] for plan in found["plans"] if plan["chosen"]] == ["planned"]
