"""Read cards, NUMA nodes and cores from sysfs.

Attributes of a card: habanalabs out-of-tree driver sysfs.c @4058b6e and linux
Documentation/ABI/testing/sysfs-driver-habanalabs. ``module_id`` is in the out-of-tree driver only.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gaudi_launch.core.host.accelerators import VENDOR, identify
from gaudi_launch.core.host.cpus import parse_cpus
from gaudi_launch.core.host.files import (
    LARGEST_SMALL,
    Files,
    first_line,
    natural_number,
    numbered,
    small_number,
    whole_number,
)
from gaudi_launch.core.host.hardware import NumaNode
from gaudi_launch.core.host.merge import CardFacts, Cards

BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.I)
# the class that the driver has used since it moved to drivers/accel, and the one before
_CLASSES = (
    ("sys/class/accel", "accel", "dev/accel/accel"),
    ("sys/class/habanalabs", "hl", "dev/hl"),
)
_OURS = ("module_id", "pci_addr", "device_type", "armcp_ver", "cpucp_ver")


def read_cards(files: Files) -> Cards:
    """Return every Gaudi card of the accel class.

    Other vendors' accelerators are left out.
    """
    cards = Cards()
    for folder, stem, node in _CLASSES:
        for index, name in numbered(files.names(folder), stem):
            if index <= LARGEST_SMALL:
                _read_card(files, f"{folder}/{name}/device", index, f"{node}{index}", cards)
        if cards.all:
            break
    return cards


def bus_address(text: str | None) -> str | None:
    """Return a PCI address in lower case; None for other text."""
    address = (text or "").lower()
    if not BUS.fullmatch(address):
        return None
    return address


def _read_card(files: Files, device: str, index: int, node: str, cards: Cards) -> None:
    def word(name: str) -> str | None:
        return first_line(files, f"{device}/{name}")

    if not _is_gaudi(files, device):
        return
    facts = cards.find(index=index)
    facts.put("index", index, "sysfs accel class")
    facts.put("module", small_number(word("module_id")), "sysfs module_id")
    bus = bus_address(word("pci_addr"))
    facts.put("bus", bus, "sysfs pci_addr")
    facts.put("device_type", word("device_type"), "sysfs device_type")
    facts.put("status", word("status"), "sysfs status")
    facts.put("driver", word("driver_ver"), "sysfs driver_ver")
    facts.put("firmware", word("cpucp_kernel_ver") or word("cpucp_ver"), "sysfs cpucp_ver")
    if files.exists(node):
        facts.put("device_node", f"/{node}", "device node")

    # the device itself where the bus does not show it
    pci = f"sys/bus/pci/devices/{bus}"
    _read_pci(facts, lambda name: first_line(files, f"{pci}/{name}") or word(name))


def _is_gaudi(files: Files, device: str) -> bool:
    vendor = first_line(files, f"{device}/vendor")
    if vendor is not None:
        return vendor.lower().removeprefix("0x") == VENDOR
    return any(files.exists(f"{device}/{name}") for name in _OURS)


def _read_pci(facts: CardFacts, word: Callable[[str], str | None]) -> None:
    """Add what the PCI device's attributes say; ``word`` reads one of them."""
    # the driver does not say HL-225; this is the product's plain name until hl-smi gives the exact
    # one
    by_id = identify(pci_id=word("device"))
    if by_id is not None:
        facts.hint("product", by_id.names[0], "PCI id")
    by_type = identify(device_type=facts.get("device_type"))
    if by_type is not None:
        facts.hint("product", by_type.names[0], "sysfs device_type")
    facts.put("numa_node", natural_number(word("numa_node")), "sysfs numa_node")
    facts.put("cpus", parse_cpus(word("local_cpulist") or ""), "sysfs local_cpulist")
    for name, attribute in _SPEEDS.items():
        facts.put(name, word(attribute), f"sysfs {attribute}")
    for name, attribute in _WIDTHS.items():
        facts.put(name, whole_number(word(attribute)), f"sysfs {attribute}")


_SPEEDS = {"pcie_speed": "current_link_speed", "pcie_max_speed": "max_link_speed"}


_WIDTHS = {"pcie_width": "current_link_width", "pcie_max_width": "max_link_width"}


def read_numa_nodes(files: Files) -> tuple[NumaNode, ...]:
    """Return memory nodes by number, with their 2 MiB huge pages."""
    nodes = []
    for number, name in numbered(files.names("sys/devices/system/node"), "node"):
        folder = f"sys/devices/system/node/{name}"
        memory = read_meminfo(files.text(f"{folder}/meminfo") or "")
        pages = f"{folder}/hugepages/hugepages-2048kB"
        nodes.append(
            NumaNode(
                id=number,
                cpus=parse_cpus(first_line(files, f"{folder}/cpulist") or ""),
                memory_total_mib=mib_of(memory.get("MemTotal")),
                memory_free_mib=mib_of(memory.get("MemFree")),
                hugepages_total=whole_number(first_line(files, f"{pages}/nr_hugepages")),
                hugepages_free=whole_number(first_line(files, f"{pages}/free_hugepages")),
            )
        )
    return tuple(nodes)


def read_siblings(files: Files) -> dict[int, tuple[int, ...]]:
    """Return every online CPU with the CPUs of its core, itself included."""
    siblings: dict[int, tuple[int, ...]] = {}
    folder = "sys/devices/system/cpu"
    known = dict(numbered(files.names(folder), "cpu"))
    online = set(parse_cpus(first_line(files, f"{folder}/online") or "")) or set(known)
    for cpu, name in known.items():
        if cpu in siblings or cpu not in online:
            continue
        topology = f"{folder}/{name}/topology"
        # the second name is the first's since Linux 5.2, which keeps both
        text = first_line(files, f"{topology}/thread_siblings_list") or first_line(
            files, f"{topology}/core_cpus_list"
        )
        if text is None:
            continue
        core = tuple(sorted(online.intersection(parse_cpus(text))))
        if cpu not in core:
            core = (cpu,)
        siblings.update(dict.fromkeys(core, core))
    return dict(sorted(siblings.items()))


def read_meminfo(text: str) -> dict[str, int]:
    """Return kB (or counts) by name of a meminfo file.

    The lines of a node begin with ``Node N``.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        names, _, values = line.partition(":")
        name = " ".join(names.split()[-1:])
        number = whole_number(" ".join(values.split()[:1]))
        if name and number is not None:
            found.setdefault(name, number)
    return found


def mib_of(kib: int | None) -> int | None:
    """Return KiB of /proc as MiB."""
    if kib is None:
        return None
    return kib // 1024
