"""The machine of a command: this one, a simulated one, a snapshot file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.host.machine import load
from tests.support.refusals import failing


@pytest.mark.parametrize(
    ("content", "id"),
    [
        (b"", "host.snapshot_json"),
        (b"{", "host.snapshot_json"),
        (b"[1]", "host.snapshot_json"),
        (b"[" * 100_000, "host.snapshot_json"),
        (b"\xff\xfe", "host.snapshot_file"),
        (b"{}", "host.snapshot_field"),
    ],
)
def test_a_file_that_is_no_snapshot(content: bytes, id: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with failing(id, ExitCode.USAGE):
        load(str(path))
