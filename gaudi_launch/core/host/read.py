"""Read a machine: sysfs, hl-smi for what sysfs lacks, the users of the cards."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from gaudi_launch.core.base.locks import Holder
from gaudi_launch.core.host import card_locks, hl_smi, occupancy, sysfs, system
from gaudi_launch.core.host.accelerators import identify
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.host.files import Files, FolderFiles
from gaudi_launch.core.host.from_hl_smi import fill
from gaudi_launch.core.host.hardware import Card, Host, Interface, NumaNode
from gaudi_launch.core.host.hl_smi import Ask, HlSmi
from gaudi_launch.core.host.hl_smi_text import Affinity
from gaudi_launch.core.host.merge import Cards

_PAIRED = "assumed: SMT siblings have the same position in the two CPU ranges of a card"


def read_host(root: Path) -> Host:
    """Return the machine whose files are under ``root``.

    Never raises, whatever the files contain.
    """
    host = assemble(
        FolderFiles(root),
        hl_smi.find(),
        reserved=card_locks.read_reserved(root),
    )
    if root == Path("/") and not any(interface.addresses for interface in host.interfaces):
        host = replace(host, interfaces=_live_interfaces(host.interfaces))
    return replace(host, root=str(root))


def assemble(
    files: Files,
    ask: Ask | None,
    *,
    reserved: Mapping[int, Holder | None] | None = None,
) -> Host:
    """Return the machine that these files and this hl-smi show (None: no hl-smi)."""
    notes: dict[str, str] = {}
    sources: dict[str, str] = {}
    cards = sysfs.read_cards(files)
    from_sysfs = bool(cards.all)
    if not from_sysfs:
        notes["sysfs"] = "no Gaudi card in /sys/class/accel"
    table, processes, affinities = fill(cards, ask, notes)
    numa_nodes, nodes_from = sysfs.read_numa_nodes(files), "sysfs"
    if not numa_nodes:
        numa_nodes, nodes_from = _nodes_of(cards), "the cards' own nodes and CPUs"
    if numa_nodes:
        sources["numa_nodes"] = nodes_from
    siblings, siblings_from = _siblings(files, cards, affinities)
    if siblings:
        sources["cpu_siblings"] = siblings_from

    for facts in cards:
        facts.settle()
    _drop_doubles(cards, notes)
    products = {
        n: identify(f.get("product"), device_type=f.get("device_type")) for n, f in enumerate(cards)
    }
    about = system.read_system(files)
    opened = occupancy.read_open_files(files)
    # note where processes that use a card could not be looked for
    if opened.hidden:
        notes["open-files"] = (
            f"{opened.hidden} of {opened.processes} processes may not be looked into; root may"
        )
    elif not opened.processes:
        notes["open-files"] = "no /proc to look for processes that use a card"
    occupancy.judge(cards, processes, opened, reserved or {}, products, about["in_container"])

    if cards.quarrels:
        notes["disagreement"] = "; ".join(cards.quarrels)
    finished = tuple(sorted((facts.card() for facts in cards), key=_order))
    # the product of most cards; of two as frequent the first by name
    known = [product for product in products.values() if product]
    count = Counter(product.id for product in known)
    if len(count) > 1:
        notes["product"] = "different products in one machine: " + ", ".join(sorted(count))
    by_name = sorted(known, key=lambda product: product.id)
    product = max(by_name, key=lambda product: count[product.id], default=None)
    modules = [card.module for card in finished if card.module is not None]
    driver, driver_from = _driver(about.pop("driver_version"), finished)
    if driver:
        sources["driver_version"] = driver_from
    return Host(
        cards=finished,
        numa_nodes=numa_nodes,
        cpu_siblings=siblings,
        product=product.id if product else None,
        groups=product.groups(modules) if product and modules else (),
        driver_version=driver,
        hl_smi_version=table.version if table else None,
        interfaces=system.read_interfaces(files),
        notes=notes,
        sources=sources,
        **about,
    )


def _siblings(
    files: Files, cards: Cards, affinities: Iterable[Affinity]
) -> tuple[dict[int, tuple[int, ...]], str]:
    """Return every CPU with the CPUs of its core, and their source."""
    siblings = sysfs.read_siblings(files)
    if siblings:
        return siblings, "sysfs"
    ranges = {each.ranges for each in affinities}
    if not ranges:
        ranges = {_ranges(facts.get("cpus") or ()) for facts in cards}
    return _paired_siblings(ranges), _PAIRED


def _driver(loaded: str | None, cards: Iterable[Card]) -> tuple[str | None, str]:
    """Return the driver's version and its source; ``loaded`` is the kernel module's."""
    if loaded:
        return loaded, "/sys/module/habanalabs/version"
    for card in cards:
        if card.driver:
            return card.driver, card.sources["driver"]
    return None, ""


def read_ports(host: Host, ask: Ask | None = None) -> Host:
    """Return the same machine with the state of every card's network ports.

    This takes one hl-smi call per card, so it is done on demand only. ``ask`` runs hl-smi (default:
    the one on PATH). Ports that cannot be read stay None.
    """
    ask = ask or hl_smi.find()
    if ask is None:
        return host
    talk = HlSmi(ask)

    def with_ports(card: Card) -> Card:
        ports = talk.links(card.bus) if card.bus else {}
        if not ports:
            return card
        up = tuple(port for port, word in sorted(ports.items()) if word.upper() == "UP")
        down = tuple(port for port in sorted(ports) if port not in up)
        return replace(card, ports_up=up, ports_down=down)

    with ThreadPoolExecutor(max_workers=8) as pool:
        return replace(host, cards=tuple(pool.map(with_ports, host.cards)))


def _order(card: Card) -> tuple[bool, int, bool, int, str]:
    return (
        card.index is None,
        card.index or 0,
        card.module is None,
        card.module or 0,
        card.bus or "",
    )


def _drop_doubles(cards: Cards, notes: dict[str, str]) -> None:
    """Drop module IDs that two cards claim: an ID names one slot, so both are wrong."""
    count = Counter(facts.get("module") for facts in cards)
    doubled = {module for module, times in count.items() if times > 1} - {None}
    for facts in cards:
        if facts.get("module") in doubled:
            del facts.values["module"]
    if doubled:
        shown = ", ".join(map(str, sorted(doubled)))
        notes["module"] = f"several cards claim module {shown}, so none of them is used"


def _nodes_of(cards: Cards) -> tuple[NumaNode, ...]:
    cpus: defaultdict[int, set[int]] = defaultdict(set)
    for facts in cards:
        if facts.get("numa_node") is not None:
            cpus[facts.get("numa_node")].update(facts.get("cpus", ()))
    return tuple(
        NumaNode(id=node, cpus=tuple(sorted(found)))
        for node, found in sorted(cpus.items())
        if found
    )


def _ranges(cpus: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return runs of neighbouring CPUs as (first, last)."""
    words = (word.partition("-") for word in format_cpus(cpus).split(",") if word)
    return tuple((int(first), int(last or first)) for first, _, last in words)


def _paired_siblings(found: Iterable[tuple[tuple[int, int], ...]]) -> dict[int, tuple[int, ...]]:
    """Return cores from the CPU ranges of cards.

    The second half of the ranges are the SMT siblings of the first half.
    """
    siblings: dict[int, tuple[int, ...]] = {}
    for ranges in sorted(found):
        half = len(ranges) // 2
        first = [cpu for low, high in ranges[:half] for cpu in range(low, high + 1)]
        second = [cpu for low, high in ranges[half:] for cpu in range(low, high + 1)]
        if first and len(first) == len(second) and not set(first) & set(second):
            cores = [tuple(sorted(pair)) for pair in zip(first, second, strict=True)]
        else:
            cores = [(cpu,) for cpu in sorted({*first, *second})]
        for core in cores:
            for cpu in core:
                siblings.setdefault(cpu, core)
    return dict(sorted(siblings.items()))


def _live_interfaces(known: tuple[Interface, ...]) -> tuple[Interface, ...]:
    """Return the interfaces with the system's addresses where /proc/net shows none."""
    import socket

    import psutil

    found = psutil.net_if_addrs()
    kinds = (socket.AF_INET, socket.AF_INET6)
    return tuple(
        replace(
            i,
            addresses=tuple(
                a.address.partition("%")[0] for a in found.get(i.name, ()) if a.family in kinds
            ),
        )
        for i in known
    )
