"""A positional argument is the model, or it is refused: never a word for the engine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from tests.support.serve import write_model

pytestmark = pytest.mark.usefixtures("plain_english")

MACHINE = ("--machine", "simulated:hls2", "--engine", "vllm-fork@1.21")
MODEL = "Qwen/Qwen3-8B"


def argv(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert run(["plan", *words, "--json"]) == 0
    return list(json.loads(capsys.readouterr().out)["argv"])


def test_the_only_argument_is_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert argv(capsys, MODEL, *MACHINE) == argv(capsys, "-w", MODEL, *MACHINE)


def test_the_model_may_follow_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert argv(capsys, *MACHINE, MODEL) == argv(capsys, "-w", MODEL, *MACHINE)


@pytest.mark.parametrize("words", [(".",), ("./",), ("-w", "."), ("../Small",)])
def test_a_folder_is_the_model_from_any_other_one(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(write_model(tmp_path / "Small"))
    paths = [os.path.normpath(word) for word in argv(capsys, *words, *MACHINE)]
    assert str(tmp_path / "Small") in paths
    assert run(["plan", *words, *MACHINE, "--save", str(tmp_path / "plan.yaml")]) == 0
    monkeypatch.chdir("/")
    saved = ["plan", "--plan", str(tmp_path / "plan.yaml"), "--json"]
    capsys.readouterr()
    assert run(saved) == 0
    assert json.loads(capsys.readouterr().out)["model"]["name"] == "Small"


def test_only_what_follows_the_dashes_is_for_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", MODEL, *MACHINE, "--json", "--", "--seed", "7", "--"]) == 0
    assert json.loads(capsys.readouterr().out)["argv"][-3:] == ["--seed", "7", "--"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("-i", "64", "256"), "-i 64,256"),
        (("-i", "64,", "256"), "-i 64,256"),
        (("--input=64", "256"), "--input 64,256"),
        (("-i", "800", "1024", "-o", "400", "512"), "-i 800,1024"),
        (("-o", "256", "-i", "64", "256"), "-i 64,256"),
        (("-m", "0", "1", "2", "3"), "-m 0,1,2,3"),
        (("-r", "8", "-n", "1", "24000"), "-r 8,24000"),
    ],
)
def test_figures_are_refused_with_the_option_that_they_belong_to(
    words: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "-w", MODEL, *MACHINE, *words]) == 2
    assert f"Did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("1024",), "'1024' belongs to no option; expected a model"),
        (("-l", "8192", "1.5"), "'1.5' belongs to no option; expected a model"),
        (("-w", MODEL, "foo"), f"'foo' belongs to no option, and the model is already '{MODEL}'"),
        ((MODEL, "foo", "bar"), f"'foo' belongs to no option, and the model is already '{MODEL}'"),
    ],
)
def test_every_other_argument_is_refused(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *MACHINE, *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("command", [("serve",), ("plan",), ("warmup",), ("render", "script")])
def test_each_command_with_launch_options_refuses_them(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "-w", MODEL, "-i", "64", "256"]) == 2
    assert "Did you mean -i 64,256?" in capsys.readouterr().err
