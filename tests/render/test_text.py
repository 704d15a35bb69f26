"""What every rendered file says of itself."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.render.text import heading
from tests.support.plans import planned


def test_cards_are_named_where_there_are_any() -> None:
    plan, _ = planned(modules=(0, 1, 2, 3))
    first = "vllm-fork@1.21 serving /models/Qwen2-72B-Instruct"
    assert heading(plan)[0] == f"{first} on cards (module IDs) 0,1,2,3, at http://127.0.0.1:30001"
    without = replace(plan, placement=replace(plan.placement, modules=()))
    assert heading(without)[0] == f"{first}, at http://127.0.0.1:30001"
