"""Group rights of a shared cache, by the modes that its users would meet."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gaudi_launch.recipe_cache.key_locks import held, lock_path
from gaudi_launch.recipe_cache.ledger import write_whole
from gaudi_launch.recipe_cache.sharing import share, share_all

KEY = "0123456789abcdef"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    root = tmp_path / "recipes"
    root.mkdir()
    root.chmod(0o2775)
    return root


def filled(root: Path) -> Path:
    """Return the directory of a key, as an engine with a strict umask leaves it."""
    folder = root / KEY
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "graph.recipe").write_text("x")
    (folder / "deep" / "graph.recipe").chmod(0o600)
    for each in (folder, folder / "deep"):
        each.chmod(0o700)
    return folder


def test_all_of_a_key_gets_the_rights_of_a_shared_root(shared: Path) -> None:
    folder = filled(shared)
    share_all(folder, shared)
    found = {path.name: mode(path) for path in (folder, *folder.rglob("*"))}
    assert found == {KEY: 0o2770, "deep": 0o2770, "graph.recipe": 0o660}


def test_a_root_of_one_user_shares_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = filled(tmp_path)
    share_all(folder, tmp_path)
    found = {path.name: mode(path) for path in (folder, *folder.rglob("*"))}
    assert found == {KEY: 0o700, "deep": 0o700, "graph.recipe": 0o600}


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


def test_locks_and_ledgers_follow_the_root_whatever_the_umask(shared: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    private.chmod(0o755)
    former = os.umask(0o077)
    try:
        for root in (shared, private):
            with held(root, KEY, exclusive=True):
                write_whole(root / f"{KEY}.json", b"{}")
    finally:
        os.umask(former)
    assert (mode(lock_path(shared, KEY)), mode(shared / f"{KEY}.json")) == (0o660, 0o664)
    assert (mode(lock_path(private, KEY)), mode(private / f"{KEY}.json")) == (0o600, 0o644)
