"""What a failed launch shows: its log's last lines first, the diagnosis with the matched line
last."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gaudi_launch.core.services.diagnosis.failure import failure, judged_log
from gaudi_launch.core.services.log.follow import LaunchProgress
from gaudi_launch.core.services.process.supervise import EngineOutcome

DIED = EngineOutcome("died", 1, LaunchProgress())


def detail(log: Path) -> list[str]:
    shown = failure(DIED, log).detail
    assert shown is not None
    return shown.splitlines()


def test_a_full_disk_is_the_cause_although_it_kept_the_log_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "engine.log"
    log.write_text("ERROR: not written\nINFO half a li")
    full = SimpleNamespace(f_bfree=0, f_bavail=0, f_frsize=4096, f_files=10, f_ffree=5)
    monkeypatch.setattr(os, "statvfs", lambda folder: full)
    lines = detail(log)
    # what the log shows in addition is named as an error of its own
    assert [each for each in lines if each.startswith("likely cause")] == [
        "likely cause: A disk is full.",
        "likely cause: No known cause matches this error in the log: not written",
    ]
    assert f"  > kernel: No space left on device: {tmp_path} (0 bytes free)" in lines
    assert judged_log(log).splitlines()[1:2] == ["INFO half a li"]
