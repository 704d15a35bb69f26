"""serve refuses a model that cannot be loaded before anything is started or written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.models.weights import has_weights
from tests.support.machines import link_tree, use

pytestmark = pytest.mark.usefixtures("plain_english")


def model(folder: Path, *files: str) -> Path:
    folder.mkdir()
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
    for name in files:
        (folder / name).write_text(json.dumps({"model_type": "qwen3", **sizes}))
    return folder


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (None, "not a local folder"),
        ((), "has no config.json"),
        (("config.json",), "has no weight files"),
        (("config.json", "training_args.bin"), "has no weight files"),
    ],
)
@pytest.mark.parametrize(
    "more", [(), ("--engine", "cpu"), ("--tuning", "reference"), ("--detach",)]
)
def test_a_folder_that_cannot_be_loaded_is_refused(
    files: tuple[str, ...] | None,
    sentence: str,
    more: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link_tree("hls2", tmp_path / "machine")
    use(monkeypatch, tmp_path / "machine")
    folder = tmp_path / "Qwen3-8B" if files is None else model(tmp_path / "Qwen3-8B", *files)
    assert run(["serve", "-w", str(folder), *more]) == 5
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "more", [("--force",), ("--", "--load-format", "dummy"), ("--machine", "simulated:hls2")]
)
def test_weights_may_be_elsewhere(
    more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model(tmp_path / "Qwen3-8B", "config.json")
    words = [
        *("serve", "-w", str(folder), "--engine", "vllm-fork@1.21"),
        *("--python", "/no/python", *more),
    ]
    assert run(words) != 0
    assert "has no weight files" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "consolidated.00.pth"])
def test_each_form_of_weights_counts(name: str, tmp_path: Path) -> None:
    assert has_weights(model(tmp_path / "m", name))
