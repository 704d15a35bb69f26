"""States of linear attention: their bytes, and the slots that a version allocates."""

from __future__ import annotations

import pytest

from gaudi_launch.models.model import Model
from gaudi_launch.models.recurrent_state import compact_bytes, compact_slots, gated_delta_bytes

# Qwen/Qwen3-Next-80B-A3B-Instruct, config.json
NEXT = {
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}


def model(**changes: object) -> Model:
    return Model("m", "m", layers=48, dtype="bfloat16", config={**NEXT, **changes})


@pytest.mark.parametrize(
    ("changes", "cards", "expected"),
    [
        # three tokens of 8192 channels, and 32 heads of 128 x 128, two bytes each
        ({}, 1, 3 * 8192 * 2 + 32 * 128 * 128 * 2),
        ({}, 8, 3 * 1024 * 2 + 4 * 128 * 128 * 2),
        ({"mamba_ssm_dtype": "float32"}, 1, 3 * 8192 * 2 + 32 * 128 * 128 * 4),
        ({"linear_value_head_dim": None}, 1, None),
    ],
)
def test_the_state_of_one_layer(
    changes: dict[str, object], cards: int, expected: int | None
) -> None:
    assert gated_delta_bytes(model(**changes), cards) == expected


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        # 12 tensors of three layers each: 3 slots for a request, and two more
        (None, 12 * (10 * 3 + 2)),
        # 20 and 28: nearly equal, one group of 28
        (["full_attention"] * 20 + ["linear_attention"] * 28, 28 * (10 + 2)),
        (["linear_attention"] * 48, 48 * (10 + 2)),
        (["full_attention"] * 48, 0),
    ],
)
def test_each_request_has_a_slot_in_each_layer(kinds: list[str] | None, expected: int) -> None:
    found = model() if kinds is None else model(layer_types=kinds)
    assert compact_slots(found, 10) == expected


def test_the_states_of_all_requests() -> None:
    assert compact_bytes(model(), 256) == 12 * (256 * 3 + 2) * 1_097_728
    assert compact_bytes(Model("m", "m"), 256) == 0
