"""Run the acceptance test without cards: torch on the CPU, a simulated server.

Use: `python scripts/acceptance/accept.py [SCALE]`. Needs `setup cpu`; takes about six minutes.

The first level runs at its real length. The third one, with durations divided by SCALE (20), is
ended at ten drawn moments by SIGKILL, SIGINT and SIGTERM, and then runs to its end: nothing may
live on after an end, and no result that was kept may be lost. Prints one JSON object; the exit
status is 0 when all was so.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

_TOKEN = "GAUDI_LAUNCH_ACCEPTANCE_TOKEN"
_ENDS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
_COUNT, _LONGEST_SECONDS, _GONE_SECONDS = 10, 12.0, 10.0
_COMMAND = [sys.executable, "-m", "gaudi_launch", "doctor", "--deep", "--json"]


def left(token: str) -> list[str]:
    """Return the processes of a run that still live some seconds after its end."""
    end = time.monotonic() + _GONE_SECONDS
    while True:
        found = []
        for each in psutil.process_iter():
            try:
                if each.environ().get(_TOKEN) == token:
                    found.append(" ".join(each.cmdline())[:120])
            except psutil.Error:
                continue
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def kept(state: Path) -> list[str]:
    """Return the steps whose results an interrupted run has kept."""
    record = state / "gaudi-launch/acceptance/run.json"
    if not record.is_file():
        return []
    return [each["name"] for each in json.loads(record.read_text())["results"]]


def main() -> int:
    """Run all of it, print what was found, and return the exit status."""
    scale = sys.argv[1] if len(sys.argv) > 1 else "20"
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        environment = {**os.environ, "XDG_STATE_HOME": str(state), _TOKEN: folder}
        began = time.monotonic()
        done = subprocess.run(_COMMAND, env=environment, capture_output=True, text=True)
        first = {**_outcome(done), "seconds": round(time.monotonic() - began, 1)}
        environment["GAUDI_LAUNCH_ACCEPTANCE_SCALE"] = scale
        command = [*_COMMAND, "--level", "3", "--weights", "demo"]
        wrong, steps = _ended(command, environment, state)
        began = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        last = {**_outcome(done), "seconds": round(time.monotonic() - began, 1)}
        wrong += [f"left at the end: {each}" for each in left(folder)]
    report = {"level_1": first, "kept_after_each_end": steps, "level_3": last, "wrong": wrong}
    print(json.dumps({**report, "scale": float(scale)}, indent=1))
    return int(bool(wrong) or first["exit_code"] != 0 or last["exit_code"] != 0)


def _ended(
    command: list[str], environment: dict[str, str], state: Path
) -> tuple[list[str], list[int]]:
    """End a run at drawn moments; return what was wrong, and the steps kept."""
    chance, wrong, steps = random.Random(43), [], []
    for number in range(_COUNT):
        before = kept(state)
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        time.sleep(chance.uniform(1.0, _LONGEST_SECONDS))
        process.send_signal(_ENDS[number % len(_ENDS)])
        process.wait()
        wrong += [f"end {number}: {each}" for each in left(environment[_TOKEN])]
        if kept(state)[: len(before)] != before:
            wrong.append(f"end {number}: results were lost")
        steps.append(len(kept(state)))
    return wrong, steps


def _outcome(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the result of each step of a run, with its figures."""
    report = json.loads(done.stdout)
    steps = report.get("steps", [])
    return {
        "exit_code": done.returncode,
        "steps": {each["name"]: [each["status"], each["values"]] for each in steps},
        "notes": [note["message"] for each in steps for note in each["notes"]],
    }


if __name__ == "__main__":
    sys.exit(main())
