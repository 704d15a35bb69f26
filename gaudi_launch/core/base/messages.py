"""Sentences for users, in English and Chinese, looked up by stable IDs.

A catalogue is ``en.json`` and ``zh.json`` in the folder of the feature that uses its sentences:
flat objects from ID to a ``str.format`` template. An ID is ``area.word`` and never changes its
meaning.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

LANGUAGES = ("en", "zh")

_chosen: str | None = None


@dataclass(frozen=True)
class Message:
    """A sentence by ID with the values of its placeholders.

    It is rendered late, in the reader's language.
    """

    id: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def render(self, language: str | None = None) -> str:
        return text(self.id, language, **self.values)

    def to_json(self) -> dict[str, str]:
        """Return the message for programs."""
        return {"id": self.id, "message": self.render()}

    def __hash__(self) -> int:
        return hash((self.id, tuple(sorted((k, str(v)) for k, v in self.values.items()))))


def message(id: str, **values: Any) -> Message:
    """Make a `Message`: ``message("plan.no_cards", wanted=4)``."""
    return Message(id, values)


def set_language(language: str | None) -> None:
    """Set the language of this process; None restores the environment's."""
    global _chosen
    _chosen = language if language in LANGUAGES else None


def language() -> str:
    """Return the effective language.

    It is the chosen one, else that of GAUDI_LAUNCH_LANG, LC_ALL, LC_MESSAGES or LANG.
    """
    if _chosen:
        return _chosen
    for name in ("GAUDI_LAUNCH_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name, "")
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def text(id: str, language_: str | None = None, **values: Any) -> str:
    """Return the sentence ``id`` with its placeholders filled.

    A missing ID or placeholder shows the ID and the values instead of failing: an error message
    must never hide the error. A test keeps the catalogues complete.
    """
    chosen = language_ or language()
    template = catalogue(chosen).get(id) or catalogue("en").get(id)
    if template is None:
        return id + "".join(f" {name}={value}" for name, value in values.items())
    try:
        none = catalogue(chosen).get("common.none", "-")
        counts = _counts(catalogue("en").get(id, ""))
        return _Counts(none, template, counts).vformat(template, (), values)
    except (KeyError, IndexError, ValueError):
        return template + "".join(f" {name}={value}" for name, value in values.items())


@cache
def _counts(english: str) -> frozenset[str]:
    """Return the placeholders with a noun or a comma: counts, in every language."""
    return frozenset(re.findall(r"{(\w+):(?:,|[^}]*[A-Za-z]{2})}", english))


class _Counts(Formatter):
    """Format as `str.format`, and a number with its noun: ``{n:card}``.

    ``counts``, the placeholders whose thousands are set apart (4,096), as ``{n:,}`` does it. A
    value that is None, or "-" as in a table, becomes text.

    >>> sentence = "{n:free card}, {m:process}, {found}"
    >>> _Counts("none", sentence, {"m"}).format(sentence, n=1, m=2048, found="-")
    '1 free card, 2,048 processes, none'
    """

    def __init__(self, none: str, template: str, counts: Collection[str]) -> None:
        self._none = none
        self._template = template
        self._names = counts

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        """Return a value, and text for a missing one.

        "-" as a path is stdin or stdout, and in quotes it is what the user typed.
        """
        value = super().get_value(key, args, kwargs)
        if value is None:
            return self._none
        if key in self._names and str(value).isdecimal():
            return f"{int(value):,}"
        if value != "-" or key in _AS_GIVEN:
            return value
        typed = any(f"{quote}{{{key}}}" in self._template for quote in _QUOTES)
        return value if typed else self._none

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a value in its form, or as a count of the noun that is its form."""
        if value == self._none:
            return self._none
        if len(format_spec) < 2 or not format_spec[-2:].isalpha():
            # a count has its commas already
            return str(super().format_field(value, format_spec.strip(",")))
        if str(value) == "1":
            return f"{value} {format_spec}"
        plural = "es" if format_spec.endswith(_HISSING) else "s"
        return f"{value} {format_spec}{plural}"


_HISSING = ("s", "ch", "sh", "x")
_QUOTES = ("'", '"', "“")
# "-" is a path, or a cell of top
_AS_GIVEN = ("path", "file", "log", "source", "place", "filter", "use")


@cache
def catalogue(language_: str) -> Mapping[str, str]:
    """Return every template of one language by ID."""
    templates: dict[str, str] = {}
    for path in catalogue_files(language_):
        templates.update(json.loads(path.read_text(encoding="utf-8")))
    return templates


def catalogue_files(language_: str) -> list[Path]:
    """Return the catalogues of one language: ``cli`` has one, and each folder."""
    package = Path(__file__).parents[2]
    return sorted([*package.glob(f"*/{language_}.json"), *package.glob(f"*/*/{language_}.json")])


def rendered(found: Message | None) -> str | None:
    """Return the text of a message; None without one."""
    if found is None:
        return None
    return found.render()


def printable(text: str) -> str:
    """Return the text without what could steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)
