"""A reader that goes away (`| head`): a plan ends quietly, a service goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.processes import free_port, living, pids, trivial_python
from tests.support.serve import Gaudi, gaudi, machine, model
from tests.support.waiting import GENEROUS, until

__all__ = ["free_port", "gaudi", "machine", "model", "pids", "trivial_python"]


def test_a_plan_whose_reader_goes_away_is_done() -> None:
    words = [
        sys.executable,
        "-m",
        "gaudi_launch",
        "plan",
        "-w",
        "Qwen/Qwen3-8B",
        "--machine",
        "simulated:hls2",
    ]
    with subprocess.Popen(
        [*words, "-n", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        error = process.stderr.read()
        assert process.wait(GENEROUS) == 0
    assert b"Traceback" not in error and b"BrokenPipe" not in error


def test_a_service_whose_reader_goes_away_runs_on(
    gaudi: Gaudi, model: Path, free_port: int, pids: Path
) -> None:
    process = gaudi.start("-w", str(model), "-n", "2", "-p", str(free_port), "--name", "small")
    assert process.stdout is not None and process.stderr is not None
    process.stderr.readline()
    process.stderr.close()
    process.stdout.close()
    state = gaudi.state / "gaudi-launch/services/small/state.json"
    until(
        lambda: state.exists() and '"phase": "ready"' in state.read_text(), "the service's answer"
    )
    assert process.poll() is None and living(pids)
    process.terminate()
    assert process.wait(GENEROUS) == 130
    assert '"phase": "stopped"' in state.read_text()
    until(lambda: not living(pids), "its end")
