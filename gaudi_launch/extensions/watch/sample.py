"""A host at one moment, as frozen records. None always means unknown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CardSample:
    """One card.

    ``group`` is the position of its link group. ``present`` is False for a card that was seen
    before and is not listed any more. ``throttled``: the card reduces its clock now, or did so
    since the reading before. ``ports_down`` are ports without a link. ``owner`` is a service, or
    the command of the process that uses it.
    """

    module: int | None
    index: int | None
    product: str | None = None
    bus: str | None = None
    group: int | None = None
    numa_node: int | None = None
    present: bool = True
    status: str | None = None
    busy: bool | None = None
    owner: str | None = None
    utilization_percent: int | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    power_w: int | None = None
    power_cap_w: int | None = None
    temperature_c: int | None = None
    throttled: bool | None = None
    throttled_by: tuple[str, ...] = ()
    ports_down: tuple[int, ...] | None = None
    uncorrectable_events: int | None = None


@dataclass(frozen=True)
class ServiceSample:
    """One service of this user.

    Rates are over the last seconds; ``ttft_seconds`` and ``tpot_seconds`` are means over them.
    ``kv_use`` is a share from 0 to 1. ``tokens_per_second`` are generated ones. ``power_w`` is the
    sum of its cards, ``joules_per_token`` that sum divided by the generated tokens per second,
    ``kwh_today`` the energy since midnight. ``simulated``: its cards are.
    """

    name: str
    phase: str
    alive: bool
    model: str | None = None
    engine: str | None = None
    url: str | None = None
    modules: tuple[int, ...] = ()
    done: int | None = None
    total: int | None = None
    left_seconds: float | None = None
    began: float | None = None
    ready_at: float | None = None
    restarts: int | None = None
    run_time_compiles: int | None = None
    running: int | None = None
    waiting: int | None = None
    tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    kv_use: float | None = None
    preemptions: int | None = None
    power_w: float | None = None
    joules_per_token: float | None = None
    kwh_today: float | None = None
    error: str | None = None
    simulated: bool = False


@dataclass(frozen=True)
class NodeSample:
    """One NUMA node: CPU use in percent, 2 MiB huge pages, memory in MiB."""

    id: int
    cpu_percent: float | None = None
    hugepages_total: int | None = None
    hugepages_free: int | None = None
    memory_total_mib: int | None = None
    memory_free_mib: int | None = None


@dataclass(frozen=True)
class DiskSample:
    """A file system: ``use`` is ``recipes``, ``models`` or ``state``; sizes in bytes."""

    use: str
    path: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class HostSample:
    """One host.

    ``at`` is the time of the sample (Unix seconds). ``problem`` is the reason for which the host,
    or its hl-smi, does not answer; ``answers`` is False for a host that does not. ``simulated``:
    its cards and CPUs are.
    """

    host: str
    at: float
    answers: bool = True
    problem: str | None = None
    product: str | None = None
    cards_read: bool = False
    cards: tuple[CardSample, ...] = ()
    services: tuple[ServiceSample, ...] = ()
    nodes: tuple[NodeSample, ...] = ()
    disks: tuple[DiskSample, ...] = ()
    simulated: bool = False
