"""Validate documents against a JSON schema with the jsonschema library.

The library costs about 0.05 s of CPU to import: it is imported when a document is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import ValidationError


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
    errors = _validator()(dict(schema)).iter_errors(document)
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


@cache
def _validator() -> Any:
    """Return the validator of documents that may contain tuples and mappings."""
    from jsonschema import Draft202012Validator, validators

    known = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "array": lambda _checker, value: isinstance(value, (list, tuple)),
            "object": lambda _checker, value: isinstance(value, Mapping),
        }
    )
    # its stub has no types
    return validators.extend(Draft202012Validator, type_checker=known)  # type: ignore[no-untyped-call]
