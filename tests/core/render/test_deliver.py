"""Rendered files on disk: all of them or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.render.deliver import places, write
from gaudi_launch.core.render.rendered import Rendered
from tests.support.scripted_hosts import failed

ONE = Rendered({"serve.sh": "one"}, frozenset({"serve.sh"}))
UNIT = Rendered({"x.service": "unit"})
TWO = Rendered({"a.container": "é", "deep/b": "b"}, frozenset({"deep/b"}))


def test_the_place_of_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert places(ONE, "/x/y") == {Path("/x/y"): "serve.sh"}
    assert places(ONE, "/x/y/") == {Path("/x/y/serve.sh"): "serve.sh"}
    assert places(ONE, str(tmp_path)) == {tmp_path / "serve.sh": "serve.sh"}
    assert places(ONE, "~/y") == {tmp_path / "me" / "y": "serve.sh"}
    assert places(TWO, "/x") == {Path("/x/a.container"): "a.container", Path("/x/deep/b"): "deep/b"}
    # systemd ignores a unit without its ending
    assert places(UNIT, "/x/y") == {Path("/x/y.service"): "x.service"}
    assert places(UNIT, "/x/y.service") == {Path("/x/y.service"): "x.service"}
    assert places(UNIT, "/x/y.container") == {Path("/x/y.container.service"): "x.service"}
    quadlet = Rendered({"x.container": ""})
    assert places(quadlet, "/x/y") == {Path("/x/y.container"): "x.container"}


def test_nothing_is_replaced_without_consent(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b").write_text("mine")
    (tmp_path / "a.container").symlink_to(tmp_path / "nowhere")
    both = f"{tmp_path / 'a.container'}, {tmp_path / 'deep' / 'b'}"
    exists = ("render.exists", ExitCode.USAGE, {"files": both}, None)
    assert failed(lambda: write(TWO, str(tmp_path), force=False)) == exists
    assert (tmp_path / "deep" / "b").read_text() == "mine"
    write(TWO, str(tmp_path), force=True)
    assert (tmp_path / "deep" / "b").read_text() == "b"
    assert not (tmp_path / "a.container").is_symlink()


def test_a_disk_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Path.write_text

    def full(path: Path, text: str, **options: str) -> int:
        if text == "b":
            raise OSError(28, "No space left on device")
        return original(path, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    values = {"path": str(tmp_path), "why": "No space left on device"}
    failure = ("render.cannot_write", ExitCode.FAILED, values, None)
    assert failed(lambda: write(TWO, str(tmp_path), force=False)) == failure
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    output = str(tmp_path / "file" / "x")
    values = {"path": output, "why": "File exists"}
    failure = ("render.cannot_write", ExitCode.FAILED, values, None)
    assert failed(lambda: write(ONE, output, force=False)) == failure
