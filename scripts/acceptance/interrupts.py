"""Interrupt a real command that starts children at random moments.

python scripts/acceptance/interrupts.py 200

The command is `gaudi-launch setup` with a stand-in for Python that never ends and has a child. Each
time the exit status must be 130 and no process may remain. Prints one JSON object; the exit status
is 0 if all runs passed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

# around the fork, and well into the wait for the child
_SPREADS_SECONDS = (0.01, 0.05, 0.5)
_LIMIT_SECONDS = 120.0
_TOKEN = "GAUDI_LAUNCH_ACCEPTANCE_TOKEN"
_PYTHON = """#!/bin/sh
case "$*" in
    *"-m venv"*) sleep 600 & sleep 600 ;;
esac
"""


@dataclass(frozen=True)
class Result:
    """One interrupted command: when it was interrupted, its end, what remained."""

    after: float
    status: int
    left: tuple[int, ...]
    error: str

    @property
    def good(self) -> bool:
        return self.status == 130 and not self.left


def interrupt(number: int, folder: Path, after: float) -> Result:
    """Start the command, send SIGINT ``after`` seconds of its first step, and check."""
    home = folder / str(number)
    home.mkdir()
    python = home / "python3"
    python.write_text(_PYTHON, encoding="utf-8")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    token = f"{os.getpid()}-{number}"
    environment = {**os.environ, "GAUDI_LAUNCH_ENGINES_DIR": str(home), "HOME": str(home), _TOKEN: token}
    words = [sys.executable, "-m", "gaudi_launch", "setup", "vllm-fork@1.22", "--python", str(python)]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as command:
        assert command.stderr is not None
        said = ""
        while not said.startswith("[1/"):
            said = command.stderr.readline()
            if not said:
                break
        time.sleep(after)
        command.send_signal(signal.SIGINT)
        try:
            _, error = command.communicate(timeout=_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            command.kill()
            error = "it went on"
            command.communicate()
    left = _living(token)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return Result(after, command.returncode, left, error[-500:])


def _living(token: str) -> tuple[int, ...]:
    """Return the processes that carry a token in their environment.

    Those on their way out get a moment.
    """
    word = f"{_TOKEN}={token}".encode()
    found: tuple[int, ...] = ()
    for _ in range(20):
        found = tuple(pid for pid in _pids() if word in _environment(pid))
        if not found:
            break
        time.sleep(0.1)
    return found


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def main() -> int:
    moments = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    at_once = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    # a shell's background jobs ignore it, and what they start would, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance = random.Random()
    draws = [chance.uniform(0.0, _SPREADS_SECONDS[n % len(_SPREADS_SECONDS)]) for n in range(moments)]
    with (
        tempfile.TemporaryDirectory(prefix="gaudi-launch-interrupts-") as place,
        ThreadPoolExecutor(at_once) as pool,
    ):
        results = list(pool.map(lambda n: interrupt(n, Path(place), draws[n]), range(moments)))
    bad = [vars(result) for result in results if not result.good]
    print(json.dumps({"moments": moments, "bad": bad}, indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
