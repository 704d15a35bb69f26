"""Parsers of the output of hl-smi.

Pure: any text gives a result, never an error.

Layouts moved between releases (``Uncorr. ECC`` and ``Uncor-Events``, columns, tabs or blanks), so
values are found by their tokens, not by their columns. Checked against recorded output of releases
1.12 to 1.23.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gaudi_launch.host.cpus import parse_cpus

_BUS = re.compile(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.I)
_CARD = re.compile(r"^\|\s*(\d{1,4})\s+(HL-\S+)")
_MEMORY = re.compile(r"(\d{1,9})\s*MiB\s*/\s*(\d{1,9})\s*MiB")
_POWER = re.compile(r"(\d{1,6})\s*W\s*/\s*(\d{1,6})\s*W")
_TEMPERATURE = re.compile(r"\b(\d{1,4})\s*C\b")
_PERCENT = re.compile(r"\b(\d{1,3})\s*%")
_VERSION = re.compile(r"^\|?\s*(HL-SMI|Driver|Nic Driver)\s+Version\s*:\s*([^\s|]+)", re.I)
_PROCESS = re.compile(
    r"^\|\s*(\d{1,4})\s+(\d{1,10})\s+(\S+)\s+(.*?)(?:\s+(\d{1,9})\s*MiB)?\s*\|?\s*$"
)
_RANGE = re.compile(r"^(\d{1,6})(?:-(\d{1,6}))?$")
_PORT = re.compile(r"^\s*port\s+(\d{1,4})\s*:\s*(\S+)", re.I)
_LOG_CARD = re.compile(r"^\[(\d{1,4})\]\s+AIP\b.*?\(accel(\d{1,4})\)")


@dataclass(frozen=True)
class HlSmiRow:
    """One card of hl-smi's plain table.

    Memory in MiB; None where the table shows N/A.
    """

    index: int
    product: str
    bus: str | None = None
    temperature_c: int | None = None
    power_w: int | None = None
    power_cap_w: int | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    utilization_percent: int | None = None
    uncorrectable_events: int | None = None


@dataclass(frozen=True)
class Process:
    """One line of the process table.

    hl-smi shows only what the caller may see, so an empty table does not mean that a card is free.
    """

    index: int
    pid: int
    kind: str
    command: str
    memory_mib: int | None = None


@dataclass(frozen=True)
class Table:
    """The plain table: its cards, the processes it shows, the versions in its header."""

    rows: tuple[HlSmiRow, ...] = ()
    processes: tuple[Process, ...] = ()
    has_processes: bool = False
    version: str | None = None
    firmware: str | None = None
    driver: str | None = None
    nic_driver: str | None = None


@dataclass(frozen=True)
class Affinity:
    """One line of ``hl-smi topo``: CPU ranges of a module as printed, and its node.

    The NUMA node is None for -1 and N/A.
    """

    module: int
    ranges: tuple[tuple[int, int], ...] = ()
    numa_node: int | None = None

    @property
    def cpus(self) -> tuple[int, ...]:
        return parse_cpus(",".join(f"{first}-{last}" for first, last in self.ranges))


@dataclass(frozen=True)
class LogCard:
    """One card of ``hl-smi -L``: its flat ``name : value`` lines.

    Those of the PCI link have names such as ``Link Speed Max``.
    """

    index: int
    facts: Mapping[str, str] = field(default_factory=dict)


def parse_table(text: str) -> Table:
    """Return the plain ``hl-smi`` table."""
    rows: list[HlSmiRow] = []
    processes: list[Process] = []
    versions: dict[str, str] = {}
    in_processes = False
    open_card: tuple[int, str, str] | None = None
    for line in text.splitlines():
        if "Compute Processes" in line:
            in_processes, open_card = True, None
        elif match := _VERSION.match(line):
            versions.setdefault(match[1].lower(), match[2])
        elif in_processes:
            if match := _PROCESS.match(line):
                processes.append(_process(match))
        elif match := _CARD.match(line):
            if open_card:
                rows.append(_row(*open_card, ""))
            open_card = (int(match[1]), match[2], line)
        elif open_card and line.startswith("|") and not line.startswith("|-"):
            rows.append(_row(*open_card, line))
            open_card = None
    if open_card:
        rows.append(_row(*open_card, ""))
    version, _, firmware = versions.get("hl-smi", "").removeprefix("hl-").partition("-fw-")
    return Table(
        rows=tuple(rows),
        processes=tuple(processes),
        has_processes=in_processes,
        version=version or None,
        firmware=firmware or None,
        driver=versions.get("driver"),
        nic_driver=versions.get("nic driver"),
    )


def _process(match: re.Match[str]) -> Process:
    index, pid, kind, command, memory = match.groups()
    shown = re.sub(r"[^\x20-\x7e]", "?", command)
    return Process(int(index), int(pid), kind, shown, int(memory) if memory else None)


def _row(index: int, product: str, first: str, second: str) -> HlSmiRow:
    bus = _BUS.search(first)
    temperature = _TEMPERATURE.search(second)
    power = _POWER.search(second)
    memory = _MEMORY.search(second)
    # the last column of both lines follows the last inner bar
    events = first.rstrip().removesuffix("|").rsplit("|", 1)[-1].strip()
    percent = _PERCENT.search(second[memory.end() :] if memory else "")
    return HlSmiRow(
        index=index,
        product=product,
        bus=bus[0].lower() if bus else None,
        temperature_c=_int(temperature),
        power_w=_int(power),
        power_cap_w=int(power[2]) if power else None,
        memory_used_mib=_int(memory),
        memory_total_mib=int(memory[2]) if memory else None,
        utilization_percent=_int(percent),
        uncorrectable_events=int(events)
        if events.isascii() and events.isdigit() and len(events) < 16
        else None,
    )


def _int(match: re.Match[str] | None) -> int | None:
    return int(match[1]) if match else None


def parse_csv(text: str, fields: tuple[str, ...] = ()) -> tuple[dict[str, str], ...]:
    """Return rows of ``hl-smi -Q FIELDS -f csv``: cells by field name.

    Units and N/A are removed. The header defines the columns. Log lines before it
    (``ENABLE_CONSOLE=true`` sends some to stdout) and lines with another number of cells are left
    out. ``fields`` are the names for output without a header.
    """
    names = fields
    rows: list[dict[str, str]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        bare = tuple(re.sub(r"\s*\[.*?\]$", "", cell) for cell in cells)
        if not names:
            if all(
                re.fullmatch(r"[a-z][a-z0-9_.-]*", cell) for cell in bare
            ) and _KNOWN.intersection(bare):
                names = bare
        elif len(cells) == len(names):
            rows.append(
                {n: value for n, c in zip(names, cells, strict=True) if (value := _without_unit(c))}
            )
    return tuple(rows)


_KNOWN = frozenset(
    {"index", "module_id", "name", "bus_id", "uuid", "memory.used", "driver_version", "serial"}
)


def _without_unit(cell: str) -> str:
    value = re.sub(r"\s+(?:MiB|W|C|%)$", "", cell)
    if value.upper() in ("N/A", "[N/A]"):
        return ""
    return value


def parse_topo(text: str) -> tuple[Affinity, ...]:
    """Return lines of ``hl-smi topo -c -N`` by module, in the order printed.

    Output of only ``-c`` or ``-N`` is also read. The header shows which columns exist; the first
    number of a line is the module, the last the NUMA node, and everything between them the CPU
    ranges.
    """
    has_cpus = has_numa = True
    found: dict[int, Affinity] = {}
    for line in text.splitlines():
        lowered = line.lower()
        if "affinity" in lowered and not line.strip()[:1].isdigit():
            has_cpus, has_numa = "cpu" in lowered, "numa" in lowered
            continue
        words = line.replace(",", " ").split()
        module = _four_digits(words[0]) if words else None
        if module is None:
            continue
        rest = words[1:]
        numa = None
        # a range in the last place is the CPU column of a line whose NUMA column is empty
        if has_numa and rest and "-" not in rest[-1][1:]:
            numa = _four_digits(rest.pop())
        ranges = [_range(word) for word in rest] if has_cpus else []
        found.setdefault(module, Affinity(module, tuple(r for r in ranges if r), numa))
    return tuple(found.values())


def _four_digits(word: str) -> int | None:
    if not (word.isascii() and word.isdigit() and len(word) <= 4):
        return None
    return int(word)


def _range(word: str) -> tuple[int, int] | None:
    match = _RANGE.match(word)
    if match is None or not word.isascii():
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    if first <= last < first + 100_000:
        return (first, last)
    return None


def parse_links(text: str) -> dict[int, str]:
    """Return the state by port of ``hl-smi -n link`` (UP, DOWN) or ``-n ports``.

    ``-n ports`` gives internal or external.
    """
    found = (_PORT.match(line) for line in text.splitlines())
    return {int(match[1]): match[2] for match in found if match}


def parse_log(text: str) -> tuple[LogCard, ...]:
    """Return cards of ``hl-smi -L``.

    Only lines that name one value; the units stay with it.
    """
    cards: list[LogCard] = []
    facts: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if match := _LOG_CARD.match(line):
            facts = {}
            cards.append(LogCard(int(match[2]), facts))
            section = ""
            continue
        name, colon, value = (part.strip() for part in line.partition(" : "))
        if not cards:
            continue
        if not name:
            # a long name has a separate line, its value is on the next one: "Thermal Slowdown"
            if colon and section:
                facts.setdefault(section, value)
            continue
        if not colon:
            section = name
        elif name in ("Max", "Current") and section.startswith("Link"):
            facts[f"{section} {name}"] = value
        elif not name.startswith("["):
            facts.setdefault(name, value)
    return tuple(cards)
