"""Simulated cards that fail: what clients, commands and the next start see of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.support.real_engines import Serve, ask
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
MODEL = "Qwen/Qwen2.5-7B-Instruct"
# enough for the readiness check on a busy machine
LOST_AFTER = 45


def command(state: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_launch", *words],
        env={**os.environ, "XDG_STATE_HOME": str(state), "http_proxy": "http://127.0.0.1:9"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=False,
    )
    return done.stdout


def test_a_rehearsal_is_marked_everywhere_and_a_lost_card_stays_lost(
    engine: Path, port: int, tmp_path: Path, serving: list[Serve]
) -> None:
    faults = (
        "--fault",
        "compile",
        "--fault",
        "slow-card=1",
        "--fault",
        f"card-lost=1@{LOST_AFTER}s",
    )
    where = ("--machine", "simulated:hls2", "-n", "2", "-p", str(port), "--name", "fails")
    words = (MODEL, "--engine", "simulated", "--time-scale", "500", "--restart", "on-failure")
    serve = Serve(tmp_path, *words, *where, *faults)
    serving.append(serve)
    serve.ready()

    url = f"http://127.0.0.1:{port}"
    with build_opener(ProxyHandler({})).open(f"{url}/v1/models", timeout=30) as answer:
        assert answer.headers["x-simulated"] == "gaudi-launch"
        models = json.loads(answer.read())["data"]
    assert [(model["id"], model["owned_by"]) for model in models] == [(MODEL, "simulated")]
    saved = tmp_path / "run.json"
    load = ("-i", "64", "-o", "8", "--concurrency", "2", "--requests", "6", "--tool", "builtin")
    assert "The cards are simulated" in command(
        tmp_path, "bench", "fails", *load, "--save", str(saved)
    )
    assert json.loads(saved.read_text())["simulated"] is True
    assert command(tmp_path, "learn", "--show").startswith("Nothing learned")
    assert command(tmp_path, "learn", str(saved)) == ""
    assert command(tmp_path, "learn", "--show").startswith("Nothing learned")
    why = json.loads(command(tmp_path, "why", "fails", "--json"))
    assert {"not_warmed_up", "simulated_fault"} <= {finding["id"] for finding in why["findings"]}

    def lost() -> bool:
        try:
            ask(port, model=MODEL, max_tokens=4)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return True
        return False

    until(lost, "the lost card", seconds=LOST_AFTER + 60)
    log = tmp_path / "gaudi-launch/services/fails/engine.log"
    until(
        lambda: "Device acquire failed" in log.read_text(errors="replace"),
        "the start without the card",
        seconds=120,
    )
    status = json.loads(command(tmp_path, "status", "fails", "--json"))
    assert status["restarts"] >= 1 and status["engine"].startswith("simulated@")
    serve.end()
