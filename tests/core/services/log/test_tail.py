"""A log that grows, is truncated or replaced while it is read."""

from __future__ import annotations

import os
from pathlib import Path

from gaudi_launch.core.services.log.tail import Tail


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
