"""Rendered files start the real engine without us: the script, and env.sh with vLLM's own reader
of config.yml."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gaudi_launch.services.probe import probe
from tests.support.waiting import GENEROUS


@pytest.mark.e2e
@pytest.mark.parametrize("target", ["script", "env"])
def test_the_real_engine_answers(
    target: str, engine: Path, tiny_model: Path, port: int, tmp_path: Path
) -> None:
    words = (
        "-w",
        str(tiny_model),
        "--engine",
        "cpu",
        "-p",
        str(port),
        "-l",
        "256",
        "--to",
        str(tmp_path),
    )
    clean = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_launch", "render", target, *words],
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if target == "script":
        command = ["bash", str(tmp_path / "serve.sh")]
    else:
        text = (tmp_path / "env.sh").read_text(encoding="utf-8")
        (line,) = [line for line in text.splitlines() if " serve " in line and "--config" in line]
        command = ["bash", "-c", f". ./env.sh && exec {line.removeprefix('# ')}"]
        assert shlex.split(line)[1] == str(engine.with_name("vllm"))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=clean, stdout=log, stderr=log)
    family: list[psutil.Process] = []
    try:
        # two engines at once on a busy machine were seen to need more than five minutes
        deadline = time.monotonic() + 900
        while not probe(f"http://127.0.0.1:{port}", timeout=30.0).ready:
            assert process.poll() is None and time.monotonic() < deadline, (
                tmp_path / "log"
            ).read_text()[-3000:]
            time.sleep(0.5)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        process.wait(GENEROUS)
        gone, alive = psutil.wait_procs(family, timeout=GENEROUS)
        assert alive == [] and len(gone) == len(family)
    finally:
        for left in (*family, psutil.Process(process.pid) if process.poll() is None else None):
            if left is not None and left.is_running():
                left.kill()
        process.wait(GENEROUS)
