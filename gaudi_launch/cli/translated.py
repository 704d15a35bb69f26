"""Help texts in the reader's language.

A command's English help is in the code with its options. ``help_LANGUAGE.json`` maps each
English paragraph to its translation; one that is missing there is shown in English.
tests/program/test_words.py compares the map with the code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gaudi_launch.core.base import messages


def translated(english: str) -> str:
    """Return a help text in the language in force."""
    language = messages.language()
    if language == "en":
        return english
    return translations(language).get(english, english)


@cache
def translations(language: str) -> Mapping[str, str]:
    """Return the translation of each English help text."""
    file = Path(__file__).with_name(f"help_{language}.json")
    found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return found
