"""Samples of hosts as they are shown: made up, and the same at every time."""

from __future__ import annotations

import math
from dataclasses import replace

from gaudi_launch.extensions.watch.sample import (
    CardSample,
    DiskSample,
    HostSample,
    NodeSample,
    ServiceSample,
)
from gaudi_launch.extensions.watch.top.state import TopState, Trails

NOON = 1_800_000_000.0


def card(module: int, *, busy: bool = False) -> CardSample:
    """Return a card of hls2 that works."""
    return CardSample(
        module=module,
        index=7 - module,
        product="HL-225",
        bus=f"0000:{module:02}:00.0",
        group=0,
        numa_node=module // 4,
        status="Operational",
        busy=busy,
        owner="qwen" if busy else None,
        utilization_percent=87 if busy else 0,
        memory_used_mib=88473 if busy else 768,
        memory_total_mib=98304,
        power_w=480 if busy else 90,
        power_cap_w=600,
        temperature_c=64 if busy else 28,
        throttled=False,
        ports_down=(),
        uncorrectable_events=0,
    )


CARDS = (
    card(0, busy=True),
    replace(card(1, busy=True), throttled=True, throttled_by=("thermal",), temperature_c=104),
    replace(card(2), ports_down=(3, 4)),
    replace(card(3), status="Disabled"),
    CardSample(
        module=4, index=3, product="HL-225", bus="0000:04:00.0", group=0, numa_node=1, present=False
    ),
    card(5),
    replace(card(6), owner="/usr/bin/python3 train.py", busy=True, uncorrectable_events=2),
    CardSample(module=7, index=0, product="HL-225", group=0, numa_node=1),
)
SERVICES = (
    ServiceSample(
        "qwen",
        "ready",
        True,
        model="Qwen3-32B",
        engine="e",
        modules=(0, 1),
        restarts=1,
        run_time_compiles=0,
        running=24,
        waiting=3,
        tokens_per_second=612.4,
        ttft_seconds=0.384,
        tpot_seconds=0.0271,
        kv_use=0.97,
        preemptions=12,
        power_w=960.0,
        joules_per_token=1.57,
        kwh_today=3.21,
    ),
    ServiceSample(
        "llama-70b",
        "warmup_prompt",
        True,
        modules=(5,),
        done=35,
        total=120,
        left_seconds=204.0,
        restarts=0,
    ),
    ServiceSample("mixtral", "failed", False, restarts=5, error="x"),
    ServiceSample("old", "stopped", False, restarts=0),
)
HOST = HostSample(
    host="gaudi-7",
    at=NOON,
    product="gaudi2",
    cards_read=True,
    cards=CARDS,
    services=SERVICES,
    nodes=(NodeSample(0, 31.4, 7500, 7400, 524288, 400000), NodeSample(1, None, 7500, 7500)),
    disks=(
        DiskSample("recipes", "/r", 1000 * 2**30, 40 * 2**30),
        DiskSample("state", "/s", 10 * 2**30, 8 * 2**30),
    ),
)
BARE = HostSample(
    host="laptop", at=NOON, problem="hl-smi is not on PATH", nodes=(NodeSample(0, 3.0, 0, 0),)
)
SILENT = HostSample(host="gaudi-9", at=NOON, answers=False, problem="no answer for 5 s")


def history(host: HostSample) -> Trails:
    """Return the past of a host: every value moves, one sample was lost."""
    trails = Trails()
    for second in range(40):
        share = 0.6 + 0.4 * math.sin(second / 5)
        cards = tuple(
            replace(each, utilization_percent=None if second == 38 else round(100 * share))
            for each in host.cards
        )
        services = tuple(replace(each, tokens_per_second=600 * share) for each in host.services)
        nodes = tuple(replace(each, cpu_percent=100 * share) for each in host.nodes)
        trails.add(replace(host, cards=cards, services=services, nodes=nodes))
    return trails


def state_of(*hosts: HostSample) -> TopState:
    """Return a view of these hosts with a past."""
    trails = history(hosts[0])
    return TopState(hosts=list(hosts), trails=trails)
