"""A kept service on the real CPU engine: started without a terminal, killed, started again,
lost, stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.waiting import until

pytestmark = pytest.mark.e2e


class User:
    def __init__(self, state: Path, sockets: Path) -> None:
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(state),
            "VLLM_RPC_BASE_PATH": str(sockets),
        }

    def call(self, *words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "gaudi_launch", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def only(self) -> dict[str, Any]:
        (service,) = json.loads(self.call("ps", "--json")[1])["services"]
        assert isinstance(service, dict)
        return service


def living(family: list[psutil.Process]) -> list[psutil.Process]:
    alive = []
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


@pytest.fixture
def sockets() -> Iterator[Path]:
    # a path of pytest's own may be too long for a socket
    with tempfile.TemporaryDirectory(prefix="gl-") as folder:
        yield Path(folder)


@pytest.mark.usefixtures("engine")
def test_a_real_engine_is_kept(tiny_model: Path, port: int, tmp_path: Path, sockets: Path) -> None:
    user = User(tmp_path / "state", sockets)
    words = (
        "serve",
        "-w",
        str(tiny_model),
        "--engine",
        "cpu",
        "-p",
        str(port),
        "--detach",
        "--name",
        "demo",
    )
    try:
        code, out, err = user.call(*words, "--restart", "on-failure")
        assert code == 0, err
        assert out.startswith("Ready after ")
        service = user.only()
        assert service["phase"] == "ready" and service["requests"] == {"running": 0, "waiting": 0}
        first = set(sockets.iterdir())
        assert first
        launcher = psutil.Process(service["launcher_pid"])
        assert launcher.memory_info().rss < 50 << 20
        family = launcher.children(recursive=True)
        os.kill(service["pid"], signal.SIGKILL)
        until(lambda: user.only()["restarts"] == 1, "the new start")
        code, _, err = user.call("wait", "demo", "--timeout", "240")
        assert code == 0, err
        assert living(family) == [] and not first & set(sockets.iterdir())
        family = launcher.children(recursive=True)
        # a core that hangs outlives the launcher and the server; its title hides its environment
        (core,) = [
            process for process in family if "VLLM::EngineCore" in " ".join(process.cmdline())
        ]
        core.suspend()
        for pid in (launcher.pid, user.only()["pid"]):
            os.kill(pid, signal.SIGKILL)
        code, out, err = user.call("stop", "demo", "--json")
        assert code == 0, err
        (stopped,) = json.loads(out)["stopped"]
        # when its group is orphaned the kernel wakes what is stopped and hangs it up, so it may be
        # gone by itself
        assert {orphan["pid"] for orphan in stopped["orphans"]} <= {
            process.pid for process in family
        }
        assert living([launcher, *family]) == [] and list(sockets.iterdir()) == []
    finally:
        user.call("stop", "--all", "--drain", "0")
