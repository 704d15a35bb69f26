"""CPU use of NUMA nodes, huge pages and disks."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path

import pytest

from gaudi_launch.host.files import Imagined
from gaudi_launch.host.hardware import NumaNode
from gaudi_launch.watch import system_sampler
from gaudi_launch.watch.sample import NodeSample
from gaudi_launch.watch.system_sampler import SystemSampler, cpu_times

STAT = "cpu  9 9 9 9\ncpu0 {a} 0 0 {b} 0 0 0 0 7 7\ncpu1 0 0 0 {b} 50 0 0 0 0 0\nintr 5 cpu3\n"


def test_the_ticks_of_each_cpu_are_read() -> None:
    assert cpu_times(STAT.format(a=30, b=70)) == {0: (30, 100), 1: (0, 120)}
    assert cpu_times("") == {}


def test_the_use_is_that_of_the_time_between_two_readings() -> None:
    clock = itertools.count().__next__
    sampler = SystemSampler(clock)
    nodes = (
        NumaNode(0, (0, 1)),
        NumaNode(1, (2, 3), hugepages_total=4, hugepages_free=3, memory_total_mib=10),
    )
    first = sampler.nodes(Imagined({"proc/stat": STAT.format(a=0, b=0)}), nodes)
    assert [node.cpu_percent for node in first] == [None, None]
    folder = "sys/devices/system/node/node0"
    meminfo = "Node 0 MemFree: 2048 kB\nNode 0 HugePages_Total: 8\nNode 0 HugePages_Free: 5\n"
    files = Imagined({"proc/stat": STAT.format(a=50, b=50), f"{folder}/meminfo": meminfo})
    assert sampler.nodes(files, nodes) == (
        # CPU 0 was busy for 50 of 100 ticks, CPU 1 idle for 50
        NodeSample(0, 33.3, 8, 5, None, 2),
        NodeSample(1, None, 4, 3, 10, None),
    )


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


def test_the_disk_of_a_folder_that_does_not_exist_is_that_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    state = os.statvfs(tmp_path)
    now = [0.0]
    sampler = SystemSampler(lambda: now[0])
    found = sampler.disks()
    assert {disk.path for disk in found} == {str(tmp_path)}
    assert {disk.total_bytes for disk in found} == {state.f_blocks * state.f_frsize}
    (tmp_path / "gaudi-launch").mkdir()
    # they are read every ten seconds
    now[0] = 9.9
    assert sampler.disks() == found
    now[0] = 10.0
    assert {disk.path for disk in sampler.disks()} == {str(tmp_path / "gaudi-launch")}
