"""Which experts a step reads: facts of engines, families and releases."""

from __future__ import annotations

import re
from itertools import product

import pytest

from gaudi_launch.core.predict.experts import chosen_experts, expert_path, expert_paths
from gaudi_launch.core.predict.step_model import Engine

SERVED: tuple[Engine, ...] = ("v0", "v1")


@pytest.mark.parametrize(
    ("model_type", "engine", "release", "expected"),
    [
        ("mixtral", "static", (1, 18), (False, 0)),
        ("mixtral", "static", (1, 19), (True, 0)),
        ("mixtral", "static", None, (True, 0)),
        ("mixtral", "v0", (1, 18), (False, 0)),
        ("mixtral", "v0", (1, 21), (True, 0)),
        ("gpt_oss", "v1", None, (False, 0)),
        ("gpt_oss_20b", "static", None, (False, 0)),
        ("qwen3_moe", "static", None, (False, 0)),
        ("qwen3_moe", "v1", None, (True, 0)),
        ("minimax_m3", "v1", (1, 24), (False, 16)),
        ("minimax_m2", "v1", None, (True, 0)),
    ],
)
def test_the_experts_that_a_step_reads(
    model_type: str,
    engine: Engine,
    release: tuple[int, ...] | None,
    expected: tuple[bool, int],
) -> None:
    assert chosen_experts(model_type, engine, release) == expected


def test_every_engine_has_a_path_for_any_family_and_release() -> None:
    engines: tuple[Engine, ...] = ("static", *SERVED)
    releases = (None, (1, 16), (1, 19), (1, 24, 1))
    for engine, release in product(engines, releases):
        found = expert_path("never_seen", engine, release)
        assert (found.engine, found.family) == (engine, "")


def test_each_path_names_where_the_code_says_so() -> None:
    assert {each.reads for each in expert_paths()} == {"operator", "all", "gather"}
    unnamed = [
        each
        for each in expert_paths()
        if not re.search(r"@[0-9a-f]{7,}|figures.csv: |^assumed", each.source)
    ]
    assert unnamed == []
    assert [bool(each.tokens) for each in expert_paths()] == [
        each.reads == "gather" for each in expert_paths()
    ]
