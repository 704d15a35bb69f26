"""Validate profiles against profiles/schema, each problem as a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.base import json_schema
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import shipped_json
from gaudi_launch.core.base.yaml_reader import line_of

if TYPE_CHECKING:
    from gaudi_launch.core.base.json_schema import Problem

_LONGEST_VALUE = 60


@cache
def schema(name: str) -> Mapping[str, Any]:
    """Return a shipped schema: ``model``, ``engine`` or ``plan``."""
    document: Mapping[str, Any] = shipped_json("schema", f"{name}.json")
    return document


def problems(document: Any, name: str = "model") -> Iterator[Message]:
    """Yield the problems of a document, outermost first."""
    try:
        for problem in json_schema.problems(document, schema(name)):
            yield sentence(problem)
    except RecursionError:
        # a YAML anchor inside the value that it marks
        yield message("profiles.recursive")


def first_problem(document: Any, tree: Any, name: str) -> tuple[Problem, int, str] | None:
    """Return the first problem of a document, its line in the file, and a sentence."""
    problem = next(iter(json_schema.problems(document, schema(name))), None)
    if problem is None:
        return None
    where = (*problem.path, problem.entry) if problem.entry else problem.path
    return problem, line_of(tree, where) or 1, sentence(problem).render().rstrip(".。")


def sentence(problem: Problem) -> Message:
    """Return a problem as a sentence."""
    where = "".join(f"/{part}" for part in problem.path) or "/"
    found = repr(problem.found)
    if len(found) > _LONGEST_VALUE:
        found = found[: _LONGEST_VALUE - 3] + "..."
    if problem.keyword == "type":
        wanted = problem.expected
        types = wanted if isinstance(wanted, str) else ", ".join(wanted)
        return message("profiles.wrong_type", where=where, wanted=types, found=found)
    if problem.keyword == "enum":
        known = ", ".join(str(value) for value in problem.expected)
        return message("profiles.not_one_of", where=where, known=known, found=found)
    if problem.keyword == "pattern":
        return message("profiles.pattern", where=where, pattern=problem.expected, found=found)
    if problem.keyword == "minimum":
        return message("profiles.too_small", where=where, least=problem.expected, found=found)
    if problem.keyword == "minItems":
        return message("profiles.empty", where=where)
    if problem.keyword == "required":
        return message("profiles.missing", where=where, name=problem.entry)
    if problem.keyword == "additionalProperties":
        return message("profiles.extra", where=where, name=problem.entry)
    return message("profiles.not_valid", where=where, why=problem.text)
