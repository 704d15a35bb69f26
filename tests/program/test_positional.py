"""A positional argument is the model, or it is refused: never a word for the engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from tests.support.cli import reading
from tests.support.serve import write_model

pytestmark = pytest.mark.usefixtures("plain_english")

MACHINE = ("--machine", "simulated:hls2", "--engine", "vllm-fork@1.21")
MODEL = "Qwen/Qwen3-8B"


def argv(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    return list(reading(capsys, "plan", *words)["argv"])


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
    capsys.readouterr()
    saved = reading(capsys, "plan", "--plan", str(tmp_path / "plan.yaml"))
    assert saved["model"]["name"] == "Small"


def test_only_what_follows_the_dashes_is_for_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    words = argv(capsys, MODEL, *MACHINE, "--", "--seed", "7", "--")
    assert words[-3:] == ["--seed", "7", "--"]
