"""What the kernel knows of an engine's end: memory, huge pages, full disks."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from gaudi_launch.core.services.log.kernel_log import full_disks, no_hugepages, note

KILLED = "Out of memory: Killed process 4242 ({name}) total-vm:1kB"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    for folder in ("dev", "proc"):
        (tmp_path / folder).mkdir()
    return tmp_path


def records(root: Path, *lines: str) -> None:
    (root / "dev/kmsg").write_text("".join(f"{line}\n" for line in lines))


def test_no_free_huge_page_is_stated_with_their_number(root: Path) -> None:
    assert no_hugepages() == []
    meminfo = root / "proc/meminfo"
    meminfo.write_text("HugePages_Total:    8\nHugePages_Free:     1\n")
    assert no_hugepages() == []
    meminfo.write_text("HugePages_Total:    8\nHugePages_Free:     0\n")
    assert no_hugepages() == ["HugePages_Free: 0 of 8"]
    meminfo.write_text("HugePages_Free:     0\n")
    assert no_hugepages() == []


def test_the_lines_are_appended_to_the_engines_log(root: Path) -> None:
    log = root / "engine.log"
    log.write_text("last line\n")
    (root / "proc/meminfo").write_text("HugePages_Total:    0\nHugePages_Free:     0\n")
    note(log, 0.0, cards=False)
    assert log.read_text() == "last line\n"
    records(root, f"3,2,5000000,-;{KILLED.format(name='python3')}")
    note(log, 0.0, cards=True)
    assert log.read_text() == (
        f"last line\nkernel: {KILLED.format(name='python3')}\nkernel: HugePages_Free: 0 of 0\n"
    )
    # a full disk or a folder that is gone loses the lines
    note(root / "none" / "engine.log", 0.0, cards=True)


@pytest.mark.parametrize(
    ("root_user", "blocks", "inodes", "full"),
    [
        (True, (1, 0), (10, 1), None),
        (False, (1, 0), (10, 1), 0),
        (True, (0, 0), (10, 1), 0),
        (True, (1, 1), (10, 0), 1 << 20),
        (True, (1, 1), (0, 0), None),
    ],
)
def test_a_file_system_without_space_or_inodes_is_full(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    root_user: bool,
    blocks: tuple[int, int],
    inodes: tuple[int, int],
    full: int | None,
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root_user else 1000)
    (free, available), (files, unused) = blocks, inodes
    room = SimpleNamespace(
        f_bfree=free, f_bavail=available, f_frsize=1 << 20, f_files=files, f_ffree=unused
    )
    monkeypatch.setattr(os, "statvfs", lambda folder: room)
    line = f"No space left on device: {tmp_path} ({full} bytes free)"
    # both folders are of one file system
    assert full_disks(tmp_path / "log") == ([] if full is None else [line])
    # the log's folder is gone: that of temporary files still counts
    assert full_disks(tmp_path / "gone" / "log") == ([] if full is None else [line])
