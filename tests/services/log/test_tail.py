"""A log that grows, is truncated or replaced while it is read."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from gaudi_launch.services.log import tail
from gaudi_launch.services.log.tail import Tail, start_of_last


def test_what_is_added_is_read_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = Tail(log)
    assert reader.read() == b""
    log.write_bytes(b"one\n")
    assert [reader.read(), reader.read()] == [b"one\n", b""]
    with log.open("ab") as file:
        file.write(b"two\n")
    assert reader.read() == b"two\n"
    reader.close()


def test_a_truncated_log_is_read_from_its_new_beginning(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old lines\n")
    reader = Tail(log)
    reader.read()
    os.truncate(log, 0)
    assert reader.read() == b""
    log.write_bytes(b"new\n")
    assert reader.read() == b"new\n"
    reader.close()


def test_a_replaced_log_is_read_to_its_end_and_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a\n")
    reader = Tail(log, last=0)
    with log.open("ab") as file:
        file.write(b"last of it\n")
    log.rename(tmp_path / "log.1")
    log.write_bytes(b"first\n")
    assert [reader.read(), reader.read()] == [b"last of it\nfirst\n", b""]
    log.unlink()
    assert reader.read() == b""
    reader.close()


def test_the_last_lines_are_the_beginning(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"1\n2\n3\n")
    found = []
    for last in (0, 1, 2, 9, None):
        reader = Tail(log, last)
        found.append(reader.read())
        reader.close()
    assert found == [b"", b"3\n", b"2\n3\n", b"1\n2\n3\n", b"1\n2\n3\n"]
    # one that does not exist yet
    assert Tail(tmp_path / "none", 3).read() == b""


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 1 << 16])
@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\nbb\nccc", b"a\nbb\nccc\n", b"\n\nx"])
def test_a_line_without_its_end_is_one(
    monkeypatch: pytest.MonkeyPatch, piece: int, content: bytes
) -> None:
    monkeypatch.setattr(tail, "_PIECE", piece)
    lines = content.splitlines(keepends=True)
    for count in range(5):
        expected = sum(map(len, lines[: max(0, len(lines) - count)]))
        assert start_of_last(io.BytesIO(content), count) == expected
