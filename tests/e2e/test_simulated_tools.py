"""Arguments of simulated tool calls are objects of the tool's JSON schema, as vLLM's grammar."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.support.every_case import ONE_MORE_ENGINE
from tests.support.real_engines import run_simulated

pytestmark = pytest.mark.e2e
_CALL = re.compile(r'<tool_call>\s*\{"name": "tool", "arguments": (.*)\}\s*</tool_call>', re.DOTALL)
NAMES = st.sampled_from(["city", "days", "unit", "exact", "places", "when"])
PLAIN = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "minLength": 3, "maxLength": 8},
        {"type": "string", "pattern": "^[A-Z]{3}$"},
        {"type": "integer"},
        {"type": "integer", "minimum": 3, "maximum": 12},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["metric", "imperial", 3, None]},
        {"const": "fixed"},
        {"$ref": "#/$defs/place"},
        {},
        {"type": "object"},
        {"properties": {"name": {"type": "string"}}, "required": ["name"]},
    ]
)
DEFINITIONS = {
    "place": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "zip": {"type": "integer"}},
        "required": ["name"],
    }
}


def objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw objects of these values, all, some or none of them required."""

    def required(properties: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
        if not properties:
            return st.just({"type": "object", "properties": {}})
        names = st.lists(st.sampled_from(sorted(properties)), unique=True)
        made = {"type": "object", "properties": properties}
        return names.map(lambda found: {**made, "required": found})

    return st.dictionaries(NAMES, values, max_size=4).flatmap(required)


VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        objects(inner),
        inner.map(lambda each: {"type": "array", "items": each, "minItems": 1, "maxItems": 3}),
        st.tuples(inner, inner).map(lambda pair: {"anyOf": list(pair)}),
    ),
    max_leaves=6,
)
SCHEMAS = objects(VALUES).map(lambda found: {**found, "$defs": DEFINITIONS})
# a tool without any argument: no schema, an empty one, or one without properties
NO_ARGUMENTS = st.sampled_from([None, {}, {"type": "object"}, {"type": "object", "properties": {}}])
FUNCTIONS = st.tuples(SCHEMAS | NO_ARGUMENTS, st.sampled_from([None, False, True])).map(
    lambda pair: {"name": "tool", "parameters": pair[0], "strict": pair[1]}
)


def answers(engine: Path, folder: Path, tools: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the answers of simulated cards to each tool, by tool choice."""
    given = "".join(f"{json.dumps(tool)}\n" for tool in tools)
    return run_simulated(engine, Path(__file__).with_name("simulated_tools.py"), folder, given)


@ONE_MORE_ENGINE
@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # an example takes 20 s
    phases=[Phase.generate],
)
@given(tools=st.lists(FUNCTIONS, min_size=60, max_size=60))
def test_arguments_follow_the_schema_of_the_tool(
    engine: Path, tiny_model: Path, tools: list[dict[str, Any]]
) -> None:
    found = answers(engine, tiny_model, tools)
    assert len(found) == len(tools)
    for tool, answer in zip(tools, found, strict=True):
        assert "refused" not in answer, (tool, answer)
        call = _CALL.fullmatch(answer["required"])
        assert call is not None, answer
        arguments = json.loads(call[1])
        Draft202012Validator(tool["parameters"] or {}).validate(arguments)
        assert isinstance(arguments, dict), (tool, arguments)
        assert answer["auto"].startswith("This answer is simulated.")
