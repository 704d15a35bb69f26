"""The resources of a pod, from a host of round numbers."""

from __future__ import annotations

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.host.host_config import HostConfig
from gaudi_launch.extensions.kubernetes.objects.needs import (
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


def needs(
    cards: int, demand: PodDemand, host: Host = HOST, config: HostConfig = UNKNOWN
) -> PodResources:
    return needs_of(cards, host, config, demand)


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


def test_shared_memory_grows_with_the_cards() -> None:
    assert [shm_mib(cards) >> 10 for cards in (0, 1, 2, 7, 8, 16)] == [2, 2, 3, 8, 16, 16]
