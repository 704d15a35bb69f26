"""Locks of a key between users."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch import locks
from gaudi_launch.errors import LaunchError
from gaudi_launch.recipe_cache.key_locks import held, in_use, lock_path

KEY = "0123456789abcdef"


def test_a_lock_that_another_user_wrote_is_taken_by_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mode 0644 lets the others do, whom flock(2) asks for no more."""
    lock_path(tmp_path, KEY).touch()
    real_open = os.open

    def unwritable(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied")
        return real_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", unwritable)
    with held(tmp_path, KEY, exclusive=True):
        assert (in_use(tmp_path, KEY, fill=True), in_use(tmp_path, "0" * 16)) == (False, False)
        assert in_use(tmp_path, KEY)
        with pytest.raises(LaunchError) as refused, held(tmp_path, KEY, exclusive=False):
            pass
        assert refused.value.id == "cache.in_use"
    assert not in_use(tmp_path, KEY)


def test_a_lock_is_not_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    lock_path(tmp_path, KEY).symlink_to(tmp_path / "other")
    with pytest.raises(LaunchError) as refused, held(tmp_path, KEY, exclusive=True):
        pass
    values = {"path": str(tmp_path), "why": "Too many levels of symbolic links"}
    assert (refused.value.id, refused.value.exit_code) == ("cache.no_lock", 1)
    assert refused.value.text.values == values


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> bool:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(locks, "try_take", fail)
    with pytest.raises(LaunchError) as refused, held(tmp_path, KEY, exclusive=True):
        pass
    values = {"path": str(tmp_path), "why": "No locks available"}
    assert (refused.value.id, refused.value.exit_code) == ("cache.no_lock", 1)
    assert refused.value.text.values == values
    assert not in_use(tmp_path, KEY)
