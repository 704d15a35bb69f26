"""The change of versions: where the next one goes, its trial, what stays in force."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines.install.change import change, place_for, trial
from gaudi_launch.core.engines.install.marker import MARKER, marker_of
from gaudi_launch.core.engines.install.switch import Versions
from tests.support.refusals import failing, refused

WANTED = {"ray": "2", "vllm": "1", "beside": "/cpu", "python": "/p"}
KEYS = ("ray", "vllm")


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path))
    return tmp_path


def versions() -> Versions:
    return Versions("a", lambda folder: marker_of(folder) is not None)


def make(folder: Path, marker: object = None, *, python: bool = True) -> Path:
    (folder / "bin").mkdir(parents=True)
    if python:
        (folder / "bin" / "python").touch()
    if marker is not None:
        (folder / MARKER).write_text(json.dumps(marker), encoding="utf-8")
    return folder


def test_an_unfinished_one_is_made_again_beside_older_versions(engines: Path) -> None:
    make(engines / "a", {**WANTED, "ray": "1"})
    unfinished = make(engines / "a+2")
    assert place_for(versions(), WANTED, KEYS) == unfinished


@pytest.mark.parametrize(
    ("marker", "python"),
    [({**WANTED, "beside": "/elsewhere"}, True), (WANTED, False), ([], True)],
)
def test_one_that_cannot_be_used_here_is_neither_taken_nor_cleared(
    engines: Path, marker: object, python: bool
) -> None:
    folder = make(engines / "a", marker, python=python)
    with failing("setup.complete_other", ExitCode.FAILED) as caught:
        place_for(versions(), WANTED, KEYS)
    assert str(folder) in str(caught.value)
    values = caught.value.text.values
    assert values["path"] == str(folder)
    assert "/cpu" in str(values["needed"])
    assert ("vllm" in str(values["found"])) is bool(marker)


def test_the_first_version_is_put_in_force_without_a_trial(engines: Path) -> None:
    folder = make(engines / "a", WANTED)
    said: list[str] = []
    assert change(versions(), folder, Path("/no/python"), said.append) is None
    assert (said, versions().in_force()) == ([], folder)
    assert change(versions(), folder, Path("/no/python"), said.append) is None
    assert said == []


def interpreter(folder: Path, *lines: str) -> Path:
    """Make an interpreter of these lines; return its path."""
    path = folder / "bin" / "python"
    path.write_text("\n".join(("#!/bin/sh", *lines)))
    path.chmod(0o755)
    return path


def test_a_link_that_cannot_be_made_leaves_the_old_version(engines: Path) -> None:
    folder = make(engines / "a", WANTED)
    (engines / "a.current").mkdir()
    with refused(
        "setup.switch_failed",
        ExitCode.FAILED,
        path=str(engines / "a.current"),
        why="Is a directory",
    ):
        change(versions(), folder, folder / "bin/python", print)


def test_an_interpreter_that_is_gone_is_a_failed_trial() -> None:
    with pytest.raises(LaunchError) as caught:
        trial(Path(sys.prefix, "none", "python"), ("vllm",), kept=Path("/old"))
    assert "No such file" in str(caught.value.detail)
