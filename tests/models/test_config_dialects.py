"""Families that write config.json in their own way, against the classes that run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.models.cached_layers import cached_layers
from gaudi_launch.models.config import model_from_config, text_part
from gaudi_launch.models.config_dialects import in_usual_names
from gaudi_launch.models.model import Model
from gaudi_launch.models.parameter_count import parameters_of
from gaudi_launch.models.sizing import kv_bytes_per_token, weight_bytes

MODELS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "models" / "families.json").read_text(encoding="utf-8")
)["models"]
EXECUTED = sorted(name for name, row in MODELS.items() if row["by"] == "vllm")
# Mamba alone keeps no keys: the cache of one token has no size
WITH_KEYS = [name for name in EXECUTED if MODELS[name]["kv_bytes_per_token"]]


def read(name: str) -> Model:
    return model_from_config(name, MODELS[name]["config"])


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_parameters_are_those_of_the_class_or_the_model_card(name: str) -> None:
    found = parameters_of(read(name))
    assert found is not None
    # a checkpoint of starcoder2-15b has an output head that its class would share
    assert found.total == pytest.approx(MODELS[name]["parameters"], rel=0.0125)


@pytest.mark.parametrize("name", WITH_KEYS)
def test_the_cache_of_a_token_is_what_the_engine_allocates(name: str) -> None:
    assert kv_bytes_per_token(read(name)) == MODELS[name]["kv_bytes_per_token"]


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("Bamba-9B-v1", {"full": 3, "state": 29}),
        ("Falcon-H1-34B-Instruct", {"full": 72, "state": 72}),
        ("Kimi-Linear-48B-A3B-Instruct", {"latent": 7, "state": 20}),
        ("LFM2-8B-A1B", {"full": 6, "state": 18}),
        ("LongCat-Flash-Chat", {"latent": 56}),
        ("MiniMax-Text-01", {"full": 10, "state": 70}),
        ("Zamba2-7B-Instruct", {"full": 13, "state": 81}),
        ("falcon-mamba-7b", {"state": 64}),
    ],
)
def test_the_layers_of_hybrids_are_counted_by_their_cache(
    name: str, layers: dict[str, int]
) -> None:
    assert cached_layers(read(name)) == layers


def test_a_part_leaves_out_what_its_class_says() -> None:
    # llava-hf/llava-1.5-7b-hf: the text part names the class and what differs from it
    text = {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064}
    model = model_from_config(
        "llava-1.5-7b-hf",
        {
            "architectures": ["LlavaForConditionalGeneration"],
            "model_type": "llava",
            "text_config": text,
            "vision_config": {
                "model_type": "clip_vision_model", "hidden_size": 1024,
                "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 14,
            },
            "torch_dtype": "float16",
        },
    )  # fmt: skip
    assert kv_bytes_per_token(model) == 32 * 2 * 32 * 128 * 2
    # the published files have 7,063,427,072
    assert weight_bytes(model) == pytest.approx(2 * 7_063_427_072, rel=0.01)


def test_a_part_without_a_type_has_that_of_its_class() -> None:
    text = {"hidden_size": 2560, "num_hidden_layers": 34}
    document = {"model_type": "gemma3", "text_config": text}
    assert text_part(document)["num_attention_heads"] == 8


def test_a_complete_config_has_no_numbers_of_its_class() -> None:
    assert "num_hidden_layers" not in in_usual_names(
        {"model_type": "llama"}, "llama", is_part=False
    )


def test_what_config_json_says_stays() -> None:
    found = in_usual_names({"sliding_window": None, "hidden_size": 8}, "mistral", is_part=True)
    assert found["sliding_window"] is None
    assert found["hidden_size"] == 8


@pytest.mark.parametrize("name", ["bloom", "falcon-180B", "mpt-30b-chat", "opt-66b"])
def test_a_width_that_the_class_derives_gives_a_size(name: str) -> None:
    assert weight_bytes(read(name)) == pytest.approx(2 * MODELS[name]["parameters"], rel=0.01)
