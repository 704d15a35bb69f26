"""Sample the services of this user, with their engines' counters.

Engines are read in threads: one that does not answer delays nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.json_values import number
from gaudi_launch.core.base.optional import mapped, total
from gaudi_launch.core.services.energy import read_energy
from gaudi_launch.core.services.engine_counters import (
    EngineCounters,
    EngineRates,
    counters_of,
    rates,
)
from gaudi_launch.core.services.history import read_rows
from gaudi_launch.core.services.state.registry import ServiceRecord
from gaudi_launch.extensions.watch.sample import CardSample, ServiceSample

_ASK_EVERY_SECONDS = 2.0
_ASK_SECONDS = 2.0
# means and rates are over this time, so that single requests are visible and readable
_WINDOW_SECONDS = 10.0
# an engine that has not answered for this time has no current numbers
_STALE_SECONDS = 6.0
_MOST_THREADS = 16
# the launcher writes a row every ten seconds
_HISTORY_SECONDS = 30.0

Read = Callable[[str, float], EngineCounters | None]


class ServiceSampler:
    """Samples services, as often as it is called."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, read: Read = counters_of
    ) -> None:
        self._clock = clock
        self._read = read
        self._engines: dict[str, _Engine] = {}
        self._slots = threading.BoundedSemaphore(_MOST_THREADS)

    def sample(self, found: Iterable[ServiceRecord]) -> tuple[ServiceSample, ...]:
        """Return a sample of each service, from what its engine answered last."""
        services = list(found)
        for name in self._engines.keys() - {service.name for service in services}:
            del self._engines[name]
        return tuple(self._one(service) for service in services)

    def wait(self, seconds: float) -> None:
        """Wait until the engines that are being read have answered."""
        deadline = time.monotonic() + seconds
        for engine in self._engines.values():
            if engine.thread is not None:
                engine.thread.join(max(0.0, deadline - time.monotonic()))

    def counters(self, name: str) -> EngineCounters | None:
        """Return a service's counters; None when its engine does not answer."""
        engine = self._engines.get(name)
        if engine is None:
            return None
        return engine.now(self._clock())

    def _one(self, service: ServiceRecord) -> ServiceSample:
        energy = read_energy(service.folder, time.time())
        base = replace(from_record(service), kwh_today=mapped(lambda found: found.kwh, energy))
        if not (service.alive and service.phase == "ready" and service.url):
            self._engines.pop(service.name, None)
            return base
        now = self._clock()
        if service.name not in self._engines:
            self._engines[service.name] = _from_history(service, now)
        engine = self._engines[service.name]
        if engine.is_due(now) and self._slots.acquire(blocking=False):
            engine.ask(now, lambda: self._ask(engine, service.url))
        return with_counters(base, engine.now(now), engine.rates())

    def _ask(self, engine: _Engine, url: str) -> None:
        try:
            found = self._read(url, _ASK_SECONDS)
            if found is not None:
                engine.add(self._clock(), found)
        finally:
            self._slots.release()


class _Engine:
    """The latest readings of one engine."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self._asked = float("-inf")
        self._readings: deque[tuple[float, EngineCounters]] = deque()

    def is_due(self, now: float) -> bool:
        busy = self.thread is not None and self.thread.is_alive()
        return not busy and now - self._asked >= _ASK_EVERY_SECONDS

    def ask(self, now: float, work: Callable[[], None]) -> None:
        self._asked = now
        self.thread = in_background(work)

    def add(self, at: float, counters: EngineCounters) -> None:
        self._readings.append((at, counters))
        while len(self._readings) > 2 and at - self._readings[0][0] > _WINDOW_SECONDS:
            self._readings.popleft()

    def now(self, now: float) -> EngineCounters | None:
        if not self._readings or now - self._readings[-1][0] > _STALE_SECONDS:
            return None
        return self._readings[-1][1]

    def rates(self) -> EngineRates:
        if len(self._readings) < 2:
            return EngineRates()
        (first_at, first), (last_at, last) = self._readings[0], self._readings[-1]
        return rates(first, last, last_at - first_at)


def _from_history(service: ServiceRecord, now: float) -> _Engine:
    """Return an engine with its last recorded reading: rates are then known."""
    engine = _Engine()
    rows = read_rows(service.folder, time.time() - _HISTORY_SECONDS)
    if rows:
        engine.add(now - (time.time() - rows[-1].at), rows[-1].counters)
    return engine


def from_record(service: ServiceRecord) -> ServiceSample:
    """Return what a service's state file says of it."""
    state = service.state
    found = ServiceSample(
        name=service.name,
        phase=service.phase,
        alive=service.alive,
        model=_text(state, "served") or _text(state, "model"),
        engine=_text(state, "engine"),
        url=service.url or None,
        modules=service.modules,
        began=number(state.get("began")),
        ready_at=number(state.get("ready_at")),
        restarts=_count(state, "restarts"),
        run_time_compiles=_count(state, "run_time_compiles"),
        simulated=state.get("simulated") is True,
    )
    if not service.alive:
        return replace(found, error=service.error or None)
    return replace(
        found,
        done=_count(state, "done"),
        total=_count(state, "total") or None,
        left_seconds=number(state.get("left_seconds")),
    )


def with_counters(
    base: ServiceSample, now: EngineCounters | None, recent: EngineRates
) -> ServiceSample:
    """Return a sample with its engine's numbers, where it answers."""
    if now is None:
        return base
    return replace(
        base,
        running=_whole(now.running),
        waiting=_whole(now.waiting),
        kv_use=now.kv_use,
        preemptions=_whole(now.preemptions),
        **vars(recent),
    )


def with_power(service: ServiceSample, cards: Iterable[CardSample]) -> ServiceSample:
    """Return a sample with the power of its cards, where each of them reports it."""
    power = {card.module: card.power_w for card in cards}
    watts = total(map(power.get, service.modules))
    if watts is None or not service.alive:
        return service
    service = replace(service, power_w=watts)
    if not service.tokens_per_second:
        return service
    return replace(service, joules_per_token=watts / service.tokens_per_second)


def _text(state: Mapping[str, Any], name: str) -> str | None:
    value = state.get(name)
    if isinstance(value, str) and value:
        return value
    return None


def _count(state: Mapping[str, Any], name: str) -> int | None:
    return _whole(number(state.get(name)))


def _whole(value: float | None) -> int | None:
    return mapped(int, value)
