"""The parts of a large log that are read: numbers of lines stay those of the file."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.services.log import excerpt
from gaudi_launch.services.log.excerpt import Excerpt, read_excerpt


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpt, "HEAD_BYTES", 10)
    monkeypatch.setattr(excerpt, "TAIL_BYTES", 8)
    monkeypatch.setattr(excerpt, "_PIECE", 4)


def write(folder: Path, content: bytes) -> Path:
    (folder / "log").write_bytes(content)
    return folder / "log"


def test_a_small_log_is_complete(tmp_path: Path) -> None:
    assert read_excerpt(write(tmp_path, b"a\nb\xff\n")) == Excerpt("a\nb\ufffd\n", 2, 0)


@pytest.mark.usefixtures("small")
def test_of_a_large_log_beginning_and_end_are_read(tmp_path: Path) -> None:
    lines = [f"l{number:02}\n" for number in range(1, 21)]
    found = read_excerpt(write(tmp_path, "".join(lines).encode()))
    assert found.text.startswith("l01\nl02\n") and found.text.endswith("l19\nl20\n")
    shown = found.text.splitlines()
    assert [found.line_in_file(at) for at in range(1, len(shown) + 1)] == [
        int(line[1:]) for line in shown
    ]
    assert found.head_lines == 2 and found.skipped_lines == 20 - len(shown)


@pytest.mark.usefixtures("small")
def test_a_log_that_just_fits_is_not_cut(tmp_path: Path) -> None:
    content = b"12345678\n" * 2
    assert read_excerpt(write(tmp_path, content)) == Excerpt(content.decode(), 1, 0)


def test_a_pipe_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"of a pipe\n")))
    assert read_excerpt(None) == Excerpt("of a pipe\n", 1, 0)


def refused(path: Path) -> tuple[str, ExitCode, object]:
    with pytest.raises(LaunchError) as caught:
        read_excerpt(path)
    return caught.value.id, caught.value.exit_code, dict(caught.value.text.values)


def test_what_is_not_a_text_is_refused(tmp_path: Path) -> None:
    binary = write(tmp_path, b"\x7fELF\0")
    assert refused(binary) == ("diagnose.binary", ExitCode.USAGE, {"path": str(binary)})
    assert refused(tmp_path) == (
        "diagnose.unreadable",
        ExitCode.USAGE,
        {"path": str(tmp_path), "why": "Is a directory"},
    )
