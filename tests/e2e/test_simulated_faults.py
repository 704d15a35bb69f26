"""A simulated card that is lost: what clients, commands and the next start see of it."""

from __future__ import annotations

import urllib.error
from pathlib import Path

import pytest

from tests.support.every_case import ONE_MORE_ENGINE
from tests.support.real_engines import Serve, ask, json_of
from tests.support.waiting import until

pytestmark = pytest.mark.e2e
MODEL = "Qwen/Qwen2.5-7B-Instruct"
# after the warm-up: enough for the readiness check on a busy machine
LOST_AFTER = 20


@ONE_MORE_ENGINE
def test_a_lost_card_stays_lost(
    engine: Path, port: int, tmp_path: Path, serving: list[Serve]
) -> None:
    where = ("--machine", "simulated:hls2", "-n", "2", "-p", str(port), "--name", "fails")
    words = (MODEL, "--engine", "simulated", "--time-scale", "500", "--restart", "on-failure")
    serve = Serve(tmp_path, *words, *where, "--fault", f"card-lost=1@{LOST_AFTER}s")
    serving.append(serve)
    serve.ready()

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
    )
    status = json_of(tmp_path, "status", "fails", check=False)
    assert status["restarts"] >= 1 and status["engine"].startswith("simulated@")
    serve.end()
