"""Which experts a step reads: facts of engines, families and releases."""

from __future__ import annotations

import re

from gaudi_launch.core.predict.experts import expert_paths


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
