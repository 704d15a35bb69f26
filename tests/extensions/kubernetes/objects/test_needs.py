"""The resources of a pod, from a host of round numbers."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.host.hardware import Card, Host, NumaNode
from gaudi_launch.core.host.host_config import HostConfig
from gaudi_launch.extensions.kubernetes.objects.needs import (
    HUGEPAGES_MIB,
    JOIN_SECONDS,
    PodDemand,
    PodResources,
    needs_of,
    shm_mib,
)

GIB = 1 << 30
HOST = Host(
    cards=tuple(Card(number, number, "HL-225") for number in range(8)),
    cpu_siblings={cpu: (cpu,) for cpu in range(160)},
    memory_total_mib=1000 << 10,
)
UNKNOWN = HostConfig()
POOL = HostConfig(hugepages_total=15000, hugepage_kib=2048)


def needs(
    cards: int, demand: PodDemand, host: Host = HOST, config: HostConfig = UNKNOWN
) -> PodResources:
    return needs_of(cards, host, config, demand)


def test_the_resources_of_two_of_eight_cards() -> None:
    found = needs(2, PodDemand(weights=100.0 * GIB, start_seconds=60))
    assert found == PodResources(
        cards=2,
        # nine tenths of a quarter of the CPUs
        cpus=36,
        # 1.2 of the weights, 16 GiB, and /dev/shm
        memory_mib=(136 << 10) + (3 << 10),
        hugepages_mib=2 * HUGEPAGES_MIB,
        shm_mib=3 << 10,
        # 100 GiB at 0.25 GB per second
        start_seconds=60 + 430,
        disk_gib=140,
    )
    amounts = {
        "cpu": "36",
        "memory": "142336Mi",
        "hugepages-2Mi": "19600Mi",
        "habana.ai/gaudi": "2",
    }
    assert found.resources() == {"requests": amounts, "limits": amounts}


def test_weights_from_a_hub_take_longer() -> None:
    demand = PodDemand(weights=100.0 * GIB, start_seconds=60, fetched=True)
    assert needs(2, demand).start_seconds == 60 + 1504


def test_a_group_divides_the_weights_and_waits_for_its_pods() -> None:
    found = needs(8, PodDemand(weights=100.0 * GIB, start_seconds=60, nodes=2))
    assert found.memory_mib == (60 + 16 + 16) << 10
    assert found.start_seconds == 60 + 430 + JOIN_SECONDS
    assert found.disk_gib == 140


def test_weights_of_unknown_size_are_what_the_cards_hold() -> None:
    found = needs(1, PodDemand(weights=None, start_seconds=0))
    # 96 GiB on a card: 1.2 of it, 16 GiB and 2 GiB, at most nine tenths of an eighth
    room = int((1000 << 10) / 8 * 0.9)
    assert (found.memory_mib, found.disk_gib) == (room, 140)
    assert found.notes == (message("kubernetes.no_weights", memory=room // 1024, disk=140),)
    unknown = needs(1, PodDemand(weights=None, start_seconds=0), Host())
    assert (unknown.memory_mib, unknown.cpus) == ((16 + 2) << 10, 10)


def test_more_memory_than_the_share_of_the_host_is_noted() -> None:
    found = needs(1, PodDemand(weights=100.0 * GIB, start_seconds=0))
    wanted, room = 138 << 10, int((1000 << 10) / 8 * 0.9)
    assert found.memory_mib == wanted
    assert found.notes == (message("kubernetes.memory", wanted=wanted // 1024, room=room // 1024),)
    # in GiB, and without a fraction
    assert [type(value) for value in found.notes[0].values.values()] == [int, int]


@pytest.mark.parametrize(
    ("config", "pages", "noted"),
    [
        (UNKNOWN, HUGEPAGES_MIB, False),
        (HostConfig(hugepages_total=8 * 4900, hugepage_kib=2048), HUGEPAGES_MIB, False),
        (HostConfig(hugepages_total=8 * 4899, hugepage_kib=2048), HUGEPAGES_MIB - 2, True),
        (HostConfig(hugepages_total=15000), 3750, True),
        (HostConfig(hugepages_total=8, hugepage_kib=1 << 20), 1024, True),
    ],
)
def test_huge_pages_are_the_samples_or_a_share_of_the_pool(
    config: HostConfig, pages: int, noted: bool
) -> None:
    found = needs(2, PodDemand(weights=0.0, start_seconds=0), config=config)
    assert found.hugepages_mib == 2 * pages
    assert [note.id for note in found.notes] == ["kubernetes.hugepages_pool"] * noted
    given = needs(2, PodDemand(weights=0.0, start_seconds=0, hugepages_mib=100), config=config)
    assert (given.hugepages_mib, given.notes) == (200, ())


def test_the_note_of_a_small_pool_has_its_numbers() -> None:
    found = needs_of(1, HOST, POOL, PodDemand(weights=0.0, start_seconds=0))
    assert found.notes == (message("kubernetes.hugepages_pool", pool=30000, each=3750),)


def test_a_pod_without_cards_has_an_eighth_of_the_cpus_and_asks_for_no_card() -> None:
    found = needs(0, PodDemand(weights=0.0, start_seconds=5))
    assert (found.cpus, found.hugepages_mib, found.shm_mib) == (18, 0, 2 << 10)
    assert found.resources()["limits"] == {"cpu": "18", "memory": f"{18 << 10}Mi"}


def test_cpus_without_siblings_are_those_of_the_nodes() -> None:
    nodes = (NumaNode(0, (0, 1)), NumaNode(1, (2, 3)))
    demand = PodDemand(weights=0.0, start_seconds=0)
    assert needs(1, demand, Host(numa_nodes=nodes)).cpus == 1
    assert needs(0, demand, Host()).cpus == 10
    assert needs(4, demand, Host()).cpus == 40


def test_shared_memory_grows_with_the_cards() -> None:
    assert [shm_mib(cards) >> 10 for cards in (0, 1, 2, 7, 8, 16)] == [2, 2, 3, 8, 16, 16]
