"""CPU use of NUMA nodes, huge pages and disks."""

from __future__ import annotations

import os
import threading
import time

import pytest

from gaudi_launch.extensions.watch import system_sampler
from gaudi_launch.extensions.watch.system_sampler import SystemSampler


def test_disks_have_sizes_and_a_dead_one_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SystemSampler(lambda: 0.0).disks()
    assert [disk.use for disk in found] == ["recipes", "models", "state"]
    assert all(0 < disk.free_bytes <= disk.total_bytes for disk in found)
    monkeypatch.setattr(system_sampler, "_DISK_SECONDS", 0.05)
    go = threading.Event()

    def hang(place: object) -> None:
        go.wait(30)
        raise OSError

    monkeypatch.setattr(os, "statvfs", hang)
    began = time.monotonic()
    assert SystemSampler(lambda: 0.0).disks() == ()
    assert time.monotonic() - began < 2
    go.set()
