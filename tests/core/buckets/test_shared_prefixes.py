"""Common beginnings of past requests, from the columns of a trace."""

from __future__ import annotations

import json
from pathlib import Path

from gaudi_launch.core.buckets.past_requests import read_past
from gaudi_launch.core.buckets.shared_prefixes import PrefixColumns, columns_of, shared_prefixes
from gaudi_launch.core.predict.load import SharedPrefix


def test_hashes_and_measured_hits_are_read_in_every_form() -> None:
    assert columns_of({"hash_ids": [1, 2]}) == PrefixColumns((1, 2), 0)
    assert columns_of({"hash_ids": "[1, 2]"}) == PrefixColumns((1, 2), 0)
    assert columns_of({"cached_tokens": "256"}) == PrefixColumns((), 256)
    assert columns_of({"prompt_tokens_details": {"cached_tokens": 9}}) == PrefixColumns((), 9)
    assert columns_of({"hash_ids": None, "cached_tokens": "many"}) == PrefixColumns()


def test_a_prompt_shares_the_blocks_from_its_first_that_came_before() -> None:
    lines = [PrefixColumns((1, 2, 3)), PrefixColumns((7, 2)), PrefixColumns((1, 2, 9))]
    found = shared_prefixes(lines, [1500, 1000, 1500])
    # between the first and the third request the second brought 1000 tokens
    assert found == (SharedPrefix(0, 0), SharedPrefix(0, 0), SharedPrefix(1024, 1000))


def test_one_token_of_a_prompt_is_always_computed() -> None:
    found = shared_prefixes([PrefixColumns((1,)), PrefixColumns((1,))], [512, 512])
    assert found[1] == SharedPrefix(511, 0)


def test_a_trace_without_common_beginnings_shares_nothing() -> None:
    assert shared_prefixes([PrefixColumns((1,)), PrefixColumns((2,))], [512, 512]) == ()


def test_the_lines_of_a_trace_are_compared_in_order_of_time(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 2000, "input_length": 700, "output_length": 5, "hash_ids": [4, 5]},
        {"timestamp": 1000, "input_length": 600, "output_length": 5, "hash_ids": [4, 6]},
    ]
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    found = read_past(str(file))
    assert found.requests == [(0.0, 600, 5), (1.0, 700, 5)]
    assert (found.timed, found.shared) == (True, (SharedPrefix(0, 0), SharedPrefix(512, 0)))
