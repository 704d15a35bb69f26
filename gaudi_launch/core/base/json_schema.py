"""Validate documents against a JSON schema with the jsonschema library.

The library costs about 0.15 s of CPU to import: callers import this module inside the function that
needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator, ValidationError, validators


@dataclass(frozen=True)
class Problem:
    """One place of a document that breaks its schema.

    ``path`` leads from the document's top to the place: keys and list positions. ``keyword`` is
    the keyword of JSON Schema that failed, ``expected`` its value, ``found`` what is at the place.
    ``entry`` names the missing or unknown entry where the keyword is about one.
    """

    path: tuple[str | int, ...]
    keyword: str
    expected: Any
    found: Any
    entry: str = ""
    text: str = ""


def problems(document: Any, schema: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the faults of a document, outermost places first."""
    errors = _Validator(dict(schema)).iter_errors(document)
    for error in sorted(errors, key=lambda error: len(error.absolute_path)):
        yield from _problems_of(error)


def _problems_of(error: ValidationError) -> Iterator[Problem]:
    path = tuple(error.absolute_path)
    keyword = str(error.validator)
    found: Any = error.instance
    expected: Any = error.validator_value
    if keyword == "additionalProperties":
        if isinstance(error.schema, dict):
            known = error.schema.get("properties", {})
        else:
            known = {}
        entries = [str(name) for name in found if name not in known]
    elif keyword == "required":
        entries = [name for name in expected if error.message.startswith(repr(name))]
    else:
        entries = [""]
    for entry in entries:
        yield Problem(path, keyword, expected, found, entry, error.message)


# rendered documents contain tuples and read-only mappings too
_Validator = validators.extend(  # type: ignore[no-untyped-call]  # its stub has no types
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "array": lambda _checker, value: isinstance(value, (list, tuple)),
            "object": lambda _checker, value: isinstance(value, Mapping),
        }
    ),
)
