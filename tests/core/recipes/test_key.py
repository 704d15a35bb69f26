"""Same key for the same facts in any order, another key for every single invalidating fact."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.recipes.key import _INDIFFERENT_VARIABLES
from tests.support.recipes import PARTS


@given(st.permutations(list(PARTS.variables.items())))
def test_the_order_of_variables_does_not_matter(items: list[tuple[str, str]]) -> None:
    assert replace(PARTS, variables=dict(items)).key == PARTS.key


@pytest.mark.parametrize(
    ("name", "indifferent"),
    [
        ("VLLM_PROMPT_SEQ_BUCKET_MAX", True),
        ("PT_HPU_RECIPE_CACHE_CONFIG", True),
        ("HABANA_VISIBLE_MODULES", True),
        ("VLLM_HOST_IP", True),
        ("PT_HPU_LAZY_MODE", False),
        ("VLLM_PROMPT_USE_FUSEDSDPA", False),
        ("VLLM_DELAYED_SAMPLING", False),
        ("PT_HPU_WEIGHT_SHARING", False),
        ("VLLM_ZERO_PADDING", False),
    ],
)
def test_which_variables_count(name: str, indifferent: bool) -> None:
    assert bool(_INDIFFERENT_VARIABLES.match(name)) is indifferent
