"""The files of a service: names, and what is written and read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.services.state import store
from tests.support.users import own_folders

__all__ = ["own_folders"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-8B", "Qwen3-8B-80"),
        ("/models/My Model!/", "My-Model-80"),
        ("/models/-._x_.-", "x-80"),
        ("/models/é", "model-80"),
        ("/", "model-80"),
        ("m" * 51, "m" * 50 + "-80"),
    ],
)
def test_the_name_of_a_service_is_made_of_its_model_and_port(model: str, name: str) -> None:
    assert store.default_name(model, "80") == name
    assert store.is_name(name)


@pytest.fixture
def full(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a service with a record, on a disk that is full from then on."""
    folder = store.make_dir("a")
    store.write(folder, "state.json", {"phase": "ready"})

    def mkstemp(**more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    return folder


@pytest.mark.parametrize("broken", ["short", "error"])
def test_an_end_that_is_cut_restores_the_old_record(
    full: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    before = (full / "state.json").read_bytes()
    real, calls = os.pwrite, []

    def pwrite(handle: int, content: bytes, at: int) -> int:
        calls.append(content)
        if len(calls) > 1:
            return real(handle, content, at)
        real(handle, content[:20], at)
        if broken == "error":
            raise OSError(5, "Input/output error")
        return 20

    monkeypatch.setattr(os, "pwrite", pwrite)
    handles = len([*Path("/proc/self/fd").iterdir()])
    assert store.write(full, "state.json", {"error": "e" * 300}, last=True) is False
    assert (full / "state.json").read_bytes() == before
    assert len([*Path("/proc/self/fd").iterdir()]) == handles


def test_a_link_in_the_place_of_a_record_is_not_followed(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "theirs"
    target.write_text("untouched")
    (full / "state.json").unlink()
    (full / "state.json").symlink_to(target)
    assert store.write(full, "state.json", {"a": 1}, last=True) is False
    assert target.read_text() == "untouched"
    with pytest.raises(LaunchError):
        store.open_lock(full / "state.json")


def test_a_folder_that_cannot_be_made_is_named(own_folders: Path) -> None:
    store.services_dir().parent.mkdir(parents=True)
    store.services_dir().write_text("a file")
    found = []
    for use in (lambda: store.make_dir("a"), lambda: store.open_lock(store.services_dir() / "a/l")):
        with pytest.raises(LaunchError) as caught:
            use()
        found.append((caught.value.exit_code, caught.value.text))
    refusal = message(
        "serve.state_folder", path=str(store.services_dir() / "a"), why="Not a directory"
    )
    assert found == [(ExitCode.FAILED, refusal)] * 2
