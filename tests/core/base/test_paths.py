"""Folders of the program: the XDG variables, our own, and what is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.base import paths

FOLDERS = {
    "STATE": (paths.state_dir, ".local/state"),
    "CACHE": (paths.cache_dir, ".cache"),
    "DATA": (paths.data_dir, ".local/share"),
    "CONFIG": (paths.config_dir, ".config"),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_is_that_of_its_variable_unless_it_is_relative(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, usual = FOLDERS[kind]
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(f"XDG_{kind}_HOME", "/x")
    assert folder() == Path("/x/gaudi-launch")
    for value in ("", "relative"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", value)
        assert folder() == tmp_path / usual / "gaudi-launch"
    monkeypatch.delenv(f"XDG_{kind}_HOME")
    assert folder() == tmp_path / usual / "gaudi-launch"


def test_engines_are_in_the_users_folder_or_in_that_of_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", "mine")
    assert paths.engines_dir() == tmp_path / "mine"
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", "")
    assert paths.engines_dir() == Path("/x/gaudi-launch/engines")


def test_the_machine_is_the_root_or_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", "/sim")
    assert paths.machine_root() == Path("/sim")
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", "")
    assert paths.machine_root() == Path("/")


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
