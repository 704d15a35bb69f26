"""One service with a real engine, and a question to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import psutil

from gaudi_launch.extensions.simulated.engine import RUNTIME
from tests.support.waiting import GENEROUS


class Serve:
    """One `gaudi-launch serve` of a user.

    Whatever descends from it is known and must be gone in the end.
    """

    def __init__(self, state: Path, *words: str) -> None:
        self.state = state
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gaudi_launch", "serve", "--quiet", *words],
            env={**os.environ, "XDG_STATE_HOME": str(state), "http_proxy": "http://127.0.0.1:9"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.family: list[psutil.Process] = []

    def ready(self) -> list[str]:
        """Return the lines printed once it answers; then the family is known."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(4)]
        self.family = psutil.Process(self.process.pid).children(recursive=True)
        return lines

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=600)
        return self.process.returncode, err

    def alive(self) -> list[psutil.Process]:
        return [p for p in self.family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def keep_vllm_cache(cache: Path) -> None:
    """Link vLLM's cache of earlier runs into a cache folder that is made here.

    Without it one process more of each engine imports vLLM, to look at the model's class.
    """
    kept = Path(os.environ["XDG_CACHE_HOME"]) / "vllm"
    kept.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True)
    (cache / "vllm").symlink_to(kept)


QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


PARIS = "The capital of France is Paris."


def ask(port: int, **body: Any) -> bytes:
    request = Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps({"messages": QUESTION, "temperature": 0, **body}).encode(),
        {"Content-Type": "application/json"},
    )
    with build_opener(ProxyHandler({})).open(request, timeout=GENEROUS) as response:
        content: bytes = response.read()
    return content


def streamed(port: int) -> tuple[str, int]:
    """Return a streamed answer of the demo: its text, and the number of pieces."""
    events = ask(port, model="demo", stream=True).decode().strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events[:-1]]
    pieces = [chunk["delta"].get("content") or "" for chunk in chunks]
    assert chunks[-1]["finish_reason"] == "stop"
    return "".join(pieces), sum(bool(piece) for piece in pieces)


def json_of(state: Path, *words: str, check: bool = True) -> dict[str, Any]:
    """Return the --json output of a command; its status is 0 with ``check``."""
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_launch", *words, "--json"],
        env={**os.environ, "XDG_STATE_HOME": str(state), "http_proxy": "http://127.0.0.1:9"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=check,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run_simulated(engine: Path, script: Path, folder: Path, given: str = "") -> list[Any]:
    """Run a script with the code of simulated cards in the engine's interpreter.

    It gets a folder of a model; the JSON objects that it prints are returned.
    """
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [str(engine), str(script), str(folder)],
        input=given,
        env={**os.environ, "PYTHONPATH": str(RUNTIME), **quiet},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
