"""How a service ended is written down on a full disk, too."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_launch.planning.plan import Command
from gaudi_launch.services import stop
from gaudi_launch.services.log.follow import LaunchProgress
from gaudi_launch.services.process.detach import _Lines
from gaudi_launch.services.process.supervise import EngineOutcome
from gaudi_launch.services.state import registry, store
from gaudi_launch.services.state.job import ServiceJob
from gaudi_launch.services.state.recorder import Recorder

pytestmark = pytest.mark.usefixtures("own_folders")

FULL = """
import errno, sys
from pathlib import Path
from gaudi_launch.services.state import store
folder = Path(sys.argv[1])
assert store.write(folder, "state.json", {"phase": "ready"})
before = store.read(folder, "state.json")
try:
    with (folder / "filler").open("wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()
except OSError as error:
    assert error.errno == errno.ENOSPC
assert not store.write(folder, "state.json", {"phase": "load"})
assert store.read(folder, "state.json") == before
assert store.write(folder, "state.json", {"phase": "stopped", "outcome": "stopped"}, last=True)
assert store.read(folder, "state.json") == {"schema": 1, "phase": "stopped", "outcome": "stopped"}
assert not store.write(folder, "state.json", {"detail": "x" * 10000}, last=True)
assert store.read(folder, "state.json") == {"schema": 1, "phase": "stopped", "outcome": "stopped"}
"""


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare on this machine")
def test_the_end_is_written_on_a_disk_without_room(tmp_path: Path) -> None:
    program = 'mount -t tmpfs -o size=64k none "$0" && exec "$1" -c "$2" "$0"'
    words = ("unshare", "-m", "sh", "-c", program, str(tmp_path), sys.executable, FULL)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stopped_service_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store.make_dir("a")
    job = ServiceJob(
        "a", "m", "/m", "vllm-cpu@1", "http://127.0.0.1:1", Command((sys.executable,), {})
    )
    (folder / "lock").touch()

    recorder = Recorder(_Lines(), folder, job, folder / "engine.log")
    monkeypatch.setattr("tempfile.mkstemp", full)
    recorder.ended(EngineOutcome("stopped", 0, LaunchProgress()))
    service = registry.read("a")
    assert service is not None
    assert service.phase == "stopped"


def test_one_whose_launcher_had_to_be_killed_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store.make_dir("a")
    (folder / "lock").touch()
    (folder / "state.json").write_text(json.dumps({"name": "a", "phase": "ready"}))
    service = registry.find("a")
    monkeypatch.setattr("tempfile.mkstemp", full)
    stop._note_end(service)
    assert registry.find("a").phase == "stopped"
