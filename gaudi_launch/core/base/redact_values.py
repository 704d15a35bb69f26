"""Remove secrets from argument lists and JSON values, as `redact` does from text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.base.redact import (
    REMOVED,
    cut_long_words,
    is_harmless,
    is_secret_name,
    redact_text,
    secret_kind,
)

_NAME = re.compile(r"[\w.-]+")
# a name and what follows it; in a path nothing does
_NAMED = re.compile(r"(?<![\w./-])[\w.-]{1,128}(?=[\s\"':=,;]{1,16}[^\s\"':=,;}\])])")
_NAME_FIELDS = ("name", "key", "option", "flag", "header", "variable")
_VALUE_FIELDS = ("value", "values", "val", "content", "default")


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Return an argument list without secrets: ``--x-key S1 S2`` and ``--x-key=S``.

    A value that names a secret and is not valid JSON goes completely: its form is not known.
    """
    shown = []
    for each in _redact_list(arguments):
        name, equals, value = each.partition("=") if each.startswith("-") else ("", "", each)
        shown.append(f"{name}{equals}{REMOVED}" if _names_secret(value) else each)
    return shown


def reveals_secret(arguments: Sequence[str]) -> bool:
    """Return True for arguments of which something is not to be shown."""
    return redact_arguments(arguments) != list(map(cut_long_words, arguments))


def is_secret_variable(name: str, value: str) -> bool:
    """Return True for a variable whose value is not to be shown."""
    return is_secret_name(name) or reveals_secret((value,))


def _names_secret(value: str) -> bool:
    """Return True for a secret's name with a value after it, in no valid JSON."""
    try:
        parse_json(value)
    except ValueError:
        return any(is_secret_name(match[0]) for match in _NAMED.finditer(value))
    return False


def redact_document(value: Any, name: str = "") -> Any:
    """Return a JSON value without secrets.

    ``name`` is the field's; if it indicates a secret, everything below it is one.
    """
    kind = secret_kind(name)
    if kind and not isinstance(value, bool) and value is not None:
        if isinstance(value, (Mapping, list, tuple)):
            return REMOVED if value else value
        return value if is_harmless(kind, name, str(value)) else REMOVED
    if isinstance(value, Mapping):
        return _redact_mapping(value)
    if isinstance(value, (list, tuple)):
        return _redact_list(value)
    return redact_text(value) if isinstance(value, str) else value


def _redact_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    named = any(
        isinstance(value.get(field), str) and is_secret_name(value[field]) for field in _NAME_FIELDS
    )
    is_secret = value.get("kind") == "Secret"
    redacted: dict[str, Any] = {}
    for key, inner in value.items():
        hidden = (named and key in _VALUE_FIELDS) or (is_secret and key in ("data", "stringData"))
        if hidden and inner is not None:
            inner = REMOVED
        redacted[redact_text(str(key))] = redact_document(inner, str(key))
    return redacted


def _redact_list(values: Sequence[Any]) -> list[Any]:
    """Return a list without the values of secret options, each up to the next option.

    Also without the second of a name and its value.
    """
    redacted: list[Any] = []
    name = ""
    for value in values:
        is_option = isinstance(value, str) and value.startswith("-")
        if is_option:
            name = ""
        redacted.append(redact_document(value, name))
        is_pair = len(values) == 2 and not name and isinstance(value, str) and secret_kind(value)
        if (is_option or is_pair) and _NAME.fullmatch(value):
            name = value
    return redacted
