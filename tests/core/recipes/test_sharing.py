"""Group rights of a shared cache, by the modes that its users would meet."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gaudi_launch.core.recipes.sharing import share


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    root = tmp_path / "recipes"
    root.mkdir()
    root.chmod(0o2775)
    return root


def test_a_link_and_what_another_user_owns_stay_as_they_are(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = shared / "target"
    target.write_text("x")
    target.chmod(0o600)
    link = shared / "link"
    link.symlink_to(target)
    share(link, shared)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    share(target, shared)
    assert mode(target) == 0o600
