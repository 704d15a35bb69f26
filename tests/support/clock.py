"""A clock that reads alike on every machine."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gaudi_launch.core.base.messages import set_language


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Show times in UTC, and texts in English."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    set_language("en")
    yield
    set_language(None)
    monkeypatch.undo()
    time.tzset()
