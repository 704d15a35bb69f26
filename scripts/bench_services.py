"""Measure the cost of a detached service: memory, CPU, `ps`, many launches.

Run as ``python scripts/bench_services.py [--cycles N]``; needs nothing but the tests' trivial
engine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.services.process import detach
from gaudi_launch.core.services.process.supervise import LIMITS
from gaudi_launch.core.services.state import chosen, registry
from gaudi_launch.core.services.state.job import ServiceJob
from gaudi_launch.core.services.state.orphans import orphans
from gaudi_launch.core.services.stop import stop

ENGINE = Path(__file__).parents[1] / "tests" / "support" / "trivial_engine.py"


def job(name: str) -> ServiceJob:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = int(trial.getsockname()[1])
    words = (sys.executable, str(ENGINE), "--port", str(port), "--model", "m")
    command = Command(argv=words, env={"TRIVIAL_GRAPHS": "1"}, working_dir="/")
    return ServiceJob(
        name, "m", "/m", "trivial@1", f"http://127.0.0.1:{port}", command, limits=LIMITS
    )


def start(name: str) -> None:
    made = job(name)
    with registry.hold(name) as held:
        detach.spawn(made, None, os.environ, (held,))


def until(name: str, phase: str) -> None:
    while chosen.find(name).phase != phase:
        time.sleep(0.02)


def end(name: str) -> None:
    stop(chosen.find(name), 0, lambda what, value: None)
    # this program continues, so it has to read its children's exit statuses
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=20)
    cycles = parser.parse_args().cycles
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        begin = time.monotonic()
        for _ in range(cycles):
            start("one")
            until("one", "ready")
            end("one")
        each = (time.monotonic() - begin) / cycles
        files = sorted(path.name for path in chosen.find("one").folder.iterdir())
        left = len(orphans(chosen.find("one").folder)) + len(
            psutil.Process().children(recursive=True)
        )
        print(f"{cycles} starts and stops: {each:.2f} s each; files {files}; processes left {left}")
        for number in range(20):
            name = f"s{number}"
            start(name)
            until(name, "ready")
            if number >= 5:
                end(name)
        times = []
        for _ in range(15):
            begin = time.monotonic()
            out = subprocess.run(
                [sys.executable, "-m", "gaudi_launch", "ps", "-a", "--json"],
                capture_output=True,
                check=True,
            )
            times.append(time.monotonic() - begin)
        listed = json.loads(out.stdout)["services"]
        alive = [service for service in listed if service["alive"]]
        print(
            f"ps -a of {len(listed)} services, {len(alive)} alive: "
            f"{1000 * statistics.median(times):.0f} ms"
        )
        launchers = [psutil.Process(service["launcher_pid"]) for service in alive]
        used = [sum(p.cpu_times()[:2]) for p in launchers]
        time.sleep(30)
        shares = [
            (sum(p.cpu_times()[:2]) - was) / 30 for p, was in zip(launchers, used, strict=True)
        ]
        memory = [p.memory_info().rss / 2**20 for p in launchers]
        print(
            f"a launcher of a ready service: {max(memory):.0f} MiB, {100 * max(shares):.2f} "
            "% of a CPU"
        )
        for service in alive:
            end(service["name"])


if __name__ == "__main__":
    main()
