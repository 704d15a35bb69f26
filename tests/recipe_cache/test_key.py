"""Same key for the same facts in any order, another key for every single invalidating fact."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.recipe_cache.key import _INDIFFERENT_VARIABLES, KeyDifference, KeyParts
from tests.support.recipes import PARTS


def test_the_key_never_changes_between_releases() -> None:
    # a key that moved would throw away every cache in the field
    assert PARTS.key == "7cec5e2af81db874"


@given(st.permutations(list(PARTS.variables.items())))
def test_the_order_of_variables_does_not_matter(items: list[tuple[str, str]]) -> None:
    assert replace(PARTS, variables=dict(items)).key == PARTS.key


@pytest.mark.parametrize("name", [f.name for f in fields(KeyParts) if f.name != "variables"])
def test_every_fact_changes_the_key(name: str) -> None:
    value: Any = 8 if name == "tensor_parallel" else "other"
    other = replace(PARTS, **{name: value})
    assert other.key != PARTS.key
    assert PARTS.differences(other) == (KeyDifference(name, str(getattr(PARTS, name)), str(value)),)


@pytest.mark.parametrize("name", [*PARTS.variables, "VLLM_SOMETHING_NEW"])
def test_every_variable_changes_the_key(name: str) -> None:
    other = replace(PARTS, variables={**PARTS.variables, name: "other"})
    assert other.key != PARTS.key
    assert PARTS.differences(other) == (
        KeyDifference(name, PARTS.variables.get(name, ""), "other"),
    )


def test_a_variable_that_went_away_is_a_difference() -> None:
    other = replace(PARTS, variables={"--block-size": "128"})
    assert [d.name for d in PARTS.differences(other)] == ["VLLM_CONTIGUOUS_PA", "VLLM_FP32_SOFTMAX"]


def test_parts_survive_json() -> None:
    assert KeyParts.from_json(PARTS.to_json()) == PARTS


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
