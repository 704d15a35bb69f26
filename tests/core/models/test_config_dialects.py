"""Families that write config.json in their own way, against the classes that run them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gaudi_launch.core.models.cached_layers import cached_layers
from gaudi_launch.core.models.config import model_from_config
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.parameter_count import parameters_of
from gaudi_launch.core.models.sizing import kv_bytes_per_token
from tests.support.places import TESTS

MODELS: dict[str, dict[str, Any]] = json.loads(
    (TESTS / "data" / "models" / "families.json").read_text(encoding="utf-8")
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
