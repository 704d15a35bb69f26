"""The formula of a step, and how loads are made of steps."""

from __future__ import annotations

import pytest

from gaudi_launch.core.models.config import model_from_config
from gaudi_launch.core.models.parameter_count import parameters_of
from gaudi_launch.core.predict.learned import values
from gaudi_launch.core.predict.loads import steps
from gaudi_launch.core.predict.published import shapes
from gaudi_launch.core.predict.shape import shape_of
from gaudi_launch.core.predict.step_model import Setup

ONE = Setup("gaudi3", 1, "bf16", 2.0, 2.0, "static")
LLAMA = shapes()["Llama-3.1-8B"]

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


def test_one_card_has_no_links() -> None:
    assert steps(ONE, LLAMA, values()).decode(8, 1000).links == 0


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (
            {
                "model_type": "mixtral",
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 32000,
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
            },
            46.7,
        ),
        (
            {
                "model_type": "falcon",
                "hidden_size": 14848,
                "num_hidden_layers": 80,
                "num_attention_heads": 232,
                "num_kv_heads": 8,
                "new_decoder_architecture": True,
                "vocab_size": 65024,
            },
            179.5,
        ),
        (
            DEEPSEEK_V3,
            671.0,
        ),
        (
            {
                "model_type": "gemma2",
                "hidden_size": 4608,
                "intermediate_size": 36864,
                "num_hidden_layers": 46,
                "num_attention_heads": 32,
                "num_key_value_heads": 16,
                "head_dim": 128,
                "vocab_size": 256000,
            },
            27.2,
        ),
    ],
)
def test_parameters_are_counted_from_config_json(
    config: dict[str, object], billions: float
) -> None:
    found = parameters_of(model_from_config("m", config))
    assert found is not None
    assert found.language / 1e9 == pytest.approx(billions, rel=0.02)


def test_deepseek_passes_thirty_seven_billion_parameters_a_token() -> None:
    shape = shape_of(model_from_config("m", DEEPSEEK_V3))
    assert shape is not None
    assert shape.active / 1e9 == pytest.approx(37, rel=0.05)
