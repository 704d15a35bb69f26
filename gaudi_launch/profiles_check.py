"""A profile against its JSON schema: the few words of JSON Schema that profiles/schema uses, so that serving needs
no schema library. A test holds it to the real one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from gaudi_launch import paths
from gaudi_launch.messages import Message, message

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


@cache
def schema(name: str) -> Mapping[str, Any]:
    """A shipped schema: ``model`` or ``engine``."""
    text = (paths.profiles_dir() / "schema" / f"{name}.json").read_text(encoding="utf-8")
    document: Mapping[str, Any] = json.loads(text)
    return document


def problems(document: Any, name: str = "model") -> Iterator[Message]:
    """What is wrong with a document, from the outside in; nothing when it is right."""
    yield from _look(document, schema(name), "")


def _look(value: Any, rule: Mapping[str, Any], place: str) -> Iterator[Message]:
    where = place or "/"
    wanted = rule.get("type")
    if wanted is not None and not _is(value, wanted):
        words = wanted if isinstance(wanted, str) else ", ".join(wanted)
        yield message("profiles.wrong_type", where=where, wanted=words, found=_short(value))
        return
    if "enum" in rule and value not in rule["enum"]:
        known = ", ".join(str(word) for word in rule["enum"])
        yield message("profiles.not_one_of", where=where, known=known, found=_short(value))
    if isinstance(value, str) and "pattern" in rule and not re.search(rule["pattern"], value):
        yield message("profiles.pattern", where=where, pattern=rule["pattern"], found=_short(value))
    if isinstance(value, (int, float)) and value < rule.get("minimum", value):
        yield message("profiles.too_small", where=where, least=rule["minimum"], found=value)
    if isinstance(value, list):
        if len(value) < rule.get("minItems", 0):
            yield message("profiles.empty", where=where)
        for number, item in enumerate(value):
            yield from _look(item, rule.get("items", {}), f"{place}/{number}")
    if isinstance(value, dict):
        yield from _look_inside(value, rule, place)


def _look_inside(value: Mapping[Any, Any], rule: Mapping[str, Any], place: str) -> Iterator[Message]:
    for name in rule.get("required", ()):
        if name not in value:
            yield message("profiles.missing", where=place or "/", name=name)
    known = rule.get("properties", {})
    more = rule.get("additionalProperties", True)
    for name, item in value.items():
        inner = known.get(name, more)
        if inner is False or not isinstance(name, str):
            yield message("profiles.extra", where=place or "/", name=name)
        elif isinstance(inner, dict):
            yield from _look(item, inner, f"{place}/{name}")


def _is(value: Any, wanted: str | list[str]) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
