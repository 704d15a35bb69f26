"""A Chinese text is refused when the English text that it was made from has changed."""

from __future__ import annotations

import pytest

from tests.support.scripts import script

translations = script("translations")


def test_no_chinese_text_is_stale_and_each_is_recorded() -> None:
    now, before = translations.measured(), translations.recorded()
    # translate them, or name those that still fit: scripts/translations.py --write ID...
    assert translations.stale(now, before) == []
    assert now == before, "run scripts/translations.py --write"


@pytest.mark.parametrize(
    ("then", "now", "stale", "recorded"),
    [
        ("e1 z1", "e1 z1", [], "e1 z1"),
        ("e1 z1", "e2 z1", ["a.b"], "e1 z1"),
        ("e1 z1", "e1 z2", [], "e1 z2"),
        ("e1 z1", "e2 z2", [], "e2 z2"),
    ],
)
def test_a_stale_text_stays_stale_until_it_is_checked(
    then: str, now: str, stale: list[str], recorded: str
) -> None:
    before, present = {"old": {"a.b": then}}, {"new": {"a.b": now}}  # it moved to another folder
    assert translations.stale(present, before) == stale
    assert translations.updated(present, before) == {"new": {"a.b": recorded}}
    assert translations.updated(present, before, stale) == present
    assert translations.updated(present, {}) == present
