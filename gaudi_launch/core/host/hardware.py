"""A machine as frozen records, on which all other packages rely.

``None`` always means "could not be read", never "no". ``sources`` gives the source of each value,
by field name: ``{"module": "sysfs module_id", "memory_used_mib": "hl-smi -Q"}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gaudi_launch.core.base.locks import Holder


@dataclass(frozen=True)
class Card:
    """One Gaudi device.

    ``index`` is accelN and hl-smi's number (may change at reboot), ``module`` the stable slot
    number. ``product`` is hl-smi's name (HL-225), ``device_type`` the driver's name (GAUDI2).
    ``busy`` is None when unknown; ``busy_because`` is one of ``process-table``, ``open-file``,
    ``memory``, ``status``, ``reserved`` (another launch is about to use it), ``device-node`` (not
    given to this container).
    """

    index: int | None
    module: int | None
    product: str | None = None
    device_type: str | None = None
    bus: str | None = None
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    status: str | None = None
    temperature_c: int | None = None
    power_w: int | None = None
    power_cap_w: int | None = None
    utilization_percent: int | None = None
    uncorrectable_events: int | None = None
    driver: str | None = None
    firmware: str | None = None
    serial: str | None = None
    pcie_speed: str | None = None
    pcie_width: int | None = None
    pcie_max_speed: str | None = None
    pcie_max_width: int | None = None
    ports_up: tuple[int, ...] | None = None
    ports_down: tuple[int, ...] | None = None
    device_node: str | None = None
    busy: bool | None = None
    busy_because: str | None = None
    holders: tuple[Holder, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NumaNode:
    """One memory node: CPUs (SMT siblings included), memory in MiB, 2 MiB huge pages."""

    id: int
    cpus: tuple[int, ...]
    memory_total_mib: int | None = None
    memory_free_mib: int | None = None
    hugepages_total: int | None = None
    hugepages_free: int | None = None


@dataclass(frozen=True)
class Interface:
    """A network interface of the host; ``addresses`` are IPv4 and IPv6 texts."""

    name: str
    up: bool
    addresses: tuple[str, ...] = ()
    default_route: bool = False


@dataclass(frozen=True)
class Host:
    """One machine at one moment.

    ``cpu_siblings`` maps every online CPU to the tuple of CPUs of its core, itself included,
    ascending. ``product`` is the ID of accelerators.yaml (``gaudi2``, ``gaudi2e``, ``gaudi3``,
    ``gaudi3-pcie``) or None; ``groups`` are the modules joined all to all. ``notes`` are IDs of
    what could not be read, each with the reason as text (``{"hl-smi": "not on PATH"}``).
    """

    cards: tuple[Card, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    cpu_siblings: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    product: str | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    hostname: str | None = None
    kernel: str | None = None
    os_name: str | None = None
    cpu_model: str | None = None
    driver_version: str | None = None
    hl_smi_version: str | None = None
    memory_total_mib: int | None = None
    memory_available_mib: int | None = None
    interfaces: tuple[Interface, ...] = ()
    in_container: bool | None = None
    virtual_machine: bool | None = None
    root: str = "/"
    origin: str = "live"
    notes: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def card(self, module: int) -> Card | None:
        """Return the card in this slot, or None."""
        return next((card for card in self.cards if card.module == module), None)

    def with_use(self, modules: Iterable[int], *, busy: bool) -> Host:
        """Return the machine with these modules' cards busy, or free."""
        chosen = set(modules)
        cards = []
        for card in self.cards:
            cards.append(replace(card, busy=busy) if card.module in chosen else card)
        return replace(self, cards=tuple(cards))

    @property
    def modules(self) -> tuple[int, ...]:
        """Return every known module ID, ascending."""
        return tuple(sorted(card.module for card in self.cards if card.module is not None))

    @property
    def free_modules(self) -> tuple[int, ...]:
        """Return modules whose card is not known to be busy, ascending."""
        return tuple(
            sorted(card.module for card in self.cards if card.module is not None and not card.busy)
        )
