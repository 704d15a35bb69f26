"""One sample of cards, services and host together."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from gaudi_launch.core.services.state.registry import ServiceRecord
from gaudi_launch.extensions.watch import sampler
from gaudi_launch.extensions.watch.sampler import Sampler, SystemSampler
from tests.support.waiting import GENEROUS


def record(name: str, *, alive: bool, modules: list[int]) -> ServiceRecord:
    state = {"phase": "warmup_prompt", "modules": modules}
    return ServiceRecord(name, Path("/nowhere"), state, alive)


def test_a_card_belongs_to_the_service_that_runs_on_it() -> None:
    found = [record("gone", alive=False, modules=[0]), record("mine", alive=True, modules=[1, 2])]
    now = [0.0]
    sampler = Sampler("simulated:gaudi2e-4+busy=0", clock=lambda: now[0], found=lambda: found)
    assert sampler.is_complete is False
    host = sampler.sample()
    owners = {card.module: card.owner for card in host.cards}
    other = "python3 -m vllm.entrypoints.openai.api_server"
    assert owners == {0: other, 1: "mine", 2: "mine", 3: None}
    assert (host.host, host.product, host.problem) == ("gaudi2e-server", "gaudi2e", None)
    assert (host.cards_read, host.simulated, host.disks, host.answers) == (True, True, (), True)
    assert [node.id for node in host.nodes] == [0, 1]
    powers = [(each.name, each.power_w) for each in host.services]
    assert powers == [("gone", None), ("mine", 173.0)]
    assert sampler.is_complete is True
    assert (sampler.counters("mine"), sampler.counters("other")) == (None, None)
    sampler.wait(0.0)


def test_disks_have_sizes_and_a_dead_one_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SystemSampler(lambda: 0.0).disks()
    assert [disk.use for disk in found] == ["recipes", "models", "state"]
    assert all(0 < disk.free_bytes <= disk.total_bytes for disk in found)
    monkeypatch.setattr(sampler, "_DISK_SECONDS", 0.05)
    go = threading.Event()

    def hang(place: object) -> None:
        go.wait(GENEROUS)
        raise OSError

    monkeypatch.setattr(os, "statvfs", hang)
    began = time.monotonic()
    assert SystemSampler(lambda: 0.0).disks() == ()
    assert time.monotonic() - began < GENEROUS / 2
    go.set()
