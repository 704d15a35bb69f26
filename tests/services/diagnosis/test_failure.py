"""What a failed launch shows: its log's last lines first, the diagnosis with the matched line
last."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gaudi_launch.services.diagnosis.failure import failure, judged_log
from gaudi_launch.services.log import kernel_log
from gaudi_launch.services.log.follow import LaunchProgress
from gaudi_launch.services.process.supervise import EngineOutcome

DIED = EngineOutcome("died", 1, LaunchProgress())


def detail(log: Path) -> list[str]:
    shown = failure(DIED, log).detail
    assert shown is not None
    return shown.splitlines()


def test_the_diagnosis_is_the_last_thing_on_the_screen(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    usage = "".join(f"  [--option-{number} VALUE]\n" for number in range(60))
    error = (
        "api_server.py: error: argument --dtype: invalid choice: 'int8' (choose from auto, half)"
    )
    log.write_text(f"usage: api_server.py\n{usage}{error}\nINFO the end\n")
    lines = detail(log)
    assert lines[:2] == ["The last lines of its log:", "  [--option-32 VALUE]"]
    assert lines[-4:] == [
        "",
        "likely cause: An option has a value that the engine does not accept.",
        f"  > {error}",
        "  The matched line names the option and the accepted values: correct the value after --.",
    ]


def test_an_error_without_a_signature_is_shown_however_far_up_it_is(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(
        "Traceback (most recent call last):\nZeroDivisionError: division by zero\n"
        + "INFO later\n" * 50
    )
    lines = detail(log)
    assert (
        "likely cause: No known cause matches. The error in the log is: ZeroDivisionError: "
        "division by zero"
    ) in lines
    assert lines.index("  > ZeroDivisionError: division by zero") > lines.index("INFO later")


def test_a_full_disk_is_the_cause_although_it_kept_the_log_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "engine.log"
    log.write_text("INFO loading\nINFO half a li")
    full = SimpleNamespace(f_bfree=0, f_bavail=0, f_frsize=4096, f_files=10, f_ffree=5)
    monkeypatch.setattr(os, "statvfs", lambda folder: full)
    lines = detail(log)
    assert "likely cause: A disk is full." in lines
    assert f"  > kernel: No space left on device: {tmp_path} (0 bytes free)" in lines
    assert judged_log(log).splitlines()[1:2] == ["INFO half a li"]


@pytest.mark.parametrize(
    ("room", "full"),
    [
        ({"f_bfree": 1, "f_bavail": 1}, False),
        ({"f_bfree": 0, "f_bavail": 0}, True),
        # nothing is left of the inodes
        ({"f_bfree": 9, "f_bavail": 9, "f_ffree": 0}, True),
        # a file system without a number of inodes (btrfs)
        ({"f_bfree": 9, "f_bavail": 9, "f_files": 0, "f_ffree": 0}, False),
    ],
)
def test_when_a_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: dict[str, int], full: bool
) -> None:
    values = {"f_frsize": 4096, "f_files": 10, "f_ffree": 5, **room}
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(**values))
    assert bool(kernel_log.full_disks(tmp_path / "engine.log")) is full


def test_what_is_left_to_the_super_user_is_no_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = SimpleNamespace(f_bfree=100, f_bavail=0, f_frsize=4096, f_files=10, f_ffree=5)
    monkeypatch.setattr(os, "statvfs", lambda folder: room)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert kernel_log.full_disks(tmp_path / "engine.log") != []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert kernel_log.full_disks(tmp_path / "engine.log") == []
