"""Keep dropped words out of the English catalogue; tests/test_words_zh.py has the Chinese glossary."""

from __future__ import annotations

import re

import pytest

from gaudi_launch.cli.translated import translations
from gaudi_launch.messages import catalogue
from tests.support.help_texts import english_texts

ENGLISH = (
    r"\bnobody\b",
    r"\bgoes on\b",
    r"\bgo on with\b",
    r"behind --",
    r"\bwished\b",
    r"\blies? in\b",
)


@pytest.mark.parametrize("pattern", ENGLISH)
def test_english_keeps_dropped_words_out(pattern: str) -> None:
    assert [id for id, sentence in catalogue("en").items() if re.search(pattern, sentence)] == []


def test_every_help_text_has_a_chinese_one() -> None:
    # locale/help/zh.json: the English text of the code -> Chinese. A reworded text needs a new entry.
    known, shown = translations("zh"), english_texts()
    assert sorted(shown - known.keys()) == []
    assert sorted(known.keys() - shown) == []
