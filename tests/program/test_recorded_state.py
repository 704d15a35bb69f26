"""What commit 4825996 left on a machine is listed, read, stopped and restarted by this version.

Only the installed command is used here: modules move, what stands on disk does not.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.keeper import Keeper
from tests.support.places import TESTS
from tests.support.processes import free_port, living, pids, trivial_python
from tests.support.serve import machine, model
from tests.support.waiting import until

__all__ = ["free_port", "machine", "model", "pids", "trivial_python"]

RECORD = TESTS / "data" / "state"
# the module of that commit's launcher, as the stand-in in RECORD has it
OLD_LAUNCHER = "gaudi_launch.services.detach"


class Old(Keeper):
    """A user whose folders an earlier version wrote."""

    port = 0

    def __init__(self, tmp_path: Path, machine: Path, python: Path, pids: Path) -> None:
        super().__init__(tmp_path, machine, python, pids)
        self.home = tmp_path

    def lay(self, source: Path, target: Path) -> None:
        """Copy a recorded file with this test's paths."""
        content = source.read_text(encoding="utf-8")
        for name, value in (("PYTHON", self.python), ("HOME", self.home), ("PORT", self.port)):
            content = content.replace(f"@{name}@", str(value))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")

    def lay_service(self, kind: str) -> Path:
        """Copy the folder of the service ``old``."""
        folder = self.folder("old")
        for source in (RECORD / "services" / kind).iterdir():
            self.lay(source, folder / source.name)
        (folder / "lock").touch(0o600)
        shutil.copytree(RECORD / "recipes", self.home / "recipes")
        return folder

    def read(self, *words: str) -> dict[str, Any]:
        code, out, err = self.call(*words, "--json")
        assert code == 0, (out, err)
        document: dict[str, Any] = json.loads(out)
        return document


@pytest.fixture
def user(
    tmp_path: Path, machine: Path, model: Path, trivial_python: Path, pids: Path, free_port: int
) -> Iterator[Old]:
    old = Old(tmp_path, machine, trivial_python, pids)
    old.port = free_port
    yield old
    if old.folder("old").is_dir():
        old.call("stop", "old", "--drain", "0")


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold a file's lock as that commit did: an open-file-description lock (fcntl(2))."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.fcntl(
            handle, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        )
        yield handle
    finally:
        os.close(handle)


def start_old(user: Old, folder: Path) -> subprocess.Popen[bytes]:
    """Start the stand-in for that commit's launcher with its locks; wait until its engine
    answers."""
    locks = Path(user.environment["GAUDI_LAUNCH_ROOT"]) / "run/lock/gaudi-launch"
    environment = {**user.environment, "PYTHONPATH": str(RECORD / "launcher"), "TRIVIAL_DO": ""}
    with (
        locked(folder / "lock") as name,
        locked(locks / "module-0.lock") as first,
        locked(locks / "module-1.lock") as second,
        (folder / "launcher.log").open("ab") as log,
    ):
        held = (name, first, second)
        launcher = subprocess.Popen(
            [sys.executable, "-m", OLD_LAUNCHER, "old", ",".join(map(str, held))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            pass_fds=held,
            start_new_session=True,
            cwd="/",
        )
    until(lambda: b"startup complete" in (folder / "engine.log").read_bytes().split(b"\n", 10)[-1])
    return launcher


@pytest.fixture
def launcher(user: Old) -> Iterator[subprocess.Popen[bytes]]:
    folder = user.lay_service("ready")
    process = start_old(user, folder)
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()


def test_a_running_service_is_listed_and_read(user: Old, launcher: subprocess.Popen[bytes]) -> None:
    (listed,) = user.services()
    assert {
        name: listed[name]
        for name in ("name", "alive", "phase", "modules", "engine", "launcher_pid")
    } == {
        "name": "old",
        "alive": True,
        "phase": "ready",
        "modules": [0, 1],
        "engine": "vllm-fork@1.21",
        "launcher_pid": launcher.pid,
    }
    status = user.read("status", "old")
    assert status["plan"]["dtype"] == "bfloat16"
    assert status["facts"]["num_blocks"] == 16384
    assert [phase["name"] for phase in status["phases"]] == [
        "start",
        "kv_cache",
        "warmup_prompt",
        "ready",
    ]
    assert user.call("wait", "old", "--timeout", "20")[0] == 0
    assert "init engine" in user.call("logs", "old")[1]
    assert user.read("why", "old")["failed"] is False
    assert 'service_up{service="old"} 1.0' in user.call("exporter", "--once")[1]


def test_its_cards_and_name_are_taken(user: Old, launcher: subprocess.Popen[bytes]) -> None:
    devices = user.read("devices")
    assert {card["module"] for card in devices["cards"] if card["busy"]} == {0, 1}
    code, _, err = user.detach(user.home / "models" / "Small", user.port + 1, "--name", "old")
    assert code == 2
    assert "old" in err


def test_a_live_launcher_is_no_orphan(user: Old, launcher: subprocess.Popen[bytes]) -> None:
    found = user.read("devices")["orphans"]
    assert [each for each in found if each["folder"] == str(user.folder("old"))] == []
    launcher.kill()
    launcher.wait()
    # the same look finds what is an orphan
    found = user.read("devices")["orphans"]
    assert [each for each in found if each["folder"] == str(user.folder("old"))] != []


def test_it_is_stopped(user: Old, launcher: subprocess.Popen[bytes], pids: Path) -> None:
    code, _, err = user.call("stop", "old", "--drain", "0")
    assert code == 0, err
    assert launcher.wait(30) == 0
    assert living(pids) == []
    (listed,) = user.services("-a")
    assert (listed["alive"], listed["phase"]) == (False, "stopped")


def test_it_is_restarted(user: Old, launcher: subprocess.Popen[bytes]) -> None:
    code, _, err = user.call("restart", "old", "--drain", "0")
    assert code == 0, err
    assert launcher.wait(30) == 0
    (listed,) = user.services()
    assert (listed["phase"], listed["modules"]) == ("ready", [0, 1])
    assert listed["launcher_pid"] != launcher.pid


def test_one_whose_launcher_was_killed_is_lost_and_cleared(
    user: Old, launcher: subprocess.Popen[bytes], pids: Path
) -> None:
    launcher.kill()
    launcher.wait()
    (listed,) = user.services("-a")
    assert (listed["alive"], listed["phase"]) == (False, "lost")
    code, _, err = user.call("stop", "old")
    assert code == 0, err
    assert living(pids) == []


def test_a_stopped_service_is_listed_and_started_again(user: Old) -> None:
    user.lay_service("stopped")
    assert user.services() == []
    (listed,) = user.services("-a")
    assert (listed["name"], listed["phase"]) == ("old", "stopped")
    assert user.read("status", "old")["warmup"]["graphs"] == 74
    code, _, err = user.call("restart", "old")
    assert code == 0, err
    (listed,) = user.services()
    assert (listed["phase"], listed["url"]) == ("ready", f"http://127.0.0.1:{user.port}")


def test_a_recipe_cache_is_listed_verified_and_carried(user: Old) -> None:
    user.lay_service("stopped")
    root = str(user.home / "recipes")
    (entry,) = user.read("cache", "list", "-c", root)["entries"]
    key = entry["key"]
    assert key == "ffd155d6674c2174"
    assert user.read("cache", "verify", "-c", root)["sound"] is True
    shown = user.read("cache", "show", key, "-c", root)
    assert (shown["complete"], shown["parts"]["engine"]) == (True, "vllm-fork@1.21")
    file = user.home / "key.tar.zst"
    assert user.read("cache", "export", key, str(file), "-c", root)["files"] == 4
    assert user.read("cache", "import", str(file), "-c", str(user.home / "other"))["key"] == key


def test_a_cluster_is_known(user: Old) -> None:
    target = user.state / "gaudi-launch" / "clusters" / "old" / "cluster.json"
    user.lay(RECORD / "clusters" / "old.json", target)
    code, out, _ = user.call("cluster", "down", "--name", "old", "--dry-run", "--json")
    assert code == 0, out
    assert json.loads(out)["hosts"] == ["one", "two"]
