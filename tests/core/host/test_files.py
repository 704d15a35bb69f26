"""A machine's files: in a folder and in memory, read by the same rules."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaudi_launch.core.host.files import FolderFiles


def test_a_pipe_a_nul_and_bytes_that_are_no_text_are_read_without_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"a\xff")
    (tmp_path / os.fsdecode(b"odd\xff")).touch()
    files = FolderFiles(tmp_path)
    assert [files.text(path) for path in ("pipe", "a\0b", "bytes")] == [None, None, "a\ufffd"]
    assert files.link("a\0b") is None
    assert files.names("") == ("bytes", "pipe")


def test_a_folder_that_may_not_be_searched_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    assert FolderFiles(tmp_path).hidden("")
