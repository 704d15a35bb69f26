"""What several commands' tests ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.messages import set_language


@pytest.fixture
def plain_english(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """English, and no configuration of whoever runs the tests."""
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "en")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    yield
    set_language(None)
