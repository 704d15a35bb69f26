"""States of linear attention: their bytes, and the slots that a version allocates."""

from __future__ import annotations

import pytest

from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.recurrent_state import (
    StatePage,
    compact_bytes,
    compact_slots,
    page_of,
)
from gaudi_launch.core.models.sizing import CacheRules, StateBlocks
from gaudi_launch.core.planning.known_model import known_model
from tests.support.model_files import NEXT


def model(**changes: object) -> Model:
    return Model("m", "m", layers=48, dtype="bfloat16", config={**NEXT, **changes})


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


# 528 and 768 tokens: executed, vllm-gaudi 0.26.0 with vLLM 0.26.0, and main with vLLM 0.28
@pytest.mark.parametrize("cards", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("blocks", "tokens", "states"),
    [
        (None, 0, 0),
        (StateBlocks(16), 528, 9),
        (StateBlocks(256, copies=2), 768, 18),
        (StateBlocks(128), 640, 9),
    ],
)
def test_a_block_is_as_large_as_a_state(
    blocks: StateBlocks | None, tokens: int, states: int, cards: int
) -> None:
    granite = known_model("ibm-granite/granite-4.0-h-small", must_exist=False)
    page = page_of(granite, cards, 2, CacheRules(state_blocks=blocks))
    size = 4 * tokens * 4096 // cards
    assert page == (StatePage(tokens, size, states, 1) if blocks is not None else None)
    assert page is None or page.blocks(2048) == states + -(-2048 // tokens)
