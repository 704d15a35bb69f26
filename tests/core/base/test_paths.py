"""Folders of the program: the XDG variables, our own, and what is shipped."""

from __future__ import annotations

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
