"""What a pull leaves and removes in its folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from gaudi_launch.core.models.hub import download
from gaudi_launch.core.models.hub.download import Listing, forget
from gaudi_launch.core.models.hub.file_choice import (
    PARTS,
    Fetched,
    RemoteFile,
    read_record,
    write_record,
)

SMALL, LARGE = RemoteFile("config.json", 2, "sha256:1"), RemoteFile("deep/m.safetensors", 5, "")
LISTING = Listing("hf", "me/m", "c0ffee", (SMALL, LARGE))


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")
                  if path.is_file())  # fmt: skip


def test_leftovers_are_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("x")
    folder = tmp_path / "m"
    parts = folder / PARTS
    (parts / "deep").mkdir(parents=True)
    (folder / ".cache").mkdir()
    kept = ["deep/m.safetensors.part", "config.json.part", "resumed"]
    for name in (*kept, "old.part", "deep/old.part"):
        (parts / name).write_text("x")
    (parts / "link").symlink_to(outside / "x")
    for name in ("x.lock", "x.incomplete", "x.json"):
        (folder / ".cache" / name).write_text("x")
    removed = ["link", "old.part", "old.part", "x.incomplete", "x.lock"]
    assert sorted(download._clear(folder, (SMALL, LARGE))) == removed
    assert names(parts) == sorted(kept)
    assert names(folder / ".cache") == ["x.json"]
    shutil.rmtree(parts)
    parts.symlink_to(outside)
    assert download._clear(folder, (SMALL,)) == (PARTS,)
    assert names(outside) == ["x"]


def test_files_are_verified_again(tmp_path: Path) -> None:
    assert forget(LISTING, tmp_path / "none") == 0
    files = {"config.json": (2, "sha256:1", 5), "deep/m.safetensors": (5, "", 5), "old": (1, "", 5)}
    write_record(tmp_path, Fetched("me/m", "hf", "r", True, files))
    assert forget(LISTING, tmp_path) == 1
    del files["config.json"]
    assert read_record(tmp_path) == Fetched("me/m", "hf", "r", False, files)
