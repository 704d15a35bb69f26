"""The valid part of a service's files, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.services.state.service_files import PLAN, parse, plain, trusted

PROCESS = {"pid": 7, "ticks": 8, "boot": "b"}


@pytest.mark.parametrize(
    ("name", "values", "kept"),
    [
        ("pid", [1, 2**22], True),
        ("pid", [-1, 2**22 + 1, True, "7"], False),
        ("launcher", [{"pid": 1}, {**PROCESS, "ticks": 1.5}, {**PROCESS, "pid": 0}, [1]], False),
        ("began", [0, -1.5], True),
        ("began", [True, 2**63, float("nan"), float("inf"), -(2**63)], False),
        ("began", [2**63 - 1, 1e18], True),
        ("done", [True, "1"], False),
        ("facts", [[], {"a": {}}], False),
        ("permanent", [False], True),
    ],
)
def test_a_value_is_within_what_the_program_can_have_written(
    name: str, values: list[Any], kept: bool
) -> None:
    for value in values:
        expected = {name: value} if kept else {}
        assert trusted("state.json", {name: value}) == expected, value


PLANNED: dict[str, Any] = {
    "dtype": "fp8", "argv": ["a"], "env": {"A": "1"}, "cpus": "0-1", "numa_nodes": [0],
    "memory": {"kv": 1.5}, "cache": {"key": [1]}, "buckets": {"graphs": 3, "prompt": []},
    "estimate": {"warmup_seconds": {"low": 1, "high": 2.5}, "basis": "x"},
}  # fmt: skip
WRONG_PLANNED: dict[str, Any] = {
    "dtype": 1, "argv": ["a", 1], "env": {"A": 1}, "cpus": [0], "numa_nodes": ["0"],
    "memory": {"kv": "1"}, "cache": [1], "buckets": {"graphs": 1.5},
    "estimate": {"warmup_seconds": {"low": 1, "high": None}},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_the_same_holds_for_a_plan(name: str) -> None:
    assert trusted("plan.json", PLANNED) == PLANNED
    rest = {key: value for key, value in PLANNED.items() if key != name}
    assert trusted("plan.json", {**PLANNED, name: WRONG_PLANNED[name]}) == rest
    # a plan's own modules are no list of elements
    assert trusted("plan.json", {"modules": "1"}) == {"modules": "1"}
    assert set(PLANNED) == set(PLAN)


def test_texts_have_no_marks_that_change_a_terminal() -> None:
    assert plain("a\tb\nc é\u4e2d") == "a\tb\nc é\u4e2d"
    assert plain("\x1b[0m\x00\x7f\u202e\u2066\ud800") == "\ufffd[0m" + "\ufffd" * 5
    found = trusted("state.json", {"new\x1b": ["\x1b", {"a\x1b": "\x1b"}], "facts": {"a": "\x1b"}})
    assert found == {"new\ufffd": ["\ufffd", {"a\ufffd": "\ufffd"}], "facts": {"a": "\ufffd"}}


def test_a_file_is_an_object_of_few_levels() -> None:
    for text in ("", "[]", "1", "{", "[" * 100_000):
        assert parse(text) is None, text[:9]
    assert parse('{"a": [1, {"b": 2}]}') == {"a": [1, {"b": 2}]}
    for opening, closing in (("[", "]"), ('{"b": ', "}")):
        inner = "1" if opening != "[" else ""
        deep = '{"a": ' + opening * 30 + inner + closing * 30 + "}"
        assert parse(deep) is not None
        deeper = '{"a": ' + opening * 32 + inner + closing * 32 + "}"
        assert parse(deeper) is None
