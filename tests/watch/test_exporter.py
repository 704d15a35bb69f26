"""``gaudi-launch exporter``: scraped over HTTP as Prometheus does, and read back with its own
parser."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gaudi_launch import background
from gaudi_launch.cli.main import run
from gaudi_launch.services.engine_counters import EngineCounters
from gaudi_launch.services.state import store
from gaudi_launch.services.state.registry import ServiceRecord
from gaudi_launch.watch import exporter
from gaudi_launch.watch.exporter import EnergyCount
from gaudi_launch.watch.exporter_server import with_health
from gaudi_launch.watch.sample import CardSample, DiskSample, HostSample, NodeSample, ServiceSample
from tests.support.cli import golden
from tests.support.service_record import service
from tests.support.waiting import GENEROUS, until, unused_port

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
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", free_port))


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


def test_energy_is_counted_between_two_scrapes(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = exporter.Reader()
    monkeypatch.setattr(reader._records, "services", list)
    sampler = FixedSampler(HOST)
    reader._sampler = sampler  # type: ignore[assignment]
    page_of(reader)
    sampler.host = replace(HOST, at=12.0, problem=None)
    values = parse(page_of(reader))
    assert of(values, "service_energy_joules_total", service="mine") == 620.0
    assert of(values, "hl_smi_answers") == 1


def test_a_sampler_in_the_background_is_read_without_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = exporter.Reader()
    monkeypatch.setattr(reader._records, "services", list)
    sampler = FixedSampler(HOST)
    reader._sampler = sampler  # type: ignore[assignment]
    reader.keep_fresh()
    assert reader._first.wait(GENEROUS)
    values = parse(page_of(reader))
    reader.stop()
    assert (of(values, "cards_read"), sampler.waited) == (1, [])


def test_a_sampler_that_fails_is_seen_and_recovers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(background, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(exporter, "_SAMPLE_SECONDS", 0.01)
    reader = exporter.Reader()
    monkeypatch.setattr(reader._records, "services", list)
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


def test_a_log_is_read_from_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    log = exporter._Log()
    assert log.read(path) == 0
    path.write_bytes(LINE.encode() + b"\xff " + LINE.encode() + LINE[:40].encode())
    assert log.read(path) == 2
    assert log.offset == 2 * len(LINE) + 2
    assert log.read(path) == 2
    with path.open("a") as file:
        file.write(LINE[40:] + "INFO x\n")
    assert log.read(path) == 3
    # another file of the same name, and one that was cut
    path.rename(tmp_path / "old")
    path.write_text(LINE * 5)
    assert log.read(path) == 8
    path.write_text(LINE)
    assert log.read(path) == 9


@pytest.fixture
def free_port() -> int:
    return unused_port()


def once(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["exporter", "--once", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
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


def test_state_files_of_any_content(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    documents: list[dict[str, Any]] = [
        {},
        {"phase": 3, "phases": 5, "facts": [], "restarts": "many", "modules": "all", "began": True},
        {
            "model": 'a "quoted"\nname',
            "engine": None,
            "phases": [{"begin": 5, "end": 1, "name": None}],
        },
    ]
    for number, document in enumerate(documents):
        store.write(store.make_dir(f"s{number}"), "state.json", document)
    values = parse(once(capsys))
    assert of(values, "service_restarts_total", service="s1") == 0
    assert (
        of(values, "service_info", service="s2", model='a "quoted"\nname', engine="", url="") == 1
    )
    assert of(values, "service_phase_seconds", service="s2", phase="None") is None


def test_two_scrapes_at_once_count_no_line_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    reading, go = threading.Event(), threading.Event()
    read: list[int] = []

    def slow() -> list[Any]:
        read.append(threading.get_ident())
        reading.set()
        assert go.wait(GENEROUS)
        return []

    reader = exporter.Reader()
    monkeypatch.setattr(reader._records, "services", slow)
    scrapes = [threading.Thread(target=lambda: list(reader.collect())) for _ in range(2)]
    for thread in scrapes:
        thread.start()
    assert reading.wait(GENEROUS)
    # time for the second to come in, were it let in
    scrapes[1].join(0.2)
    assert len(read) == 1
    go.set()
    for thread in scrapes:
        thread.join(GENEROUS)
    assert len(read) == 2


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["-p", "0"], 2, "-p"),
        (["-p", "http"], 2, "-p"),
        (["--json"], 2, "--once"),
        (["--machine", "simulated:nothing"], 2, "nothing"),
        (["-u", "203.0.113.1"], 3, "Cannot listen on"),
        (["-u", "no such host"], 3, "Cannot listen on"),
        (["-u", "a..b"], 3, "Cannot listen on"),
    ],
)
def test_bad_words(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    assert run(["exporter", *words]) == code
    out, err = capsys.readouterr()
    assert says in out + err and "Traceback" not in out + err


def test_without_the_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "gaudi_launch.watch.exporter", raising=False)
    monkeypatch.delattr("gaudi_launch.watch.exporter", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert run(["exporter", "--once"]) == 3
    assert "prometheus_client is not installed" in capsys.readouterr().err


def test_a_taken_port(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(["exporter", "-p", str(taken.getsockname()[1])]) == 3
    assert "Cannot listen on" in capsys.readouterr().err


def test_a_page_of_a_thousand_services_takes_less_than_a_second(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number in range(1000):
        folder = store.make_dir(f"s{number}")
        store.write(folder, "state.json", {**STATE, "name": f"s{number}"})
        (folder / "engine.log").write_text("INFO x\n" * 50 + LINE)
    reader = exporter.Reader("simulated:hls2")
    reader.keep_fresh()
    registry = CollectorRegistry()
    registry.register(reader)
    # the first scrape reads every file
    generate_latest(registry)
    began = time.thread_time()
    page = generate_latest(registry).decode()
    passed = time.thread_time() - began
    reader.stop()
    assert passed < 1.0
    assert page.count("gaudi_launch_service_info{") == 1000


class Engine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(
            b'vllm:num_requests_running{engine="0"} 3\nvllm:kv_cache_usage_perc{engine="0"} 0.5\n'
            b'vllm:num_requests_waiting{engine="0"} NaN\n'
            b'vllm:num_preemptions_total{engine="0"} +Inf\n'
            b'vllm:time_to_first_token_seconds_sum{engine="0"} 12.5\n'
            b'vllm:time_to_first_token_seconds_count{engine="0"} 10\n'
        )

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_engine_s_counters_have_the_service_s_name(capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as engine:
        threading.Thread(
            target=engine.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        url = f"http://127.0.0.1:{engine.server_address[1]}"
        with service("mine", url):
            values = parse(once(capsys, "--machine", "simulated:hls2"))
        engine.shutdown()
    assert of(values, "service_requests_running", service="mine") == 3
    assert of(values, "service_kv_use_ratio", service="mine") == 0.5
    assert of(values, "service_ttft_seconds_sum", service="mine") == 12.5
    assert of(values, "service_ttft_seconds_count", service="mine") == 10
    # what this engine does not export has no sample
    assert of(values, "service_preemptions_total", service="mine") is None
    assert of(values, "service_requests_waiting", service="mine") is None


def test_the_faults_of_cards_are_exported(capsys: pytest.CaptureFixture[str]) -> None:
    values = parse(once(capsys, "--machine", "simulated:hls2+failed=2"))
    assert of(values, "card_operational", module="2") == 0
    assert of(values, "card_operational", module="3") == 1
    assert of(values, "card_power_cap_watts", module="3") == 600
    assert of(values, "hl_smi_answers") == 1
    assert of(values, "card_throttled", module="3") is None


def host(at: float, **watts: float | None) -> HostSample:
    services = tuple(
        ServiceSample(name, "ready", True, power_w=power) for name, power in watts.items()
    )
    return HostSample("h", at, services=services)


def test_the_mean_of_two_readings_counts_for_the_time_between() -> None:
    count = EnergyCount()
    for sample in (host(0, a=100.0), host(10, a=300.0, b=5.0), host(12, a=300.0, b=5.0)):
        count.add(sample)
    assert count.joules == {"a": 2600.0, "b": 10.0}


def test_a_gap_an_unknown_power_and_a_clock_that_goes_back_add_nothing() -> None:
    count = EnergyCount()
    for sample in (
        host(0, a=100.0),
        host(60, a=100.0),
        host(61, a=None),
        host(62, a=100.0),
        host(50, a=100.0),
    ):
        count.add(sample)
    assert count.joules == {}
