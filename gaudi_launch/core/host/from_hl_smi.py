"""Facts from hl-smi that sysfs lacks, or all facts where sysfs shows no cards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from gaudi_launch.core.host.files import captured, natural_number, small_number
from gaudi_launch.core.host.hl_smi import Ask, HlSmi
from gaudi_launch.core.host.hl_smi_text import Affinity, Process, Table
from gaudi_launch.core.host.merge import Cards
from gaudi_launch.core.host.sysfs import bus_address

_Row = TypeVar("_Row")

_TABLE_NUMBERS = (
    "temperature_c",
    "power_w",
    "power_cap_w",
    "memory_used_mib",
    "memory_total_mib",
    "utilization_percent",
    "uncorrectable_events",
)
_CSV_NUMBERS = {
    "memory.total": "memory_total_mib",
    "memory.used": "memory_used_mib",
    "temperature.aip": "temperature_c",
    "utilization.aip": "utilization_percent",
    "power.draw": "power_w",
}
_FIRMWARE = "Firmware [SPI] Version"
_LOG_WORDS = {
    "Product Name": "product",
    "Serial Number": "serial",
    "Module status": "status",
    _FIRMWARE: "firmware",
    "Link Speed Current": "pcie_speed",
    "Link Speed Max": "pcie_max_speed",
}


_LOG_WIDTHS = {"Link Width Current": "pcie_width", "Link Width Max": "pcie_max_width"}


def fill(
    cards: Cards, ask: Ask | None, notes: dict[str, str]
) -> tuple[Table | None, tuple[Process, ...], tuple[Affinity, ...]]:
    """Fill the cards from hl-smi, and return its processes by card index.

    The table is always read, ``-Q`` and ``topo`` only for facts that are still missing.
    """
    if ask is None:
        notes["hl-smi"] = "not on PATH"
        return None, (), ()
    talk = HlSmi(ask)
    bare = not cards.all
    want_rows = bare or cards.missing("module")
    want_topo = bare or cards.missing("cpus") or cards.missing("numa_node")
    # a hung driver hangs every query: at the same time they cost one time limit, not four
    with ThreadPoolExecutor(max_workers=4) as pool:
        asked_log = pool.submit(talk.log) if bare else None
        asked_table = pool.submit(talk.table)
        asked_rows = pool.submit(_rows, want_rows, talk.cards)
        asked_topo = pool.submit(_rows, want_topo, talk.topo)
        table = asked_table.result()
        rows = asked_rows.result()
    if table is None and not want_rows and not talk.hangs:
        rows = talk.cards()
    processes = _fill_from_table(cards, table) if table is not None else ()
    _fill_from_rows(cards, rows)
    if asked_log is not None:
        _fill_from_log(cards, asked_log.result())
    if cards.all and cards.missing("product") and table is None and bare:
        name = talk.name()
        for facts in cards:
            facts.put("product", name, "hl-smi -Q name")
    affinities = asked_topo.result()
    _fill_from_topo(cards, affinities)
    notes.update(sorted(talk.problems.items()))
    return table, processes, affinities


def _rows(needed: bool, question: Callable[[], tuple[_Row, ...]]) -> tuple[_Row, ...]:
    """Return the rows of an answer; none of one that is not needed."""
    return question() if needed else ()


def _fill_from_table(cards: Cards, table: Table) -> tuple[Process, ...]:
    source = "hl-smi table"
    ours: dict[int | None, int] = {}
    for row in table.rows:
        facts = cards.find(row.index, row.bus)
        ours[row.index] = facts.get("index", row.index)
        cards.put(facts, "index", row.index, source)
        cards.put(facts, "bus", row.bus, source)
        facts.put("product", row.product, source)
        for name in _TABLE_NUMBERS:
            facts.put(name, getattr(row, name), source)
        facts.hint("driver", table.driver, source)
        facts.hint(
            "firmware", table.firmware, f"{source}: the firmware that belongs to this hl-smi"
        )
    return tuple(
        replace(process, index=ours.get(process.index, process.index))
        for process in table.processes
    )


def _fill_from_rows(cards: Cards, rows: Iterable[Mapping[str, str]]) -> None:
    source = "hl-smi -Q"
    for row in rows:
        index, module = small_number(row.get("index")), small_number(row.get("module_id"))
        bus = bus_address(row.get("bus_id"))
        facts = cards.find(index, bus)
        cards.put(facts, "index", index, source)
        cards.put(facts, "module", module, source)
        cards.put(facts, "bus", bus, source)
        if row.get("name", "").startswith("HL-"):
            facts.put("product", row["name"], source)
        facts.put("serial", row.get("serial"), source)
        facts.put("driver", row.get("driver_version"), source)
        for name, field in _CSV_NUMBERS.items():
            facts.put(field, natural_number(row.get(name)), source)


def _fill_from_log(cards: Cards, log: Mapping[int, Mapping[str, str]]) -> None:
    source = "hl-smi -L"
    for index, row in log.items():
        bus = bus_address(row.get("Bus Id"))
        facts = cards.find(index, bus)
        cards.put(facts, "index", index, source)
        cards.put(facts, "bus", bus, source)
        cards.put(facts, "module", small_number(row.get("Module ID")), source)
        words = {**row, _FIRMWARE: _firmware(row.get(_FIRMWARE))}
        for name, field in _LOG_WORDS.items():
            facts.put(field, words.get(name), source)
        for name, field in _LOG_WIDTHS.items():
            width = row.get(name, "").removeprefix("x")
            facts.put(field, small_number(width), source)


def _firmware(text: str | None) -> str | None:
    """Return ``61.4.2.1`` of ``Preboot version hl-gaudi2-1.22.1-fw-61.4.2.1``.

    Other text as it is.
    """
    if text is None or "-fw-" not in text:
        return text
    return captured(r"-fw-\s*(\S+)", text)


def _fill_from_topo(cards: Cards, affinities: Iterable[Affinity]) -> None:
    by_module = {affinity.module: affinity for affinity in affinities}
    for facts in cards:
        affinity = by_module.get(facts.get("module"))
        if affinity is not None:
            facts.put("cpus", affinity.cpus, "hl-smi topo")
            facts.put("numa_node", affinity.numa_node, "hl-smi topo")
