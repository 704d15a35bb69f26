"""How a service ended is written down on a full disk, too."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("own_folders")

FULL = """
import errno, sys
from pathlib import Path
from gaudi_launch.core.services.state import store
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


@pytest.mark.root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare on this machine")
def test_the_end_is_written_on_a_disk_without_room(tmp_path: Path) -> None:
    program = 'mount -t tmpfs -o size=64k none "$0" && exec "$1" -c "$2" "$0"'
    words = ("unshare", "-m", "sh", "-c", program, str(tmp_path), sys.executable, FULL)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
