"""A model of which only the name is known: what each command says of it, and similar names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.planning.model_name import (
    near_folders,
)
from tests.support.shards import shard

MACHINE = ("--machine", "simulated:hls2")


@pytest.fixture(autouse=True)
def _wide_and_empty(monkeypatch: pytest.MonkeyPatch, plain_english: None, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("file", "complete"),
    [
        ("tokenizer.json", True),
        ("tokenizer.model", True),
        ("tokenizer.model.v3", True),
        ("spiece.model", True),
        ("tekken.json", True),
        ("vocab.txt", True),
        ("qwen.tiktoken", True),
        ("tokenization_chatglm.py", True),
        ("tokenizer_config.json", False),
        ("README.md", False),
    ],
)
def test_a_folder_without_a_tokenizer_is_incomplete(
    file: str, complete: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"model_type": "qwen3", "num_hidden_layers": 2, "architectures": ["Qwen3ForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shard(tmp_path / "model.safetensors", {"a": ("BF16", [64], 128)})
    (tmp_path / file).write_text("")
    words = (str(tmp_path), "-n", "1", *MACHINE)
    assert run(["plan", *words]) == 0
    shown = capsys.readouterr().out
    assert ("(tokenizer.json)" not in shown.splitlines()[0]) == complete
    assert run(["plan", *words, "--json"]) == 0
    assert (json.loads(capsys.readouterr().out)["verdict"] != "refused") == complete
    run(["doctor", "-w", str(tmp_path), *MACHINE])
    assert ("tokenizer.json" not in capsys.readouterr().out) == complete


def test_the_folder_beside_a_missing_one_is_found(tmp_path: Path) -> None:
    right = tmp_path / "models" / "Qwen3-8B"
    right.mkdir(parents=True)
    assert near_folders(tmp_path / "modles" / "Qwen3-8B") == (str(right),)
    assert near_folders(tmp_path / "models" / "Qwen3-8b") == (str(right),)
    assert near_folders(tmp_path / "modles" / "Llama") == ()
    assert near_folders(right) == ()
