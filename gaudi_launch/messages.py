"""Sentences for people, in English and Chinese, looked up by stable ids.

The catalogues are ``locale/en/*.json`` and ``locale/zh/*.json``: flat objects from id to a
``str.format`` template. An id is ``area.word`` and keeps its meaning for ever.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

LANGUAGES = ("en", "zh")

_chosen: str | None = None


@dataclass(frozen=True)
class Message:
    """A sentence by id with the values of its placeholders; rendered late, in the reader's language."""

    id: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def render(self, language: str | None = None) -> str:
        return text(self.id, language, **self.values)

    def __hash__(self) -> int:
        return hash((self.id, tuple(sorted((k, str(v)) for k, v in self.values.items()))))


def message(id: str, **values: Any) -> Message:
    """Make a `Message`: ``message("plan.no_cards", wanted=4)``."""
    return Message(id, values)


def set_language(language: str | None) -> None:
    """Choose the language of this process; None goes back to the environment's."""
    global _chosen
    _chosen = language if language in LANGUAGES else None


def language() -> str:
    """The language in force: the chosen one, else that of GAUDI_LAUNCH_LANG, LC_ALL, LC_MESSAGES or LANG."""
    if _chosen:
        return _chosen
    for name in ("GAUDI_LAUNCH_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name, "")
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def text(id: str, language_: str | None = None, **values: Any) -> str:
    """The sentence ``id`` with its placeholders filled.

    A missing id or placeholder shows the id and the values instead of failing: an error message must
    never hide the error. A test holds the catalogues complete.
    """
    chosen = language_ or language()
    template = catalogue(chosen).get(id) or catalogue("en").get(id)
    if template is None:
        return id + "".join(f" {name}={value}" for name, value in values.items())
    try:
        return template.format(**values)
    except (KeyError, IndexError, ValueError):
        return template + "".join(f" {name}={value}" for name, value in values.items())


@cache
def catalogue(language_: str) -> Mapping[str, str]:
    """Every template of one language by id."""
    templates: dict[str, str] = {}
    for path in sorted((Path(__file__).parent / "locale" / language_).glob("*.json")):
        templates.update(json.loads(path.read_text(encoding="utf-8")))
    return templates
