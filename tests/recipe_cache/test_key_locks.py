"""Locks of a key between users."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

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
    assert refused.value.id == "cache.no_lock"
