"""The sizes of a model that a step reads and computes."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.models.model import Model
from gaudi_launch.core.predict.shape import shape_of

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


def test_the_cache_of_a_low_rank_is_one_vector_a_layer() -> None:
    latent = shape_of(replace(DENSE, kv_heads=8, mla_rank=32))
    assert latent is not None
    assert (latent.mla_rank, latent.latent, latent.multi_head) == (32, True, False)
    assert [latent.kv_elements(cards) for cards in (1, 8)] == [64, 64]
    projected = shape_of(replace(DENSE, config={"kv_lora_rank": None}))
    assert projected is not None and (projected.latent, projected.mla_rank) == (True, 0)
