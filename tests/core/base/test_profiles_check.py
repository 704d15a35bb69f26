"""Problems of a profile as sentences, and of any document against a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gaudi_launch.core.base import json_schema, profiles_check
from gaudi_launch.core.base.json_schema import Problem
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.profiles_check import problems, sentence

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$"},
        "kind": {"enum": ["a", "b"]},
        "count": {"type": ["integer", "null"], "minimum": 1},
        "list": {"type": "array", "minItems": 1, "items": {"type": "object"}, "maxItems": 2},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}


def found(document: object) -> list[Message]:
    return [sentence(each) for each in json_schema.problems(document, SCHEMA)]


GOOD = {"name": "x", "kind": "a"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"name": 3}, [message("profiles.wrong_type", where="/name", wanted="string", found="3")]),
        (
            {"count": "x" * 80},
            [
                message(
                    "profiles.wrong_type",
                    where="/count",
                    wanted="integer, null",
                    found=f"'{'x' * 56}...",
                )
            ],
        ),
        ({"kind": "c"}, [message("profiles.not_one_of", where="/kind", known="a, b", found="'c'")]),
        (
            {"name": "A"},
            [message("profiles.pattern", where="/name", pattern="^[a-z]+$", found="'A'")],
        ),
        ({"count": 0}, [message("profiles.too_small", where="/count", least=1, found="0")]),
        ({"list": []}, [message("profiles.empty", where="/list")]),
        (
            {"list": [{}, 7]},
            [message("profiles.wrong_type", where="/list/1", wanted="object", found="7")],
        ),
        (
            {"one": 1, "two": 2},
            [
                message("profiles.extra", where="/", name="one"),
                message("profiles.extra", where="/", name="two"),
            ],
        ),
    ],
)
def test_each_problem_names_its_place(change: dict[str, Any], expected: list[Message]) -> None:
    assert found({**GOOD, **change}) == expected


def test_any_other_keyword_has_the_text_of_the_library() -> None:
    (problem,) = json_schema.problems({**GOOD, "list": [{}, {}, {}]}, SCHEMA)
    assert problem == Problem(("list",), "maxItems", 2, [{}, {}, {}], "", problem.text)
    assert sentence(problem) == message("profiles.not_valid", where="/list", why=problem.text)
    assert "too long" in problem.text


def test_sixty_characters_of_a_value_are_shown() -> None:
    exact = "x" * 58
    assert sentence(Problem((), "type", "null", exact)).values["found"] == repr(exact)
    longer = sentence(Problem((), "type", "null", exact + "x")).values["found"]
    assert (len(longer), longer[-4:]) == (60, "x...")


def test_a_value_that_contains_itself_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    document: list[Any] = []
    document.append(document)
    monkeypatch.setattr(profiles_check, "schema", lambda name: {"items": {"$ref": "#"}})
    assert list(problems(document)) == [message("profiles.recursive")]
