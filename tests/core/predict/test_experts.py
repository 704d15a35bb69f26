"""Which experts a step reads: facts of engines, families and releases."""

from __future__ import annotations

import re
from itertools import product

from gaudi_launch.core.predict.experts import expert_path, expert_paths
from gaudi_launch.core.predict.step_model import Engine

SERVED: tuple[Engine, ...] = ("v0", "v1")


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
