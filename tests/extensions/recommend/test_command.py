"""The page and the JSON of ``recommend``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gaudi_launch.cli.main import app
from gaudi_launch.extensions.stack.stack_file import read_stack
from tests.support.cli import document
from tests.support.recommend import SMALL

# test_case.py checks the answer itself, with as many requests as users get

FEW = (
    *("--accelerator", "gaudi2", "-n", "1", "-d", "bf16", "--max-prefill-seqs", "1"),
    *("-i", "64,500", "-o", "10,50"),
)


def run(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["recommend", SMALL, *FEW, *words])
    return found.exit_code, found.stdout


def test_the_first_screen_has_the_command_and_what_else_was_possible() -> None:
    code, page = run()
    lines = page.splitlines()
    assert code == 0
    assert lines[1].startswith(f"  gaudi-launch serve {SMALL} -n 1 -d bfloat16 -i")
    for part in (
        "Runner-up:",
        "Compared with this answer:",
        "Cards needed, at most:",
        "limited by",
        "warm-up",
    ):
        assert any(part in line for line in lines[:24]), part


def test_the_object_has_winner_plan_front_and_top() -> None:
    code, page = run("--json", "--for", "throughput")
    found = json.loads(page)
    assert code == 0
    assert (found["schema"], found["goal"]) == (1, "throughput")
    assert 1 < len(found["top"]) <= 5
    assert found["top"][0] == found["winner"]
    assert found["winner"]["max_num_seqs"] == int(
        found["command"][found["command"].index("-b") + 1]
    )
    assert found["plan"]["num_blocks"] > 0
    assert found["unmet"] == []
    band = found["band"]["most_output_tokens_per_second"]
    assert band["low"] < band["expected"] < band["high"]


def test_the_answer_is_a_stack_as_printed(tmp_path: Path) -> None:
    words = ("--served-name", "chat", "-p", "9000", "--profile", "--for", "throughput")
    code, page = run(*words, "--all", "--", "--seed", "1")
    assert code == 0
    file = tmp_path / "stack.yaml"
    file.write_text("schema: 1\n" + page.partition("\nschema: 1\n")[2], encoding="utf-8")
    planned = CliRunner().invoke(
        app, ["stack", "plan", str(file), "--machine", "simulated:hls2", "--json"]
    )
    assert planned.exit_code == 0, planned.output
    found = json.loads(planned.stdout)
    assert (found["stack"], found["gateway"]["url"]) == ("stack", "http://127.0.0.1:8000")
    assert [(each["model"], each["modules"]) for each in found["services"]] == [
        ("chat", [module]) for module in range(8)
    ]
    [model] = read_stack(file).models
    assert model.options["profile"] is True
    assert model.engine_arguments == ("--seed", "1")
    assert f" -b {model.options['max-num-seqs']} " in page.partition("\nschema: 1\n")[0]


def test_targets_that_cannot_be_met_end_with_status_three_and_what_is_possible() -> None:
    code, page = run("--rate", "1/s", "--tpot", "1ms", "--json")
    found = json.loads(page)
    assert code == 3
    assert (found["winner"], found["plan"], found["command"]) == (None, None, None)
    (unmet,) = found["unmet"]
    assert (unmet["name"], unmet["target"]) == ("tpot", 0.001)
    assert unmet["factor"] == pytest.approx(unmet["found"] / 0.001, rel=0.01)


def test_too_few_cards_name_the_rate_that_they_carry() -> None:
    code, page = run("--rate", "500/s", "--nodes", "1")
    assert code == 3
    assert "cards: " in page
    assert "8 available; possible: " in page


def test_the_front_may_be_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "front.svg"
    assert run("--plot", str(picture))[0] == 0
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


def test_a_replica_over_servers_is_for_cluster_and_not_saved(tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    words = ["recommend", "meta-llama/Llama-3.1-405B-Instruct", "-d", "bf16", "--nodes", "2"]
    words += ["--machine", "simulated:hls2", "-b", "8", "--max-prefill-seqs", "1", "-l", "2048"]
    found = CliRunner().invoke(app, [*words, "--save", str(folder)])
    assert found.exit_code == 0
    assert "gaudi-launch cluster up meta-llama/Llama-3.1-405B-Instruct" in found.stdout
    assert "'cluster plan' instead of 'cluster up'" in found.stdout
    assert "Not saved" in found.stderr
    assert not folder.exists()
    page = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert (page["cluster"]["hosts"], page["stack_entry"]) == (2, None)
    assert page["compared"]["layouts"] == ["16", "8x2", "4x4", "2x8"]
    assert page["winner"]["hosts"] == 2


def test_the_page_lists_the_layouts_and_why_others_are_not_compared() -> None:
    code, page = run("--all")
    assert code == 0
    assert "(tensor parallel size x pipeline stages): 1" in page
    assert "pipeline stages are not compared" in page
    code, page = run("--json")
    compared = json.loads(page)["compared"]
    assert (compared["layouts"], compared["expert_parallel"]) == (["1"], [])


def test_what_the_search_and_the_plan_note_is_printed_once() -> None:
    words = ["recommend", "/models/DeepSeek-V3", "--all", "--machine", "simulated:hls2", "-b", "16"]
    page = CliRunner().invoke(app, words).stdout
    said = (line.partition(": ") for line in page.splitlines())
    notes = [text for word, _, text in said if word in ("note", "warning")]
    assert sum("is not a local folder" in line for line in notes) == 1
    assert sorted(set(notes)) == sorted(notes)


def test_lengths_are_the_load_of_an_engine_without_ranges(
    capsys: pytest.CaptureFixture[str], plain_english: None
) -> None:
    load = ("-i", "100,4000", "-o", "50,1000", "--machine", "simulated:hls2")
    code, shown = document(
        capsys, "recommend", "deepseek-ai/DeepSeek-R1", "-n", "8", "-b", "64", *load, "--json"
    )
    command = ["gaudi-launch", "serve", "deepseek-ai/DeepSeek-R1", "-n", "8", "-l", "5120"]
    assert (code, shown["command"][:9]) == (0, [*command, "-b", "64"])
    assert not {"-i", "-o"} & set(shown["command"])


def test_a_class_without_figures_is_named_before_the_answer() -> None:
    words = ("--accelerator", "gaudi3", "-n", "4", "-b", "16", "-t", "2048", "-i", "64", "-o", "16")
    found = CliRunner().invoke(app, ["recommend", "Qwen/Qwen3-30B-A3B", *words])
    assert found.exit_code == 0
    page, _, _ = found.stdout.partition("95 % of requests")
    assert "Assumed: the fit has no figures of this class" in page
