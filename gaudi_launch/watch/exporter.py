"""Services and cards of this machine as Prometheus metrics.

An engine's metrics are on its /metrics.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gaudi_launch.errors import LaunchError
from gaudi_launch.services.log.follow import Follower
from gaudi_launch.services.state.registry import ServiceRecord, services

if TYPE_CHECKING:
    from gaudi_launch.host.hardware import Host

_log = logging.getLogger(__name__)

PREFIX = "gaudi_launch_"
# hl-smi takes a second or more on a full machine (its own reading of each card)
_CARDS_EVERY_SECONDS = 15.0
_MOST_BYTES = 128 << 20
# parts of the lines that the follower's run-time rule matches; it judges the lines that have one
_MARKS = (b"was not warmed-up", b"was not prepared")

Family = GaugeMetricFamily | CounterMetricFamily


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
                    self.count += _is_compile(line)
        return self.count


def _is_compile(line: bytes) -> bool:
    follower = Follower()
    follower.feed(line.decode("utf-8", errors="replace") + "\n", 0.0)
    return bool(follower.progress.warnings)


@dataclass(eq=False)
class Reader(Collector):
    """Reads state files and logs at every scrape, cards at most every 15 seconds.

    ``machine`` is that of --machine.
    """

    machine: str | None = None
    _logs: dict[str, _Log] = field(default_factory=dict)
    _host: Host | None = None
    _host_read: float = 0.0
    _host_ok: bool = False
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
            yield from list(self._families())

    def _families(self) -> Iterator[Family]:
        found = services()
        for name in self._logs.keys() - {service.name for service in found}:
            del self._logs[name]
        yield from _state_families(found)
        words = "Shapes that no bucket covered, compiled at run time"
        compiles = _counter("service_run_time_compiles", words, "service")
        for service in found:
            log = self._logs.setdefault(service.name, _Log())
            compiles.add_metric([service.name], log.read(service.folder / "engine.log"))
        yield compiles
        yield from self._card_families()

    def _card_families(self) -> Iterator[Family]:
        self._look()
        ok = _gauge("cards_read", "1 when the cards could be read")
        ok.add_metric([], 1.0 if self._host_ok else 0.0)
        busy = _gauge("card_busy", "1 when a process uses the card, 0 when it is free", "module", "product", "bus")
        families = [
            (_gauge("card_memory_used_bytes", "Memory in use", "module"), "memory_used_mib", 2**20),
            (_gauge("card_memory_total_bytes", "Memory of the card", "module"), "memory_total_mib", 2**20),
            (_gauge("card_temperature_celsius", "Temperature", "module"), "temperature_c", 1),
            (_gauge("card_power_watts", "Power", "module"), "power_w", 1),
        ]
        for card in self._host.cards if self._host is not None else ():
            module = str(card.module if card.module is not None else f"index-{card.index}")
            # a card of unknown state is not counted as free
            if card.busy is not None:
                busy.add_metric([module, card.product or "", card.bus or ""], float(card.busy))
            for family, name, unit in families:
                value = getattr(card, name)
                if value is not None:
                    family.add_metric([module], float(value) * unit)
        yield ok
        yield busy
        yield from (family for family, _, _ in families)

    def _look(self) -> None:
        from gaudi_launch.host.machine import load

        now = time.monotonic()
        if self._host_read and now - self._host_read < _CARDS_EVERY_SECONDS:
            return
        self._host_read = now
        try:
            self._host, self._host_ok = load(self.machine), True
        except LaunchError as error:
            _log.debug("the machine is not read: %s", error)
            self._host, self._host_ok = None, False


def _gauge(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, help_text, labels=labels)


def _counter(name: str, help_text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, help_text, labels=labels)


def _state_families(found: list[ServiceRecord]) -> list[Family]:
    """Return the families of the state files."""
    info = _gauge("service_info", "A service, by its labels", "service", "model", "engine", "url")
    up = _gauge("service_up", "1 while the service's launcher lives", "service")
    phase = _gauge("service_phase", "1 for the phase that the service is in", "service", "phase")
    done = _gauge("service_phase_items_done", "Items (graphs, shards) done in this phase", "service")
    total = _gauge("service_phase_items", "Items of this phase, where known", "service")
    spent = _gauge("service_phase_seconds", "How long each ended phase of the start took", "service", "phase")
    warmup = _gauge("service_warmup_seconds", "How long the warm-up took, as the engine says", "service")
    began = _gauge("service_began_timestamp_seconds", "When the service began", "service")
    ready = _gauge("service_ready_timestamp_seconds", "When it answered first", "service")
    card = _gauge("service_card", "1 for each card (module) that the service has", "service", "module")
    restarts = _counter("service_restarts", "How often it was started again after a failure", "service")
    for service in found:
        state, name = service.state, service.name
        model = str(state.get("served") or state.get("model") or "")
        info.add_metric([name, model, str(state.get("engine") or ""), service.url], 1.0)
        up.add_metric([name], float(service.alive))
        phase.add_metric([name, service.phase], 1.0)
        facts = state.get("facts")
        known: Mapping[str, Any] = facts if isinstance(facts, dict) else {}
        for family, value in (
            (done, state.get("done")),
            (total, state.get("total") or None),
            (warmup, known.get("warmup_seconds")),
            (began, state.get("began")),
            (ready, state.get("ready_at")),
        ):
            if _is_number(value):
                family.add_metric([name], float(value))
        for each, seconds in _phase_seconds(state.get("phases")).items():
            spent.add_metric([name, each], seconds)
        for module in service.modules if service.alive else ():
            card.add_metric([name, str(module)], 1.0)
        again = state.get("restarts")
        restarts.add_metric([name], float(again) if _is_number(again) else 0.0)
    return [info, up, phase, done, total, spent, warmup, began, ready, card, restarts]


def _phase_seconds(phases: object) -> dict[str, float]:
    """Return seconds of the ended phases by name, summed: a phase can come twice."""
    found: dict[str, float] = {}
    for entry in phases if isinstance(phases, list) else []:
        begin, end = (entry.get("begin"), entry.get("end")) if isinstance(entry, dict) else (None, None)
        if _is_number(begin) and _is_number(end):
            name = str(entry.get("name"))
            found[name] = found.get(name, 0.0) + max(0.0, end - begin)
    return found


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def registry(machine: str | None = None) -> CollectorRegistry:
    """Return a registry with only our metrics."""
    made = CollectorRegistry()
    made.register(Reader(machine))
    return made


def page(machine: str | None = None) -> str:
    """Return one scrape in Prometheus' text form."""
    from prometheus_client import generate_latest

    return generate_latest(registry(machine)).decode()


def to_json(machine: str | None = None) -> list[dict[str, Any]]:
    """Return one scrape as objects: name, labels, value."""
    return [
        {"name": sample.name, "labels": dict(sample.labels), "value": sample.value}
        for family in registry(machine).collect()
        for sample in family.samples
    ]
