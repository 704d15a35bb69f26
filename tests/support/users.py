"""A user without files and settings: folders, language and variables for a test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set the XDG folders below ``tmp_path`` and return it."""
    for kind in ("STATE", "CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


@pytest.fixture
def current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make ``tmp_path`` the current folder and return it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave no program on the PATH but those that a test puts into ``tmp_path``."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def plain_english(monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> None:
    """Set English, no files and no choice of cards of the user who runs the tests."""
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "en")
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)
