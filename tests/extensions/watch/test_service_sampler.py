"""Services with the numbers of their engines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gaudi_launch.core.services.engine_counters import EngineCounters
from gaudi_launch.core.services.history import HistoryRing, HistoryRow
from gaudi_launch.core.services.state.registry import ServiceRecord
from gaudi_launch.extensions.watch.sample import CardSample, ServiceSample
from gaudi_launch.extensions.watch.service_sampler import ServiceSampler, with_power

STATE = {
    "phase": "ready",
    "url": "http://127.0.0.1:9",
    "model": "/models/q",
    "served": "q",
    "engine": "e@1",
    "modules": [0, 1],
    "restarts": 2,
    "run_time_compiles": 3,
    "began": 5,
}


def record(alive: bool = True, **state: Any) -> ServiceRecord:
    return ServiceRecord("mine", Path("/nowhere"), {**STATE, **state}, alive)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def sampled(sampler: ServiceSampler, service: ServiceRecord) -> ServiceSample:
    sampler.sample([service])
    sampler.wait(5)
    return sampler.sample([service])[0]


def test_what_was_long_ago_is_not_in_a_rate() -> None:
    clock = Clock()
    made = iter((0.0, 1000.0, 1100.0, 1200.0, 1300.0, 1400.0, 1500.0))
    sampler = ServiceSampler(clock, lambda url, seconds: EngineCounters(generated=next(made)))
    found = []
    for _ in range(7):
        found.append(sampled(sampler, record()).tokens_per_second)
        clock.now += 2
    # over ten seconds at most
    assert found == [None, 500.0, 275.0, 200.0, 162.5, 140.0, 50.0]


def test_numbers_of_an_engine_that_stopped_answering_are_dropped() -> None:
    clock = Clock()
    answers = [EngineCounters(running=2), None, None, None]
    sampler = ServiceSampler(clock, lambda url, seconds: answers.pop(0))
    assert sampled(sampler, record()).running == 2
    clock.now += 7
    assert sampled(sampler, record()).running is None


def test_the_power_of_a_service_is_that_of_all_its_cards_or_unknown() -> None:
    service = ServiceSample("mine", "ready", True, modules=(0, 1), tokens_per_second=100.0)
    cards = [
        CardSample(0, 0, power_w=300),
        CardSample(1, 1, power_w=200),
        CardSample(2, 2, power_w=999),
    ]
    powered = with_power(service, cards)
    assert (powered.power_w, powered.joules_per_token) == (500.0, 5.0)
    assert with_power(service, [cards[0], CardSample(1, 1)]).power_w is None
    idle = with_power(
        ServiceSample("mine", "ready", True, modules=(0,), tokens_per_second=0.0), cards
    )
    assert (idle.power_w, idle.joules_per_token) == (300.0, None)


def test_the_first_rates_are_since_the_last_row_of_the_history(tmp_path: Path) -> None:
    ring = HistoryRing(tmp_path)
    ring.add(
        HistoryRow(time.time() - 8, None, EngineCounters(generated=1000, ttft_sum=1, ttft_count=1))
    )
    ring.close()
    service = ServiceRecord("mine", tmp_path, STATE, True)
    now = EngineCounters(running=1, generated=1800, ttft_sum=3, ttft_count=5)
    found = sampled(ServiceSampler(Clock(), lambda url, seconds: now), service)
    assert found.tokens_per_second is not None and 95 < found.tokens_per_second <= 100
    assert (found.running, found.ttft_seconds) == (1, 0.5)
