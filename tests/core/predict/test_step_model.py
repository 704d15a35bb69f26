"""The formula of a step, and how loads are made of steps."""

from __future__ import annotations

import pytest

from gaudi_launch.core.models.config import model_from_config
from gaudi_launch.core.predict.shape import shape_of

DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "vocab_size": 129280,
}


def test_deepseek_passes_thirty_seven_billion_parameters_a_token() -> None:
    shape = shape_of(model_from_config("m", DEEPSEEK_V3))
    assert shape is not None
    assert shape.active / 1e9 == pytest.approx(37, rel=0.05)
