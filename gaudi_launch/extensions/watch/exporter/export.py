"""Services, cards and host of this machine as Prometheus metrics.

An engine's counters are among them under the service's name; all else of an engine is on its
/metrics.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from gaudi_launch.core.base.background import Loop
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.json_values import array, is_number, mapping, number
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.host import machine as host_machine
from gaudi_launch.core.services.engine_counters import EngineCounters
from gaudi_launch.core.services.log.follow import Follower
from gaudi_launch.core.services.state.registry import RecordCache, ServiceRecord
from gaudi_launch.extensions.watch.sample import CardSample, HostSample, ServiceSample
from gaudi_launch.extensions.watch.sampler import Sampler

_log = logging.getLogger(__name__)

PREFIX = "gaudi_launch_"

# a loaded server's hl-smi takes a second or more, and Prometheus scrapes every 15 s or so
_SAMPLE_SECONDS = 2.5
_ENGINE_SECONDS = 2.5
# several samples, also where hl-smi takes its full time for each
_STALE_SECONDS = 30.0
# longer than hl-smi's own limit (host.hl_smi.SECONDS)
_FIRST_SECONDS = 6.0
_MOST_BYTES = 128 << 20
# parts of the lines that the follower's run-time rule matches; it judges the lines that have one
_MARKS = (b"was not warmed-up", b"was not prepared")

Family = GaugeMetricFamily | CounterMetricFamily | SummaryMetricFamily
# kind (gauge, counter, summary), help text and labels by name
METRICS: Mapping[str, Any] = read_json(Path(__file__).with_name("metrics.json"))


@dataclass
class _Log:
    """The read position of a service's log, and its number of run-time compiles."""

    inode: int = 0
    offset: int = 0
    count: int = 0

    def read(self, path: Path) -> int:
        """Read new lines.

        A truncated or restarted log is read from its beginning; the count continues.
        """
        try:
            now = path.stat()
            if now.st_ino == self.inode and now.st_size == self.offset:
                return self.count
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self.inode or status.st_size < self.offset:
                    self.inode, self.offset = status.st_ino, 0
                file.seek(self.offset)
                content = file.read(_MOST_BYTES)
        except OSError as error:
            _log.debug("the log is not read: %s", error)
            return self.count
        complete = content[: content.rfind(b"\n") + 1]
        self.offset += len(complete)
        if any(mark in complete for mark in _MARKS):
            for line in complete.splitlines():
                if any(mark in line for mark in _MARKS):
                    follower = Follower()
                    follower.feed(line.decode("utf-8", errors="replace") + "\n", 0.0)
                    self.count += bool(follower.progress.warnings)
        return self.count


# a longer gap (a suspended machine, a stopped process) is not filled with the last power
_MOST_SECONDS = 15.0


@dataclass
class EnergyCount:
    """Joules by service. A service is counted from its second reading on."""

    joules: dict[str, float] = field(default_factory=dict)
    _last: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, host: HostSample) -> None:
        """Add a sample: the mean of two readings for the time between them."""
        now = {each.name: each.power_w for each in host.services if each.power_w is not None}
        for name, watts in now.items():
            before = self._last.get(name)
            seconds = host.at - before[0] if before is not None else 0.0
            if before is not None and 0 < seconds <= _MOST_SECONDS:
                self.joules[name] = self.joules.get(name, 0.0) + seconds * (before[1] + watts) / 2
        self._last = {name: (host.at, watts) for name, watts in now.items()}


@dataclass(eq=False)
class Reader(Collector):
    """Reads state files and logs at every scrape, cards and engines by the sampler.

    ``machine`` is that of --machine. Without `keep_fresh` each scrape reads the engines itself.
    """

    machine: str | None = None
    _logs: dict[str, _Log] = field(default_factory=dict)
    _records: RecordCache = field(default_factory=RecordCache)
    _sampler: Sampler | None = None
    _latest: HostSample | None = None
    _energy: EnergyCount = field(default_factory=EnergyCount)
    _loop: Loop | None = None
    _first: threading.Event = field(default_factory=threading.Event)
    # two Prometheus servers may scrape at once: neither may count the other's lines again
    _one: threading.Lock = field(default_factory=threading.Lock)

    def describe(self) -> list[Family]:
        """Return no families: registering must not read the machine."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield all families, also those without a sample.

        A scrape then always has the same names.
        """
        with self._one:
            yield from self._families()

    def keep_fresh(self) -> None:
        """Sample in the background from now on, so that a scrape waits for nothing."""
        self._loop = Loop(self._sample, _SAMPLE_SECONDS, lambda error: self._first.set())
        self._loop.start()

    def stop(self) -> None:
        """End the sampling in the background."""
        if self._loop is not None:
            self._loop.stop()

    def _sample(self) -> HostSample | None:
        """Sample the machine; None when it cannot be read."""
        try:
            if self._sampler is None:
                host_machine.check_root(self.machine)
                self._sampler = Sampler(self.machine, found=RecordCache().services)
            self._latest = self._sampler.sample()
        except LaunchError as error:
            _log.debug("the machine is not read: %s", error)
            self._latest = None
        if self._latest is not None:
            self._energy.add(self._latest)
        self._first.set()
        return self._latest

    def _host(self) -> HostSample | None:
        """Return the host; None where it cannot be read, or has not been for too long."""
        if self._loop is not None:
            self._first.wait(_FIRST_SECONDS)
            return self._latest if self._loop.age <= _STALE_SECONDS else None
        self._sample()
        if self._sampler is not None:
            self._sampler.wait(_ENGINE_SECONDS)
        return self._sample()

    def _families(self) -> list[Family]:
        found = self._records.services()
        for name in self._logs.keys() - {service.name for service in found}:
            del self._logs[name]
        families = Families()
        for service in found:
            _add_state(families, service)
            log = self._logs.setdefault(service.name, _Log())
            compiles = log.read(service.folder / "engine.log")
            families.add("service_run_time_compiles", compiles, service.name)
        host = self._host()
        families.add("sample_age_seconds", self._loop.age if self._loop is not None else 0.0)
        families.add("cards_read", host is not None)
        if host is not None:
            _add_host(families, host)
            for each in host.services:
                counters = self._sampler.counters(each.name) if self._sampler is not None else None
                _add_engine(families, each, counters)
            for name, joules in self._energy.joules.items():
                families.add("service_energy_joules", joules, name)
        return families.all()


class Families:
    """Every metric of the list, with the samples of one scrape."""

    def __init__(self) -> None:
        self._made: dict[str, Family] = {}
        for name, row in METRICS.items():
            made = _KINDS[row["kind"]](PREFIX + name, row["text"], labels=row["labels"])
            self._made[name] = made

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """Add a sample; an unknown value gives none."""
        if value is not None:
            # the classes of prometheus_client share this method, not a base class with it
            made: Any = self._made[name]
            made.add_metric(labels, float(value))

    def add_mean(self, name: str, count: float | None, total: float | None, *labels: str) -> None:
        """Add count and sum of a summary, where both are known."""
        made = self._made[name]
        if isinstance(made, SummaryMetricFamily) and count is not None and total is not None:
            made.add_metric(labels, int(count), total)

    def all(self) -> list[Family]:
        return list(self._made.values())


_KINDS: Mapping[str, type[Family]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "summary": SummaryMetricFamily,
}


def _add_state(families: Families, service: ServiceRecord) -> None:
    """Add what a service's state file says."""
    state, name = service.state, service.name
    model = str(state.get("served") or state.get("model") or "")
    families.add("service_info", 1.0, name, model, str(state.get("engine") or ""), service.url)
    families.add("service_up", service.alive, name)
    families.add("service_phase", 1.0, name, service.phase)
    facts = state.get("facts")
    known: Mapping[str, Any] = mapping(facts)
    families.add("service_phase_items_done", number(state.get("done")), name)
    families.add("service_phase_items", number(state.get("total") or None), name)
    families.add("service_warmup_seconds", number(known.get("warmup_seconds")), name)
    families.add("service_began_timestamp_seconds", number(state.get("began")), name)
    families.add("service_ready_timestamp_seconds", number(state.get("ready_at")), name)
    for each, seconds in _phase_seconds(state.get("phases")).items():
        families.add("service_phase_seconds", seconds, name, each)
    for module in service.modules if service.alive else ():
        families.add("service_card", 1.0, name, str(module))
    families.add("service_restarts", number(state.get("restarts")) or 0.0, name)


def _add_engine(
    families: Families, service: ServiceSample, counters: EngineCounters | None
) -> None:
    """Add what a service's engine counts, under the service's name."""
    name = service.name
    families.add("service_power_watts", service.power_w, name)
    if counters is None:
        return
    families.add("service_requests_running", counters.running, name)
    families.add("service_requests_waiting", counters.waiting, name)
    families.add("service_kv_use_ratio", counters.kv_use, name)
    families.add("service_preemptions", counters.preemptions, name)
    families.add("service_generated_tokens", counters.generated, name)
    families.add("service_prompt_tokens", counters.prompted, name)
    families.add_mean("service_ttft_seconds", counters.ttft_count, counters.ttft_sum, name)
    families.add_mean("service_tpot_seconds", counters.tpot_count, counters.tpot_sum, name)


def _add_host(families: Families, host: HostSample) -> None:
    if host.cards:
        families.add("hl_smi_answers", host.problem is None)
    for card in host.cards:
        _add_card(families, card)
    for node in host.nodes:
        number = str(node.id)
        families.add("node_cpu_use_ratio", _ratio(node.cpu_percent), number)
        families.add("node_hugepages", node.hugepages_total, number)
        families.add("node_hugepages_free", node.hugepages_free, number)
    for disk in host.disks:
        families.add("disk_size_bytes", disk.total_bytes, disk.use)
        families.add("disk_free_bytes", disk.free_bytes, disk.use)


def _add_card(families: Families, card: CardSample) -> None:
    module = str(card.module if card.module is not None else f"index-{card.index}")
    # a card of unknown state is not counted as free
    families.add("card_busy", card.busy, module, card.product or "", card.bus or "")
    families.add("card_present", card.present, module)
    if card.status is not None:
        families.add("card_operational", card.status.lower() == "operational", module)
    families.add("card_utilization_ratio", _ratio(card.utilization_percent), module)
    families.add("card_memory_used_bytes", _bytes(card.memory_used_mib), module)
    families.add("card_memory_total_bytes", _bytes(card.memory_total_mib), module)
    families.add("card_temperature_celsius", card.temperature_c, module)
    families.add("card_power_watts", card.power_w, module)
    families.add("card_power_cap_watts", card.power_cap_w, module)
    families.add("card_throttled", card.throttled, module)
    if card.ports_down is not None:
        families.add("card_ports_down", len(card.ports_down), module)
    families.add("card_uncorrectable_events", card.uncorrectable_events, module)


def _ratio(percent: float | None) -> float | None:
    return mapped(lambda share: share / 100, percent)


def _bytes(mib: int | None) -> float | None:
    return mapped(lambda found: float(found) * 2**20, mib)


def _phase_seconds(phases: object) -> dict[str, float]:
    """Return seconds of the ended phases by name, summed: a phase can come twice."""
    found: dict[str, float] = {}
    for entry in map(mapping, array(phases)):
        begin, end = entry.get("begin"), entry.get("end")
        if is_number(begin) and is_number(end):
            name = str(entry.get("name"))
            found[name] = found.get(name, 0.0) + max(0.0, end - begin)
    return found


def registry(machine: str | None = None, *, fresh: bool = False) -> CollectorRegistry:
    """Return a registry with only our metrics; ``fresh``: sampled in the background."""
    made = CollectorRegistry()
    reader = Reader(machine)
    if fresh:
        reader.keep_fresh()
    made.register(reader)
    return made


def page(machine: str | None = None) -> str:
    """Return one scrape in Prometheus' text form."""
    return generate_latest(registry(machine)).decode()


def to_json(machine: str | None = None) -> list[dict[str, Any]]:
    """Return one scrape as objects: name, labels, value."""
    return [
        {"name": sample.name, "labels": dict(sample.labels), "value": sample.value}
        for family in registry(machine).collect()
        for sample in family.samples
    ]
