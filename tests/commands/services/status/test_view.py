"""The history of a service as drawn by `status NAME --history`."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.commands.services.status import view as status
from gaudi_launch.commands.services.status.case import Deployment, RayStatus, ServiceStatus
from gaudi_launch.core.host.hardware import Card
from gaudi_launch.core.services.engine_counters import EngineCounters
from gaudi_launch.core.services.history import HistoryRing, HistoryRow
from gaudi_launch.core.services.metrics import EngineLoad
from gaudi_launch.core.services.run_record import RunRecord
from gaudi_launch.core.services.state.registry import ServiceRecord
from tests.support.cli import output, reading
from tests.support.service_record import service
from tests.support.views import views

pytestmark = pytest.mark.usefixtures("plain_english")


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


STATE = {
    "phase": "ready",
    "model": "/models/m",
    "engine": "vllm-fork@1.21",
    "url": "http://h:1",
    "modules": [0, 1],
    "ready_at": 1000.0,
    "restarts": 2,
    "error": "",
    "log": "/l",
    "run_time_compiles": 3,
    "facts": {"warmup_seconds": 65.0},
    "phases": [
        {"name": "start", "begin": 10.0, "end": 31.0, "items": 0},
        {"name": "load", "begin": 31.0, "end": 96.0, "items": 4},
        {"name": "warmup_prompt", "begin": 96.0, "end": None, "items": 45},
    ],
}
PLAN = {
    "dtype": "bfloat16",
    "argv": ["serve", "--max-model-len", "4096", "--max-num-seqs", "32"],
    "env": {},
    "cpus": "0-9",
    "numa_nodes": [0],
    "memory": {"weights": 15.25, "kv": 60.0},
    "cache": None,
    "buckets": {"graphs": 153},
    "estimate": {"warmup_seconds": {"low": 60.0, "high": 150.0}},
}
RUN = RunRecord(10, 0, 1.0, 0.0, None, 4, 1.0, real_time=True)
CARD = Card(1, 0, memory_used_mib=5, memory_total_mib=9, temperature_c=None, utilization_percent=7)


RAY = RayStatus(
    "http://127.0.0.1:8265",
    "default",
    "RUNNING",
    "all is well",
    (
        Deployment("Engine", "UPDATING", 1, 2, "one starts", ("RUNNING", "STARTING")),
        Deployment("Router", "HEALTHY", 1, 1, "", ("RUNNING",)),
    ),
)
SILENT = RayStatus("http://127.0.0.1:8265", trouble="timeout")


def status_of(*, alive: bool = True, simulated: bool = False) -> ServiceStatus:
    state = {**STATE, "simulated": simulated}
    service = ServiceRecord("a", Path("/s/a"), state, alive)
    return ServiceStatus(service, PLAN, EngineLoad(3, 1), (CARD,), RUN if simulated else None)


def test_all_facts_of_a_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1090.0)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)

    def show(found: ServiceStatus) -> None:
        status.show(found.service, status.to_json(found), complete=True)

    bare = ServiceStatus(ServiceRecord("b", Path("/s/b"), {"phase": "start"}, True), {}, None, ())
    views(
        capsys,
        "status",
        [
            lambda: show(status_of()),
            lambda: show(status_of(simulated=True)),
            lambda: show(status_of(alive=False)),
            lambda: show(bare),
            lambda: show(replace(bare, ray=RAY)),
            lambda: show(replace(bare, ray=SILENT)),
        ],
        [status.to_json(status_of(simulated=True)), status.to_json(replace(status_of(), ray=RAY))],
    )
