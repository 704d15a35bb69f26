"""``inspect`` as a user runs it on folders; models of a hub: test_hub_models.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from tests.support.cli import reading
from tests.support.shards import index, shard

pytestmark = pytest.mark.usefixtures("plain_english")

CONFIG = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
    "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "vocab_size": 32000,
}  # fmt: skip


def folder(tmp_path: Path, config: dict[str, Any] = CONFIG) -> Path:
    path = tmp_path / "my-model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = folder(tmp_path)
    size = shard(
        path / "1.safetensors", {"a": ("BF16", [64, 64], 8192), "a.scales": ("F16", [64], 128)}
    )
    shard(path / "2.safetensors", {"b": ("BF16", [64], 128)}, cut=4)
    index(path, "1.safetensors", "2.safetensors", "3.safetensors")
    shown = reading(capsys, "inspect", str(path))
    assert shown["weight_bytes"] >= size
    expected = {
        "schema": 1, "path": str(path), "name": "my-model", "source": "config.json",
        "parameters": 4160, "architecture": "MixtralForCausalLM", "model_type": "mixtral",
        "dtype": "bfloat16", "moe": True, "experts": 8,
        "layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "mla_rank": None,
        "max_position_embeddings": 32768, "remote_code": False, "multimodal": [],
        "files_missing": ["2.safetensors (truncated)", "3.safetensors", "tokenizer.json"],
        "kv_bytes_per_token": 131072, "profile": "mixtral-8x7b",
    }  # fmt: skip
    assert {name: shown[name] for name in expected} == expected


def test_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = folder(tmp_path)
    index(path, "model-00001-of-00001.safetensors")
    assert run(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"{path} fits on 2 Gaudi2 cards (bfloat16)."
    assert shown[2:9] == [
        f"next: gaudi-launch serve {path} -n 2",
        "architecture: MixtralForCausalLM / mixtral",
        "parameters: 46.7B, counted by its config.json",
        "heads: 32, 8 for keys and values, of 128",
        "experts: 8",
        "context: 32,768",
        "missing: 1 file (model-00001-of-00001.safetensors); --all lists them",
    ]


@pytest.mark.parametrize("path", ["/no/such/folder", "", ".", "~/nothing/at/all", "a\nb"])
def test_what_is_no_model_is_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, path: str
) -> None:
    code = run(["inspect", path])
    out, err = capsys.readouterr()
    assert (code, out) == (5, "")
    assert err.startswith("gaudi-launch: ")
