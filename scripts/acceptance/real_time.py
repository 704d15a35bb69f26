"""Measure the host's time per step of simulated cards at three batches.

`real_time.py`

An 8B model is served on one simulated card in real time; batches of 1, 32 and 128 requests come at
once. The exit status is 0 when the processor's time per step at 128 requests is below 3 ms and the
run was in time.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
BATCHES = (1, 32, 128)
MOST_MILLISECONDS = 3.0
_NAME, _PORT = "real-time", 31979
_OUTPUT = 300
# the engine writes its record every five seconds of steps
_RECORD_SECONDS = 6.0


def launcher(*words: str) -> list[str]:
    return [sys.executable, "-m", "gaudi_launch", *words]


def ask(number: int) -> None:
    """Send one request and read its answer as a stream."""
    body = {
        "model": MODEL,
        "prompt": f"{number} " * 60,
        "max_tokens": _OUTPUT,
        "ignore_eos": True,
        "stream": True,
    }
    connection = http.client.HTTPConnection("127.0.0.1", _PORT, timeout=300)
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    for _ in connection.getresponse():
        pass
    connection.close()


def send(batch: int) -> None:
    """Send a batch and wait for its answers."""
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(batch)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measured(state: Path) -> dict[str, Any]:
    """Serve, send every batch, and return the record of the run."""
    options = ["--engine", "simulated", "-n", "1", "-l", "2048", "-p", str(_PORT), "--name", _NAME]
    began = time.monotonic()
    subprocess.run(launcher("serve", MODEL, *options, "--detach"), check=True)
    print(f"ready after {time.monotonic() - began:.0f} s")
    for batch in BATCHES:
        send(batch)
    time.sleep(_RECORD_SECONDS)
    send(1)
    subprocess.run(launcher("stop", _NAME), check=True)
    record = state / "gaudi-launch" / "services" / _NAME / "simulated-0.json"
    found: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    return found


def main() -> int:
    if not EMBEDDED.is_ready():
        print("the CPU engine is not installed: run `gaudi-launch setup cpu`", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        try:
            found = measured(Path(folder))
        finally:
            subprocess.run(launcher("stop", "--all"), check=False)
    for batch, times in found["batches"].items():
        print(f"up to {batch} requests: {json.dumps(times)}")
    print(f"{found['steps']} steps, {found['late_steps']} late, {found['behind_seconds']} s behind")
    largest = found["batches"].get("128", {"host_ms": float("inf")})
    return 0 if found["real_time"] and largest["host_ms"] < MOST_MILLISECONDS else 1


if __name__ == "__main__":
    raise SystemExit(main())
