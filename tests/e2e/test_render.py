"""A rendered script starts the real engine without us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gaudi_launch.core.services.probe import probe
from tests.support.every_case import ONE_MORE_ENGINE
from tests.support.waiting import GENEROUS, until

pytestmark = pytest.mark.e2e
# two engines at once on a busy machine were seen to need more than five minutes
_START_SECONDS = 900.0


class Rendered:
    """A rendered target of the tiny model, started in a folder of its own."""

    def __init__(self, target: str, model: Path, port: int, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        words = ("-w", str(model), "--engine", "cpu", "-p", str(port), "-l", "256")
        done = subprocess.run(
            [sys.executable, "-m", "gaudi_launch", "render", target, *words, "--to", str(folder)],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process as systemd does; all that it has started must end too."""
    if process.poll() is not None:
        return
    family = psutil.Process(process.pid).children(recursive=True)
    try:
        process.send_signal(signal.SIGTERM)
        process.wait(GENEROUS)
        gone, alive = psutil.wait_procs(family, timeout=GENEROUS)
        assert alive == [] and len(gone) == len(family)
    finally:
        for left in family:
            if left.is_running():
                left.kill()
        process.kill()
        process.wait(GENEROUS)


@ONE_MORE_ENGINE
def test_the_real_engine_answers_by_the_script(
    engine: Path, tiny_model: Path, port: int, tmp_path: Path
) -> None:
    script = Rendered("script", tiny_model, port, tmp_path)
    started = script.start("bash", "serve.sh")
    try:
        until(
            lambda: probe(f"http://127.0.0.1:{port}", timeout=30.0).ready or started.poll(),
            "the engine's start",
            _START_SECONDS,
        )
        assert started.poll() is None, script.log.read_text()[-3000:]
    finally:
        end(started)
