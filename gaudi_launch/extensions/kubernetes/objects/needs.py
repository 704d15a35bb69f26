"""A pod's resources for one engine: cards, CPUs, memory, huge pages, time. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.host.accelerators import accelerator_of
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.host_config import HostConfig

GAUDI = "habana.ai/gaudi"  # HabanaAI/habanalabs-k8s-device-plugin@6b77f8c: integers only
# Of the public serving samples the one with most:
# HabanaAI/Gaudi-tutorials@fee19c6:k8s/vllm-8b-cache.yaml, one card
HUGEPAGES_MIB = 9800
# of a node's CPUs and memory; the rest is left to the kubelet and to the daemons of the node
# (assumed)
_SHARE = 0.9
# memory in addition to the weights, which pass through it while they are loaded (assumed; samples
# request 128 to 409 GiB)
_MEMORY_FACTOR, _MEMORY_BASE_GIB = 1.2, 16
# minimum bytes per second at which a network volume delivers the weights (assumed)
_SLOWEST_READ = 0.25e9
# minimum bytes per second of a hub, where the engine fetches the model itself (assumed)
_SLOWEST_FETCH = 0.1e9
# until an image of some 20 GB is pulled (assumed)
PULL_SECONDS = 900
# wait of a group's first pod for the others, whose nodes may still have to fetch the image
# (pods/multi_node.py); the engine starts only then
JOIN_SECONDS = 1800


@dataclass(frozen=True)
class PodResources:
    """The resources of one pod.

    Sizes in MiB, times in seconds; ``start_seconds`` is weights and warm-up, and in a group of pods
    the wait for the others before.
    """

    cards: int
    cpus: int
    memory_mib: int
    hugepages_mib: int
    shm_mib: int
    start_seconds: int
    disk_gib: int
    resource: str = GAUDI
    notes: tuple[Message, ...] = ()

    def resources(self) -> dict[str, dict[str, str]]:
        """Return requests and limits, which are equal.

        Cards and huge pages require it, and the rest makes the pod Guaranteed, which gives it
        exclusive CPUs of one NUMA node where the kubelet is configured for it.
        """
        amounts = {"cpu": str(self.cpus), "memory": f"{self.memory_mib}Mi"}
        if self.hugepages_mib:
            amounts["hugepages-2Mi"] = f"{self.hugepages_mib}Mi"
        if self.cards:
            amounts[self.resource] = str(self.cards)
        return {"requests": amounts, "limits": dict(amounts)}


@dataclass(frozen=True)
class PodDemand:
    """The demand of one model on its pods.

    ``weights`` are the bytes of the complete model, divided over ``nodes`` pods; None where
    unknown. ``start_seconds`` are those of the engine alone. ``hugepages_mib`` per card overrides
    the rule. ``fetched``: from a hub, at the start.
    """

    weights: float | None
    start_seconds: int
    hugepages_mib: int | None = None
    nodes: int = 1
    fetched: bool = False


def needs_of(cards: int, host: Host, config: HostConfig, demand: PodDemand) -> PodResources:
    """Return the resources of a pod with ``cards`` on a host of this kind.

    Weights of unknown size count as the capacity of the cards.
    """
    notes: list[Message] = []
    nodes, hugepages_mib = demand.nodes, demand.hugepages_mib
    weights = demand.weights
    if weights is None:
        product = accelerator_of(host)
        weights = float(cards * product.memory_total_mib << 20) * nodes if product else 0.0
    share = 1 / 8
    if cards and host.cards:
        share = cards / len(host.cards)
    cpus = _cpus(cards, host, share)
    shm = shm_mib(cards)
    wanted = math.ceil(_MEMORY_FACTOR * weights / nodes / (1 << 30) + _MEMORY_BASE_GIB) * 1024 + shm
    room = int((host.memory_total_mib or 0) * share * _SHARE)
    disk = math.ceil(1.2 * weights / (1 << 30) / 10) * 10 + 20
    if demand.weights is None:
        wanted = min(wanted, room or wanted)
        notes.append(message("kubernetes.no_weights", memory=wanted // 1024, disk=disk))
    pages = hugepages_mib
    if pages is None:
        pool = (config.hugepages_total or 0) * (config.hugepage_kib or 2048) // 1024
        pages = _pages_of_pool(pool, len(host.cards), notes)
    if room and wanted > room:
        notes.append(message("kubernetes.memory", wanted=wanted // 1024, room=room // 1024))
    seconds_per_byte = 1 / _SLOWEST_READ
    if demand.fetched:
        seconds_per_byte += 1 / _SLOWEST_FETCH
    loading = math.ceil(weights * seconds_per_byte)
    start = demand.start_seconds + loading
    if nodes > 1:
        start += JOIN_SECONDS
    return PodResources(cards, cpus, wanted, pages * cards, shm, start, disk, notes=tuple(notes))


def _pages_of_pool(pool: int, cards: int, notes: list[Message]) -> int:
    """Return a card's huge pages in MiB: the samples', or its share of the pool."""
    if not pool or not cards or pool // cards >= HUGEPAGES_MIB:
        return HUGEPAGES_MIB
    pages = pool // cards // 2 * 2
    notes.append(message("kubernetes.hugepages_pool", pool=pool, each=pages))
    return pages


def _cpus(cards: int, host: Host, share: float) -> int:
    """Return the CPUs of a pod that has this share of the host's cards."""
    known = len(host.cpu_siblings) or sum(len(node.cpus) for node in host.numa_nodes)
    if not known:
        return 10 * max(1, cards)
    return max(1, int(known * share * _SHARE))


def shm_mib(cards: int) -> int:
    """Return /dev/shm in MiB: 2 GiB for one card, 1 GiB more for each further one.

    2 GiB as in the multi-model chart; 16 for eight, as vLLM's LeaderWorkerSet sample (15Gi) rounds
    up to.
    """
    if cards >= 8:
        return 16 << 10
    return (2 + max(0, cards - 1)) << 10
