"""The lock of a folder after its holder was killed: what is left of the holder has it for a
moment more."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.models import folder_lock
from tests.support.waiting import until

# a holder with a child that has its lock too, as workers do, and ends when the file `end` is there
HOLDER = """
import os, sys, time
from pathlib import Path
from gaudi_launch.core.models.folder_lock import hold
folder = Path(sys.argv[1])
with hold(folder, "convert"):
    if not os.fork():
        (folder / "ready").touch()
        while not (folder / "end").exists():
            time.sleep(0.02)
        os._exit(0)
    time.sleep(600)
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A folder whose holder was killed while its child goes on."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)])
    until((tmp_path / "ready").exists, "the holder's child")
    holder.kill()
    holder.wait()
    return tmp_path


def test_what_is_left_of_a_killed_holder_is_waited_for(killed: Path) -> None:
    threading.Timer(0.3, (killed / "end").touch).start()
    with folder_lock.hold(killed, "pull"):
        assert (killed / "end").exists()


def test_but_not_for_ever(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "_PATIENCE", 0.2)
    with pytest.raises(LaunchError) as refused, folder_lock.hold(killed, "pull"):
        pass
    assert refused.value.id == "lock.held"
    (killed / "end").touch()


def refusal(folder: Path) -> tuple[str, ExitCode, object]:
    with pytest.raises(LaunchError) as refused, folder_lock.hold(folder, "pull"):
        pass
    return refused.value.id, refused.value.exit_code, refused.value.text.values


def test_a_folder_in_use_and_one_that_cannot_be_made_are_named(tmp_path: Path) -> None:
    with folder_lock.hold(tmp_path, "convert"):
        values = {"path": str(tmp_path), "holder": f"convert, PID {os.getpid()}"}
        assert refusal(tmp_path) == ("lock.held", ExitCode.FAILED, values)
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "x"
    values = {"path": str(path), "why": "Not a directory"}
    assert refusal(path) == ("lock.folder", ExitCode.FAILED, values)
