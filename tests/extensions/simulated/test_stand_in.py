"""The model that vLLM reads instead of the real one: config.json and tokenizer, as one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.models.model import Model
from gaudi_launch.extensions.simulated.stand_in import (
    Tokenizer,
    config_text,
    stand_in_config,
    tokenizer_of,
)
from tests.support.vllm_gaudi_plans import LLAMA

OWN = Tokenizer("/t", 1000, own=True)


def test_the_stand_in_has_the_sizes_of_the_model() -> None:
    model = replace(LLAMA, intermediate_size=14336)
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 1000,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
        "bos_token_id": None,
        "eos_token_id": None,
    }
    found = stand_in_config(model, OWN, 4096, 2)
    assert found == expected
    assert json.loads(config_text(found)) == expected
    assert config_text({"a": 1}) == '{\n "a": 1\n}\n'


def sizes(model: Model, longest: int, cards: int) -> tuple[int, ...]:
    found = stand_in_config(model, OWN, longest, cards)
    names = (
        "num_attention_heads",
        "num_key_value_heads",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "head_dim",
        "max_position_embeddings",
    )
    return tuple(found[name] for name in names)


def test_unknown_sizes_and_heads_that_cannot_be_divided_are_replaced() -> None:
    empty = Model("m", "m")
    assert sizes(empty, 4096, 4) == (4, 4, 512, 2048, 1, 128, 4096)
    odd = replace(empty, heads=30, kv_heads=5, layers=3, max_position_embeddings=100, head_dim=64)
    assert sizes(odd, 4096, 4) == (4, 4, 512, 2048, 3, 64, 4096)
    assert sizes(odd, 50, 2) == (30, 5, 3840, 15360, 3, 64, 100)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model", "tekken.json"])
def test_a_folder_with_a_tokenizer_is_the_models_own(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    model = Model(str(tmp_path), "m", vocab_size=7)
    assert tokenizer_of(model) == Tokenizer(str(tmp_path), 7, own=True)
    assert tokenizer_of(replace(model, vocab_size=None)).vocabulary == 49152


def test_any_other_model_gets_the_demos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path / "engines"))
    demo = tmp_path / "models" / "demo"
    assert tokenizer_of(Model("org/m", "m")) == Tokenizer(str(demo), 49152, own=False)
    demo.mkdir(parents=True)
    (demo / "config.json").write_text('{"vocab_size": 99}')
    assert tokenizer_of(Model("org/m", "m", vocab_size=3)) == Tokenizer(str(demo), 99, own=False)
    (demo / "config.json").write_text('{"vocab_size": "many"}')
    assert tokenizer_of(Model("org/m", "m")).vocabulary == 49152
