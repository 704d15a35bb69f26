"""Reading a machine: sysfs first, then hl-smi for what sysfs lacks, then who uses the cards."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from gaudi_launch.host import hl_smi, locks, occupancy, sysfs, system
from gaudi_launch.host.accelerators import Accelerator, identify
from gaudi_launch.host.facts import Cards
from gaudi_launch.host.files import Files, Folder, whole_number
from gaudi_launch.host.hl_smi import Ask, HlSmi
from gaudi_launch.host.hl_smi_text import Affinity, LogCard, Process, Table
from gaudi_launch.host.records import Card, Holder, Host, Interface, NumaNode

# what only hl-smi tells: its table is asked for when one of these is wanted, which is always on a live machine
_CSV_NUMBERS = {
    "memory.total": "memory_total_mib",
    "memory.used": "memory_used_mib",
    "temperature.aip": "temperature_c",
    "utilization.aip": "utilization_percent",
    "power.draw": "power_w",
}
_LOG_WORDS = {
    "Product Name": "product",
    "Serial Number": "serial",
    "Module status": "status",
    "Firmware [SPI] Version": "firmware",
    "Link Speed Current": "pcie_speed",
    "Link Speed Max": "pcie_max_speed",
}
_PAIRED = "assumed: SMT siblings stand in the same place of hl-smi topo's two ranges"


def read_host(root: Path) -> Host:
    """The machine whose files are under ``root``. Never raises for what a machine holds."""
    host = assemble(
        Folder(root),
        hl_smi.find(),
        reserved=locks.read_reserved(root),
        has_numactl=shutil.which("numactl") is not None,
    )
    if root == Path("/") and not any(interface.addresses for interface in host.interfaces):
        host = replace(host, interfaces=_live_interfaces(host.interfaces))
    return replace(host, root=str(root))


def assemble(
    files: Files, ask: Ask | None, *, reserved: Mapping[int, Holder | None] | None = None, has_numactl: bool = False
) -> Host:
    """The machine that these files and this hl-smi show (None: there is no hl-smi)."""
    notes: dict[str, str] = {}
    sources: dict[str, str] = {}
    cards = sysfs.read_cards(files)
    from_sysfs = bool(cards.all)
    if not from_sysfs:
        notes["sysfs"] = "no Gaudi card in /sys/class/accel"
    table, processes, affinities = _ask_hl_smi(cards, ask, notes)
    numa_nodes = sysfs.read_numa_nodes(files)
    siblings = sysfs.read_siblings(files)
    if numa_nodes:
        sources["numa_nodes"] = "sysfs"
    elif numa_nodes := _nodes_of(affinities):
        sources["numa_nodes"] = "hl-smi topo"
    if siblings:
        sources["cpu_siblings"] = "sysfs"
    elif siblings := _paired_siblings(affinities):
        sources["cpu_siblings"] = _PAIRED

    for facts in cards:
        facts.settle()
    _drop_doubles(cards, notes)
    products = {n: identify(f.get("product"), device_type=f.get("device_type")) for n, f in enumerate(cards)}
    about = system.read_system(files)
    opened = occupancy.read_open_files(files)
    if opened.hidden:
        notes["open-files"] = f"{opened.hidden} of {opened.processes} processes may not be looked into; root may"
    elif not opened.processes:
        notes["open-files"] = "no /proc to look for processes that hold a card"
    occupancy.judge(cards, processes, opened, reserved or {}, products, about["in_container"])

    if cards.quarrels:
        notes["disagreement"] = "; ".join(cards.quarrels)
    finished = tuple(sorted((facts.card() for facts in cards), key=_order))
    product = _product(products.values(), notes)
    modules = [card.module for card in finished if card.module is not None]
    driver = about.pop("driver_version")
    if driver:
        sources["driver_version"] = "/sys/module/habanalabs/version"
    elif driver := next((card.driver for card in finished if card.driver), None):
        sources["driver_version"] = next(c.sources["driver"] for c in finished if c.driver)
    return Host(
        cards=finished,
        numa_nodes=numa_nodes,
        cpu_siblings=siblings,
        product=product.id if product else None,
        groups=product.groups(modules) if product and modules else (),
        driver_version=driver,
        hl_smi_version=table.version if table else None,
        interfaces=system.read_interfaces(files),
        has_numactl=has_numactl,
        notes=notes,
        sources=sources,
        **about,
    )


def read_ports(host: Host, ask: Ask | None = None) -> Host:
    """The same machine with the state of every card's network ports: one hl-smi call a card, so only on demand.

    ``ask`` is the hl-smi to ask (default: the one on PATH). Ports that cannot be read stay None.
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
    return (card.index is None, card.index or 0, card.module is None, card.module or 0, card.bus or "")


def _ask_hl_smi(
    cards: Cards, ask: Ask | None, notes: dict[str, str]
) -> tuple[Table | None, tuple[Process, ...], tuple[Affinity, ...]]:
    """Fill the cards from hl-smi: its table always, ``-Q`` and ``topo`` only for facts still missing.

    The processes come back under the cards' own indices.
    """
    if ask is None:
        notes["hl-smi"] = "not on PATH"
        return None, (), ()
    talk = HlSmi(ask)
    bare = not cards.all
    want_rows = bare or cards.missing("module")
    want_topo = bare or cards.missing("cpus") or cards.missing("numa_node")
    # a driver that hangs hangs every question: put together they cost one time limit, not four
    with ThreadPoolExecutor(max_workers=4) as pool:
        asked_log = pool.submit(talk.log) if bare else None
        asked_table = pool.submit(talk.table)
        asked_rows = pool.submit(talk.cards) if want_rows else None
        asked_topo = pool.submit(talk.topo) if want_topo else None
        table = asked_table.result()
        rows = asked_rows.result() if asked_rows else ()
        affinities = asked_topo.result() if asked_topo else ()
        log = asked_log.result() if asked_log else ()
    if table is None and not want_rows and not talk.hangs:
        rows = talk.cards()
    processes = _fill_from_table(cards, table) if table is not None else ()
    if rows:
        _fill_from_rows(cards, rows)
    if log:
        _fill_from_log(cards, log)
    if cards.all and cards.missing("product") and table is None and bare:
        name = talk.name()
        for facts in cards:
            facts.put("product", name, "hl-smi -Q name")
    _fill_from_topo(cards, affinities)
    notes.update(talk.problems)
    return table, processes, affinities


def _fill_from_table(cards: Cards, table: Table) -> tuple[Process, ...]:
    source = "hl-smi table"
    ours: dict[int, int] = {}
    for row in table.rows:
        facts = cards.find(row.index, row.bus)
        ours[row.index] = facts.get("index") if facts.get("index") is not None else row.index
        cards.put(facts, "index", row.index, source)
        cards.put(facts, "bus", row.bus, source)
        facts.put("product", row.product, source)
        for name in (
            "temperature_c",
            "power_w",
            "memory_used_mib",
            "memory_total_mib",
            "utilization_percent",
            "uncorrectable_events",
        ):
            facts.put(name, getattr(row, name), source)
        facts.hint("driver", table.driver, source)
        facts.hint("firmware", table.firmware, f"{source}: the firmware that belongs to this hl-smi")
    return tuple(replace(process, index=ours.get(process.index, process.index)) for process in table.processes)


def _fill_from_rows(cards: Cards, rows: Iterable[Mapping[str, str]]) -> None:
    source = "hl-smi -Q"
    for row in rows:
        index, module = _small(row.get("index")), _small(row.get("module_id"))
        bus = row.get("bus_id", "").lower()
        facts = cards.find(index, bus if sysfs.BUS.fullmatch(bus) else None)
        cards.put(facts, "index", index, source)
        cards.put(facts, "module", module, source)
        if sysfs.BUS.fullmatch(bus):
            cards.put(facts, "bus", bus, source)
        if row.get("name", "").startswith("HL-"):
            facts.put("product", row["name"], source)
        facts.put("serial", row.get("serial"), source)
        facts.put("driver", row.get("driver_version"), source)
        for name, field in _CSV_NUMBERS.items():
            number = whole_number(row.get(name))
            facts.put(field, number if number is not None and number >= 0 else None, source)


def _fill_from_log(cards: Cards, log: Iterable[LogCard]) -> None:
    source = "hl-smi -L"
    for row in log:
        bus = row.facts.get("Bus Id", "").lower()
        facts = cards.find(row.index, bus if sysfs.BUS.fullmatch(bus) else None)
        cards.put(facts, "index", row.index, source)
        if sysfs.BUS.fullmatch(bus):
            cards.put(facts, "bus", bus, source)
        cards.put(facts, "module", _small(row.facts.get("Module ID")), source)
        for name, field in _LOG_WORDS.items():
            facts.put(field, row.facts.get(name), source)
        for name, field in (("Current", "pcie_width"), ("Max", "pcie_max_width")):
            facts.put(field, _small(row.facts.get(f"Link Width {name}", "").removeprefix("x")), source)


def _fill_from_topo(cards: Cards, affinities: Iterable[Affinity]) -> None:
    by_module = {affinity.module: affinity for affinity in affinities}
    for facts in cards:
        affinity = by_module.get(facts.get("module"))
        if affinity is not None:
            facts.put("cpus", affinity.cpus, "hl-smi topo")
            facts.put("numa_node", affinity.numa_node, "hl-smi topo")


def _small(text: str | None) -> int | None:
    number = whole_number(text)
    return number if number is not None and 0 <= number < 4096 else None


def _drop_doubles(cards: Cards, notes: dict[str, str]) -> None:
    """A module ID names one slot: of two cards that claim it neither can be trusted."""
    count = Counter(facts.get("module") for facts in cards if facts.get("module") is not None)
    doubled = {module for module, times in count.items() if times > 1}
    for facts in cards:
        if facts.get("module") in doubled:
            del facts.values["module"]
    if doubled:
        shown = ", ".join(map(str, sorted(doubled)))
        notes["module"] = f"several cards claim module {shown}, so none of them is used"


def _product(found: Collection[Accelerator | None], notes: dict[str, str]) -> Accelerator | None:
    words = Counter(accelerator.id for accelerator in found if accelerator)
    if len(words) > 1:
        notes["product"] = "different products in one machine: " + ", ".join(sorted(words))
    by_word = {accelerator.id: accelerator for accelerator in found if accelerator}
    return by_word[max(sorted(words), key=words.__getitem__)] if words else None


def _nodes_of(affinities: Iterable[Affinity]) -> tuple[NumaNode, ...]:
    cpus: dict[int, set[int]] = {}
    for affinity in affinities:
        if affinity.numa_node is not None and affinity.ranges:
            cpus.setdefault(affinity.numa_node, set()).update(affinity.cpus)
    return tuple(NumaNode(id=node, cpus=tuple(sorted(found))) for node, found in sorted(cpus.items()))


def _paired_siblings(affinities: Iterable[Affinity]) -> dict[int, tuple[int, ...]]:
    """Cores from topo's ranges: the second half of the ranges are the siblings of the first half."""
    siblings: dict[int, tuple[int, ...]] = {}
    for ranges in sorted({affinity.ranges for affinity in affinities}):
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
    """The same interfaces with addresses from the system itself, where /proc/net does not tell them."""
    import socket

    import psutil

    found = psutil.net_if_addrs()
    kinds = (socket.AF_INET, socket.AF_INET6)
    return tuple(
        replace(i, addresses=tuple(a.address.partition("%")[0] for a in found.get(i.name, ()) if a.family in kinds))
        for i in known
    )
