"""Serve five models on simulated cards at once and send them requests.

`five_engines.py [--rate 4] [--seconds 60] [--scale 1]`

Each model is a separate service (`serve --engine simulated`); the requests
arrive at random, at ``--rate`` per second in total. Printed: seconds until all are ready, memory,
latencies, and the delay of each service's host. The exit status is 0 when every request was
answered in full and every service was in time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED

SERVICES = (
    ("meta-llama/Llama-3.1-8B-Instruct", 1),
    ("meta-llama/Llama-3.1-70B-Instruct", 4),
    ("Qwen/Qwen3-32B", 2),
    ("Qwen/Qwen3-235B-A22B", 8),
    ("Qwen/Qwen3-30B-A3B", 1),
)
_PORT = 31980
_READY_SECONDS = 900
# tokens of an answer; a prompt has about four times as many
_OUTPUT = 64
_TERMS = 200


@dataclass
class Answers:
    """Times of the clients: seconds to the first token and between tokens."""

    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def launcher(*words: str) -> list[str]:
    return [sys.executable, "-m", "gaudi_launch", *words]


def start(scale: float) -> None:
    """Start all services and wait until each is ready."""
    for number, (model, cards) in enumerate(SERVICES):
        command = launcher(
            "serve", model, "--engine", "simulated", "-n", str(cards), "--name", f"five{number}"
        )
        command += ["-p", str(_PORT + number), "--time-scale", str(scale), "--detach", "--no-wait"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    for number in range(len(SERVICES)):
        subprocess.run(
            launcher("wait", f"five{number}", "--timeout", str(_READY_SECONDS)), check=True
        )


def ask(number: int, text: str, answers: Answers) -> None:
    """Send one request to a service and record its times."""
    model, _ = SERVICES[number]
    body = {
        "model": model,
        "prompt": text,
        "max_tokens": _OUTPUT,
        "ignore_eos": True,
        "stream": True,
    }
    connection = http.client.HTTPConnection("127.0.0.1", _PORT + number, timeout=300)
    began, times = time.perf_counter(), []
    try:
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
    except (OSError, http.client.HTTPException) as error:
        answers.failed.append(str(error))
        return
    finally:
        connection.close()
    if len(times) < 2:
        answers.failed.append(f"{len(times)} parts")
        return
    answers.first.append(times[0] - began)
    answers.between.append((times[-1] - times[0]) / (_OUTPUT - 1))


def load(rate: float, seconds: float) -> Answers:
    """Send requests at ``rate`` per second in total, and wait for their answers."""
    chance, answers, threads = random.Random(3), Answers(), []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number = chance.randrange(len(SERVICES))
        text = " ".join(str(chance.randrange(1000)) for _ in range(_TERMS))
        thread = threading.Thread(target=ask, args=(number, text, answers))
        thread.start()
        threads.append(thread)
        time.sleep(chance.expovariate(rate))
    for thread in threads:
        thread.join()
    return answers


def status_of(number: int) -> dict[str, Any]:
    """Return the object of ``status --json`` of a service."""
    done = subprocess.run(
        launcher("status", f"five{number}", "--json"), capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def memory_gib() -> float:
    """Return the memory that all processes of the engines take without shared pages."""
    total = 0
    for number in range(len(SERVICES)):
        engine = psutil.Process(status_of(number)["pid"])
        for process in (engine, *engine.children(recursive=True)):
            total += process.memory_full_info().uss
    return total / 2**30


def shown(name: str, seconds: list[float]) -> str:
    ordered = sorted(seconds)
    middle, high = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]
    return f"{name} p50 {1000 * middle:.0f} ms, p95 {1000 * high:.0f} ms"


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--rate", type=float, default=4.0)
    reader.add_argument("--seconds", type=float, default=60.0)
    reader.add_argument("--scale", type=float, default=1.0)
    given = reader.parse_args()
    if not EMBEDDED.is_ready():
        print("the CPU engine is not installed: run `gaudi-launch setup cpu`", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = str(Path(state))
        began = time.monotonic()
        try:
            start(given.scale)
            print(
                f"{len(SERVICES)} services ready after {time.monotonic() - began:.0f} s, "
                f"{memory_gib():.1f} GiB"
            )
            answers = load(given.rate, given.seconds)
            # the engines write their records every five seconds of steps
            runs = [status_of(number)["simulated_run"] for number in range(len(SERVICES))]
        finally:
            subprocess.run(launcher("stop", "--all"), check=False)
    print(f"{len(answers.first)} answers, {len(answers.failed)} failed {answers.failed[:2]}")
    print(shown("TTFT", answers.first), shown("TPOT", answers.between), sep="; ")
    for (model, cards), run in zip(SERVICES, runs, strict=True):
        print(f"{model} on {cards} cards: {json.dumps(run)}")
    in_time = all(run is not None and run["real_time"] for run in runs)
    return 0 if in_time and not answers.failed else 1


if __name__ == "__main__":
    raise SystemExit(main())
