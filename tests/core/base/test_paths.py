"""Folders of the program: the XDG variables, our own, and what is shipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaudi_launch.core.base import paths


def test_shipped_folders_are_in_the_package_of_a_wheel_or_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "gaudi_launch"
    package.mkdir()
    monkeypatch.setattr(paths, "__file__", str(package / "core/base/paths.py"))
    assert (paths.docs_dir(), paths.profiles_dir()) == (tmp_path / "docs", tmp_path / "profiles")
    for name in ("_docs", "_profiles"):
        (package / name).mkdir()
    assert (paths.docs_dir(), paths.profiles_dir()) == (package / "_docs", package / "_profiles")


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """As root a run that was saved to /dev/null would take the device from every program."""
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="Not a regular file"):
        paths.write_whole(pipe, "x")
    assert pipe.is_fifo()
    for content in ("one", "two"):
        paths.write_whole(file, content)
        assert file.read_text() == content
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "file"}
