"""The list of a cache's files: what is in it, and what it finds later."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.recipes.manifest import verify, write_list


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two recipes, and entries that a list cannot have."""
    folder = tmp_path / "key"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_bytes(b"one")
    (folder / "sub/b").write_bytes(b"three")
    (folder / "empty").write_bytes(b"")
    (folder / "with\ttab").write_bytes(b"x")
    (folder / "with\nline").write_bytes(b"x")
    (folder / "link").symlink_to("a")
    (folder / "outside").symlink_to(tmp_path)
    return folder


def test_each_fault_of_a_folder_is_found(tmp_path: Path, folder: Path) -> None:
    write_list(tmp_path, "key", folder)
    (folder / "a").write_bytes(b"two")
    (folder / "sub/b").write_bytes(b"longer than before")
    (folder / "new").write_bytes(b"x")
    for name in ("with\ttab", "with\nline"):
        (folder / name).unlink()
    by_size = verify(tmp_path, "key", folder, quick=True)
    assert (by_size.wrong_size, by_size.wrong_content, by_size.empty) == (
        ("sub/b",),
        (),
        ("empty",),
    )
    assert (sorted(by_size.foreign), by_size.unlisted, by_size.missing) == (
        ["link", "outside"],
        ("new",),
        (),
    )
    assert verify(tmp_path, "key", folder, quick=False).wrong_content == ("a",)
    (folder / "a").unlink()
    found = verify(tmp_path, "key", folder, quick=True)
    assert (found.missing, found.sound) == (("a",), False)
