"""The sizes of a model that a step reads and computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.models.model import Model
from gaudi_launch.core.predict.shape import Shape, shape_of

DENSE = Model(
    "m",
    "m",
    parameters=1_000_000,
    layers=2,
    hidden_size=64,
    intermediate_size=128,
    heads=8,
    kv_heads=2,
    head_dim=16,
    vocab_size=100,
    moe=False,
    tie_word_embeddings=False,
)


def test_the_sizes_of_a_dense_model() -> None:
    embedding = 64 * 100
    expected = Shape(
        layers=2,
        attention_layers=2,
        hidden=64,
        inner=128,
        body=1_000_000 - 2 * embedding,
        head=embedding,
        width=128,
        kv_heads=2,
        kv_width=16,
    )
    assert shape_of(DENSE) == expected
    tied = replace(DENSE, tie_word_embeddings=True)
    assert shape_of(tied) == replace(expected, body=1_000_000 - embedding)
    multi_head = shape_of(replace(DENSE, kv_heads=None))
    assert multi_head == replace(expected, kv_heads=8, multi_head=True)
    some = shape_of(replace(DENSE, attention_layers=1))
    assert some == replace(expected, attention_layers=1)
    # fewer parameters than the embeddings: a body that divides nothing by zero
    small = shape_of(replace(DENSE, parameters=10))
    assert small is not None and small.body == 1.0


def test_the_sizes_of_a_mixture() -> None:
    mixture = replace(DENSE, moe=True, experts=4)
    found = shape_of(mixture)
    assert found is not None
    attention = 2 * (2 * 64 * 128 + 2 * 64 * 32)
    experts = 1_000_000 - 2 * 6400 - attention
    assert (found.experts, found.body) == (experts, attention)
    assert found.share == 2 * 3 * 64 * 128 / experts
    few = shape_of(replace(mixture, parameters=2 * 6400 + attention + 10))
    assert few is not None and (few.experts, few.share) == (10.0, 1.0)
    none = shape_of(replace(mixture, parameters=100))
    assert none is not None and (none.experts, none.share) == (0.0, 1.0)


def test_the_cache_of_a_low_rank_is_one_vector_a_layer() -> None:
    latent = shape_of(replace(DENSE, kv_heads=8, mla_rank=32))
    assert latent is not None
    assert (latent.mla_rank, latent.latent, latent.multi_head) == (32, True, False)
    assert [latent.kv_elements(cards) for cards in (1, 8)] == [64, 64]
    projected = shape_of(replace(DENSE, config={"kv_lora_rank": None}))
    assert projected is not None and (projected.latent, projected.mla_rank) == (True, 0)


def test_the_heads_of_the_cache_are_divided_until_each_card_has_one() -> None:
    found = shape_of(DENSE)
    assert found is not None
    assert [found.kv_elements(cards) for cards in (1, 2, 8)] == [128, 64, 64]


def test_all_parameters_and_those_of_one_token() -> None:
    shape = Shape(1, 1, 1, 1, body=10, head=2, width=1, kv_heads=1, kv_width=1)
    assert (shape.parameters, shape.active) == (12, 12)
    mixture = replace(shape, experts=100, share=0.25)
    assert (mixture.parameters, mixture.active) == (112, 37)
    assert (shape.mla_rank, shape.experts, shape.latent, shape.multi_head) == (0, 0, False, False)


@pytest.mark.parametrize("field", ["layers", "hidden_size", "heads", "head_dim"])
def test_a_model_without_a_size_has_no_shape(field: str) -> None:
    without: dict[str, Any] = {field: None}
    assert shape_of(replace(DENSE, **without)) is None
