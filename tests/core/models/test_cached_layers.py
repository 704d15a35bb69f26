"""Layers by the kind of cache that they need, from config.json or a profile's facts."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.models.cached_layers import cached_layers
from gaudi_launch.core.models.config import model_from_config

BASE = {"num_hidden_layers": 8, "hidden_size": 64, "num_attention_heads": 4}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"full": 8}),
        ({"sliding_window": 4096}, {"sliding": 8}),
        ({"sliding_window": 4096, "use_sliding_window": False}, {"full": 8}),
        (
            {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 6},
            {"full": 6, "sliding": 2},
        ),
        ({"sliding_window": 4096, "sliding_window_pattern": 4}, {"sliding": 6, "full": 2}),
        ({"sliding_window": 4096, "model_type": "gemma2"}, {"sliding": 4, "full": 4}),
        ({"layer_types": ["sliding_attention", "full_attention"] * 4}, {"sliding": 4, "full": 4}),
        (
            {"layer_types": ["chunked_attention"] * 6 + ["full_attention"] * 2},
            {"chunked": 6, "full": 2},
        ),
        ({"attention_chunk_size": 8192}, {"chunked": 6, "full": 2}),
        ({"attention_chunk_size": 8192, "no_rope_layers": [1, 0] * 4}, {"chunked": 4, "full": 4}),
        ({"full_attention_interval": 4}, {"state": 6, "full": 2}),
        ({"model_type": "falcon_mamba"}, {"state": 8}),
        ({"model_type": "mamba2"}, {"state": 8}),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64}, {"latent": 8}),
        ({"model_type": "minicpm3", "kv_lora_rank": 256, "qk_rope_head_dim": 32}, {"full": 8}),
        ({"num_kv_shared_layers": 3}, {"full": 5, "shared": 3}),
    ],
)
def test_the_kinds_are_those_of_config_json(
    config: dict[str, Any], expected: dict[str, int]
) -> None:
    assert dict(cached_layers(model_from_config("m", {**BASE, **config}))) == expected
