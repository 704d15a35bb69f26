"""``gaudi-launch exporter``: scraped over HTTP as Prometheus does, and read back with its own
parser."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gaudi_launch.cli.main import run
from gaudi_launch.core.base import background
from gaudi_launch.core.services.engine_counters import EngineCounters
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.registry import ServiceRecord
from gaudi_launch.extensions.watch.exporter import export as exporter
from gaudi_launch.extensions.watch.exporter.server import with_health
from gaudi_launch.extensions.watch.sample import (
    CardSample,
    DiskSample,
    HostSample,
    NodeSample,
    ServiceSample,
)
from tests.support.cli import golden
from tests.support.processes import free_port
from tests.support.service_record import service
from tests.support.waiting import GENEROUS, until

__all__ = ["free_port"]

LINE = (
    "WARNING 11-21 03:03:01 [hpu_model_runner.py:1] Configuration: (prompt, 1, 384) was not "
    "warmed-up!\n"
)
OTHER_RANK = "(RayWorkerWrapper pid=7) " + LINE
STATE = {
    "name": "mine",
    "url": "http://127.0.0.1:30001",
    "phase": "ready",
    "model": "/models/QwQ-32B",
    "served": "QwQ-32B",
    "engine": "vllm-fork@1.21",
    "modules": [2, 3],
    "restarts": 2,
    "began": 1000.0,
    "ready_at": 1300.5,
    "done": 7,
    "total": 9,
    "facts": {"warmup_seconds": 210, "port": "x"},
    "phases": [
        {"name": "load", "begin": 10.0, "end": 40.0, "items": 3},
        {"name": "warmup_prompt", "begin": 40.0, "end": 50.0, "items": 3},
        {"name": "warmup_prompt", "begin": 60.0, "end": 65.5, "items": 3},
        {"name": "ready", "begin": 70.0, "end": None},
        "junk",
    ],
}

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parse(page: str) -> Values:
    return {
        (
            sample.name.removeprefix("gaudi_launch_"),
            tuple(sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith("gaudi_launch_")
    }


def of(values: Values, name: str, **labels: str) -> float | None:
    return values.get((name, tuple(sorted(labels.items()))))


def scrape(port: int) -> Values:
    with build_opener(ProxyHandler({})).open(
        f"http://127.0.0.1:{port}/metrics", timeout=GENEROUS
    ) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return parse(answer.read().decode())


def test_a_scrape_tells_services_and_cards(free_port: int) -> None:
    command = [sys.executable, "-m", "gaudi_launch", "exporter", "-p", str(free_port)]
    with service("mine", "-") as folder:
        store.write(folder, "state.json", STATE)
        log = folder / "engine.log"
        log.write_text("INFO hello\n" + LINE + OTHER_RANK + LINE[:40])
        process = subprocess.Popen(
            [*command, "--machine", "simulated:hls2+busy=0,1"],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )
        assert process.stderr is not None
        assert f"http://127.0.0.1:{free_port}/metrics" in process.stderr.readline()
        values = scrape(free_port)
        mine = {"service": "mine"}
        labels = {
            **mine,
            "model": "QwQ-32B",
            "engine": "vllm-fork@1.21",
            "url": "http://127.0.0.1:30001",
        }
        assert of(values, "service_info", **labels) == 1
        assert (
            of(values, "service_up", **mine) == 1
            and of(values, "service_phase", **mine, phase="ready") == 1
        )
        assert of(values, "service_warmup_seconds", **mine) == 210
        assert of(values, "service_restarts_total", **mine) == 2
        assert of(values, "service_ready_timestamp_seconds", **mine) == 1300.5
        assert of(values, "service_phase_seconds", **mine, phase="warmup_prompt") == 15.5
        assert of(values, "service_card", **mine, module="3") == 1
        # one line, one of another rank that says the same, one not yet whole
        assert of(values, "service_run_time_compiles_total", **mine) == 1
        assert of(values, "cards_read") == 1
        busy = {key: value for key, value in values.items() if key[0] == "card_busy"}
        assert len(busy) == 8 and sum(busy.values()) == 2
        assert (
            sum(
                key[0] == "card_memory_total_bytes" and value > 90 * 2**30
                for key, value in values.items()
            )
            == 8
        )
        with log.open("a") as file:
            file.write(LINE[40:] + LINE)
        store.write(folder, "state.json", {**STATE, "phase": "stopping"})
        values = scrape(free_port)
        assert of(values, "service_run_time_compiles_total", **mine) == 3
        assert of(values, "service_phase", **mine, phase="ready") is None
        assert of(values, "service_phase", **mine, phase="stopping") == 1
        # the launcher cuts a long log: the count goes on
        os.truncate(log, 0)
        with log.open("a") as file:
            file.write(LINE)
        assert of(scrape(free_port), "service_run_time_compiles_total", **mine) == 4
    # its launcher is gone without a word
    values = scrape(free_port)
    assert (
        of(values, "service_up", **mine) == 0
        and of(values, "service_card", **mine, module="3") is None
    )
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130 and "Traceback" not in err
    socket.create_server(("127.0.0.1", free_port)).close()


@dataclass
class FixedSampler:
    """A sampler whose host and engine counters are known."""

    host: HostSample
    error: Exception | None = None
    failures: int = 0
    waited: list[float] = field(default_factory=list)

    def sample(self) -> HostSample:
        if self.error is not None:
            self.failures += 1
            raise self.error
        return self.host

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)

    def counters(self, service: str) -> EngineCounters | None:
        if service != "mine":
            return None
        return EngineCounters(3.0, 1.0, 0.25, 2.0, 900.0, 5000.0, 12.5, 10.0, 1.5, 100.0)


CARDS = (
    CardSample(
        5,
        0,
        "HL-225",
        "0000:19:00.0",
        status="Operational",
        busy=True,
        utilization_percent=80,
        memory_used_mib=2,
        memory_total_mib=4,
        power_w=300,
        power_cap_w=600,
        temperature_c=45,
        throttled=True,
        ports_down=(1, 9),
        uncorrectable_events=7,
    ),
    CardSample(None, 1, present=False, status="Disabled", busy=False, throttled=False),
    CardSample(6, 2),
)
HOST = HostSample(
    "h",
    10.0,
    problem="it failed",
    cards=CARDS,
    services=(
        ServiceSample("mine", "ready", True, power_w=310.0),
        ServiceSample("b", "stop", False),
    ),
    nodes=(NodeSample(1, 12.5, 15000, 14000), NodeSample(2)),
    disks=(DiskSample("recipes", "/r", 1000, 400),),
)


def page_of(reader: exporter.Reader) -> str:
    registry = CollectorRegistry()
    registry.register(reader)
    lines = generate_latest(registry).decode().splitlines()
    return "".join(f"{line}\n" for line in lines if "_created" not in line)


def test_every_metric_of_one_scrape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "engine.log").write_text(LINE + "INFO x\n" + LINE)
    records = [
        ServiceRecord("mine", tmp_path / "mine", STATE, True),
        ServiceRecord("b", tmp_path / "b", {**STATE, "total": 0, "restarts": None}, False),
    ]
    reader = exporter.Reader()
    monkeypatch.setattr(reader._records, "services", lambda: records)
    sampler = FixedSampler(HOST)
    reader._sampler = sampler  # type: ignore[assignment]
    golden("exporter.txt", page_of(reader))
    assert sampler.waited == [2.5]
    # a service that is gone is forgotten: one of its name begins anew
    del records[0]
    page_of(reader)
    assert [*reader._logs] == ["b"]
    assert reader.describe() == []


def test_a_sampler_in_the_background_is_read_without_waiting(own_folders: Path) -> None:
    reader = exporter.Reader()
    sampler = FixedSampler(HOST)
    reader._sampler = sampler  # type: ignore[assignment]
    reader.keep_fresh()
    assert reader._first.wait(GENEROUS)
    values = parse(page_of(reader))
    reader.stop()
    assert (of(values, "cards_read"), sampler.waited) == (1, [])


def test_a_sampler_that_fails_is_seen_and_recovers(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(background, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(exporter, "_SAMPLE_SECONDS", 0.01)
    reader = exporter.Reader()
    sampler = FixedSampler(HOST)
    reader._sampler = sampler  # type: ignore[assignment]
    registry = CollectorRegistry()
    registry.register(reader)

    def state() -> tuple[float | None, float | None, str]:
        """Return the age, whether cards are read, and what /health answers."""
        begun: list[str] = []
        app = with_health(lambda *given: [], registry)

        def begin(status: str, *_: object) -> Any:
            begun.append(status)

        app({"PATH_INFO": "/health"}, begin)
        names = ("sample_age_seconds", "cards_read")
        age, read = (registry.get_sample_value(f"gaudi_launch_{name}") for name in names)
        return age, read, begun[0]

    reader.keep_fresh()
    try:
        until(lambda: state() == (0, 1, "200 OK"), "the first sample")
        sampler.error = ValueError("cannot convert float NaN to integer")
        until(lambda: sampler.failures > 1, "a failed sample")
        now[0] += 31
        assert state() == (31, 0, "503 Service Unavailable")
        sampler.error = None
        until(lambda: state() == (0, 1, "200 OK"), "a sample after the failure")
    finally:
        reader.stop()


def once(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["exporter", "--once", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_once(
    own_folders: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    values = parse(once(capsys))
    assert {name for name, _ in values} == {
        *("sample_age_seconds", "cards_read", "disk_size_bytes", "disk_free_bytes")
    }
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "missing"))
    # a machine that cannot be read is a figure, not the end of the exporter
    assert of(parse(once(capsys)), "cards_read") == 0
    found: dict[str, Any] = json.loads(once(capsys, "--machine", "simulated:gaudi3-pcie", "--json"))
    cards = [row for row in found["metrics"] if row["name"] == "gaudi_launch_card_busy"]
    assert found["schema"] == 1 and len(cards) == 8 and cards[0]["labels"]["module"] == "0"


def test_without_the_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "gaudi_launch.extensions.watch.exporter.export", raising=False)
    monkeypatch.delattr("gaudi_launch.extensions.watch.exporter.export", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert run(["exporter", "--once"]) == 3
    assert "prometheus_client is not installed" in capsys.readouterr().err


def test_a_taken_port(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(["exporter", "-p", str(taken.getsockname()[1])]) == 3
    assert "Cannot listen on" in capsys.readouterr().err


def test_the_faults_of_cards_are_exported(capsys: pytest.CaptureFixture[str]) -> None:
    values = parse(once(capsys, "--machine", "simulated:hls2+failed=2"))
    assert of(values, "card_operational", module="2") == 0
    assert of(values, "card_operational", module="3") == 1
    assert of(values, "card_power_cap_watts", module="3") == 600
    assert of(values, "hl_smi_answers") == 1
    assert of(values, "card_throttled", module="3") is None
