"""The one sampler of `top` and the exporter: cards, services and host together."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.optional import value_or
from gaudi_launch.core.host import sysfs
from gaudi_launch.core.host.files import Files, content
from gaudi_launch.core.host.hardware import NumaNode
from gaudi_launch.core.host.machine import SIMULATED
from gaudi_launch.core.services.engine_counters import EngineCounters
from gaudi_launch.core.services.state.registry import ServiceRecord, services
from gaudi_launch.extensions.watch.card_sampler import PATIENT_SECONDS, CardSampler
from gaudi_launch.extensions.watch.sample import (
    CardSample,
    DiskSample,
    HostSample,
    NodeSample,
    ServiceSample,
)
from gaudi_launch.extensions.watch.service_sampler import ServiceSampler, with_power

_log = logging.getLogger(__name__)

# a dead network mount never answers
_DISK_SECONDS = 0.5
_DISKS_EVERY_SECONDS = 10.0
# idle and iowait (proc(5), /proc/stat)
_IDLE = (3, 4)
# guest time is part of user time, which is counted already
_COUNTED = 8


def cpu_times(stat: str) -> dict[int, tuple[int, int]]:
    """Return busy and all ticks of each CPU in /proc/stat."""
    found = {}
    for line in stat.splitlines():
        if not line.startswith("cpu"):
            break
        words = line.split()
        number = words[0][3:]
        if not number.isdecimal():
            continue
        ticks = [int(word) for word in words[1 : 1 + _COUNTED] if word.isdecimal()]
        idle = sum(ticks[at] for at in _IDLE if at < len(ticks))
        found[int(number)] = (sum(ticks) - idle, sum(ticks))
    return found


class SystemSampler:
    """Samples a host, as often as it is called."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before: dict[int, tuple[int, int]] = {}
        self._disks: tuple[DiskSample, ...] = ()
        # a dead mount may keep it
        self._reading: threading.Thread | None = None
        self._disks_at = float("-inf")

    def nodes(self, files: Files, known: Iterable[NumaNode]) -> tuple[NodeSample, ...]:
        """Return the nodes; ``known`` are those of the machine as it was read."""
        now = cpu_times(content(files, "proc/stat"))
        # busy and all ticks of each CPU since the reading before
        use = {
            cpu: (busy - self._before[cpu][0], total - self._before[cpu][1])
            for cpu, (busy, total) in now.items()
            if cpu in self._before
        }
        if now:
            self._before = now
        return tuple(_node(files, node, use) for node in known)

    def disks(self) -> tuple[DiskSample, ...]:
        """Return the file systems of recipes, models and state."""
        if self._clock() - self._disks_at >= _DISKS_EVERY_SECONDS:
            self._disks_at = self._clock()
            if self._reading is None or not self._reading.is_alive():
                self._reading = in_background(self._read_disks)
                self._reading.join(_DISK_SECONDS)
        return self._disks

    def _read_disks(self) -> None:
        places = (
            ("recipes", paths.cache_dir()),
            ("models", paths.data_dir()),
            ("state", paths.state_dir()),
        )
        found = (_disk(use, place) for use, place in places)
        self._disks = tuple(disk for disk in found if disk is not None)


def _node(files: Files, node: NumaNode, use: Mapping[int, tuple[int, int]]) -> NodeSample:
    ticks = [use[cpu] for cpu in node.cpus if cpu in use]
    total = sum(each for _, each in ticks)
    busy = sum(each for each, _ in ticks)
    folder = f"sys/devices/system/node/node{node.id}"
    memory = sysfs.read_meminfo(content(files, f"{folder}/meminfo"))
    return NodeSample(
        id=node.id,
        cpu_percent=round(100 * busy / total, 1) if total > 0 else None,
        hugepages_total=memory.get("HugePages_Total", node.hugepages_total),
        hugepages_free=memory.get("HugePages_Free", node.hugepages_free),
        memory_total_mib=node.memory_total_mib,
        memory_free_mib=value_or(sysfs.mib_of(memory.get("MemFree")), node.memory_free_mib),
    )


def _disk(use: str, place: Path) -> DiskSample | None:
    """Return the file system of a folder, or of the first one above that exists."""
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        state = os.statvfs(place)
    except OSError as error:
        _log.debug("the disk of %s is not read: %s", use, error)
        return None
    return DiskSample(
        use, str(place), state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize
    )


class Sampler:
    """Samples one machine and this user's services."""

    def __init__(
        self,
        machine: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait_seconds: float = PATIENT_SECONDS,
        found: Callable[[], list[ServiceRecord]] = services,
    ) -> None:
        """Prepare a sampler of ``--machine``; ``wait_seconds`` is the time for hl-smi.

        Raises LaunchError (USAGE) for an unknown name.
        """
        self._found = found
        self._elsewhere = machine is not None
        self._simulated = str(machine).startswith(SIMULATED)
        self._cards = CardSampler(machine, clock, wait_seconds)
        self._services = ServiceSampler(clock)
        self._system = SystemSampler(clock)

    def sample(self) -> HostSample:
        """Return the host as it is now; calls hl-smi once at most."""
        known = self._services.sample(self._found())
        cards, problem = self._cards.sample()
        host = self._cards.host
        assert host is not None
        files = self._cards.files
        return HostSample(
            host=host.hostname or "-",
            at=time.time(),
            problem=problem,
            product=host.product,
            cards_read=problem is None,
            cards=tuple(_owned(card, known) for card in cards),
            services=tuple(with_power(service, cards) for service in known),
            nodes=self._system.nodes(files, host.numa_nodes) if files is not None else (),
            # disks are this machine's, whatever machine is simulated
            disks=() if self._elsewhere else self._system.disks(),
            simulated=self._simulated,
        )

    @property
    def is_complete(self) -> bool:
        """Return False while the first table of hl-smi has not come."""
        return self._cards.has_answer

    def counters(self, service: str) -> EngineCounters | None:
        """Return a service's counters; None when its engine does not answer."""
        return self._services.counters(service)

    def wait(self, seconds: float) -> None:
        """Wait until the engines have answered, for this time at most."""
        self._services.wait(seconds)


def _owned(card: CardSample, known: Iterable[ServiceSample]) -> CardSample:
    """Return a card with the service that it belongs to."""
    for service in known:
        if service.alive and card.module is not None and card.module in service.modules:
            return replace(card, owner=service.name)
    return card
