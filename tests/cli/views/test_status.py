"""The history of a service as drawn by `status NAME --history`."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from gaudi_launch.services.engine_counters import EngineCounters
from gaudi_launch.services.history import HistoryRing, HistoryRow
from tests.support.cli import output, reading
from tests.support.service_record import service


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plain_english: None) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def filled(folder: Path) -> None:
    """Write half an hour in which the load doubles after a quarter."""
    ring = HistoryRing(folder)
    now = time.time()
    for number in range(180):
        late = number >= 90
        counters = EngineCounters(
            running=17 if late else 8,
            waiting=0,
            kv_use=0.97 if late else 0.5,
            generated=1000.0 * number,
            ttft_sum=0.4 * number,
            ttft_count=number,
            preemptions=max(0, number - 108),
        )
        ring.add(HistoryRow(now - 1800 + 10 * number, 300.0, counters))
    ring.close()


def test_the_history_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with service("mine", "http://127.0.0.1:9", phase="load") as folder:
        filled(folder)
        code, out, _ = output(capsys, "status", "mine", "--history", "30m")
    rows = {line[:12].strip(): line for line in out.splitlines()}
    assert code == 0
    assert rows["TTFT"].endswith("now 400 ms, most 400 ms")
    assert rows["TPOT"].endswith(" -")
    assert rows["requests"].endswith("now 17.0, most 17.0") and "▄" in rows["requests"]
    assert rows["KV cache"].endswith("now 97%, most 97%")
    assert rows["power"].endswith("now 300 W, most 300 W")


def test_the_history_is_in_the_json_only_where_it_is_requested(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with service("mine", "http://127.0.0.1:9", phase="load") as folder:
        filled(folder)
        found = reading(capsys, "status", "mine", "--history", "10m")["history"]
        assert 55 <= len(found) <= 61
        assert found[-1]["tokens_per_second"] == pytest.approx(100.0, rel=0.01)
        assert "history" not in reading(capsys, "status", "mine")


def test_a_service_without_a_history_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with service("mine", "http://127.0.0.1:9", phase="load"):
        _, out, _ = output(capsys, "status", "mine", "--history", "1h")
    assert "There is no history yet." in out


def test_why_names_what_began(capsys: pytest.CaptureFixture[str]) -> None:
    with service("mine", "http://127.0.0.1:9") as folder:
        filled(folder)
        (folder / "engine.log").write_text("INFO: Application startup complete.\n")
        found = reading(capsys, "why", "mine")["history"]
        code, out, _ = output(capsys, "why", "mine")
    assert found[0]["id"] == "diagnose.history_preemptions_load"
    assert code == 0 and "History:" in out
    # the first minutes of both depend on the second at which the test began
    assert re.search(r"Preemptions began at \d\d:\d\d, [2-4] min after the load doubled", out)
