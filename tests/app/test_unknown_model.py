"""Each command that plans by a name alone warns once of a name that nothing is known by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.app.unknown_model import near_folders
from gaudi_launch.cli.main import run

TYPO = "Qwen/Qwen2-72B-Intsruct"
MACHINE = ("--machine", "simulated:hls2")
OPTIONS = ("-w", TYPO, "-n", "4", "--engine", "vllm-fork@1.21", *MACHINE)


@pytest.fixture(autouse=True)
def _wide_and_empty(monkeypatch: pytest.MonkeyPatch, plain_english: None, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)


COMMANDS = {
    "plan": ("plan", *OPTIONS),
    "warmup": ("warmup", *OPTIONS),
    "fit": ("fit", TYPO, "--accelerator", "gaudi2", "--engine", "vllm-fork@1.21"),
    "migrate": ("migrate", f"bash start_gaudi_vllm_server.sh -w {TYPO} -n 4", *MACHINE),
    "render": ("render", "script", *OPTIONS),
    "capacity": (
        "capacity",
        TYPO,
        "--accelerator",
        "gaudi2",
        "--rate",
        "0.1",
        "-i",
        "64",
        "-o",
        "16",
        "-n",
        "4",
    ),
    "cluster plan": ("cluster", "plan", "-w", TYPO, "--hosts", "a=simulated:hls2,b=simulated:hls2"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelled_hub_id_is_named_once_with_its_neighbour(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run([*COMMANDS[name]])
    out, err = capsys.readouterr()
    assert code == 0
    shown = " ".join((out + err).split())
    assert shown.count("Nearest names: Qwen/Qwen2-72B-Instruct") == 1
    assert "profile qwen2-72b" in shown


@pytest.mark.parametrize("name", ["plan", "warmup", "fit", "migrate"])
def test_json_has_the_warning(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMMANDS[name], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    key = {"migrate": "notes", "warmup": "assumptions"}.get(name, "warnings")
    assert [each["id"] for each in document[key]].count("plan.name_assumed_near") == 1


def test_unknown_sizes_are_stated_and_memory_was_not_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["plan", "-w", "acme/Never-Heard-Of", *MACHINE, "--json"]) == 0
    found = [each["id"] for each in json.loads(capsys.readouterr().out)["warnings"]]
    assert found.count("plan.name_sizeless") == 1
    assert found.count("plan.memory_unchecked") == 1


def test_a_known_hub_id_is_not_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "-w", "Qwen/Qwen2-72B-Instruct", "-n", "4", *MACHINE, "--json"]) == 0
    found = [each["id"] for each in json.loads(capsys.readouterr().out)["warnings"]]
    assert [each for each in found if each.startswith("plan.name")] == []


def test_the_folder_beside_a_missing_one_is_found(tmp_path: Path) -> None:
    right = tmp_path / "models" / "Qwen3-8B"
    right.mkdir(parents=True)
    assert near_folders(tmp_path / "modles" / "Qwen3-8B") == (str(right),)
    assert near_folders(tmp_path / "models" / "Qwen3-8b") == (str(right),)
    assert near_folders(tmp_path / "modles" / "Llama") == ()
    assert near_folders(right) == ()
