"""Parsers of the output of hl-smi.

Pure: any text gives a result, never an error.

Layouts moved between releases (``Uncorr. ECC`` and ``Uncor-Events``, columns, tabs or blanks), so
values are found by their tokens, not by their columns. Checked against recorded output of releases
1.12 to 1.23.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

from gaudi_launch.core.host.cpus import parse_cpus
from gaudi_launch.core.host.files import captured, natural_number, whole_number
from gaudi_launch.core.host.hardware import Card

_BUS = re.compile(r"\b([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b", re.I)
_CARD = re.compile(r"^\|\s*(\d{1,4})\s+(HL-\S+)")
_MEMORY = re.compile(r"(\d{1,9})\s*MiB\s*/\s*(\d{1,9})\s*MiB")
_POWER = re.compile(r"(\d{1,6})\s*W\s*/\s*(\d{1,6})\s*W")
_TEMPERATURE = re.compile(r"\b(\d{1,4})\s*C\b")
_PERCENT = re.compile(r"MiB\s*/\s*\d{1,9}\s*MiB.*?\b(\d{1,3})\s*%")


_COLUMN = re.compile(r"[a-z][a-z0-9_.-]*")
_VERSION = re.compile(r"^\|?\s*(HL-SMI|Driver)\s+Version\s*:\s*([^\s|]+)", re.I)
_PROCESS = re.compile(
    r"^\|\s*(\d{1,4})\s+(\d{1,10})\s+(\S+)\s+(.*?)(?:\s+(\d{1,9})\s*MiB)?\s*\|?\s*$"
)
_RANGE = re.compile(r"^(\d{1,6})(?:-(\d{1,6}))?$", re.ASCII)
_PORT = re.compile(r"^\s*port\s+(\d{1,4})\s*:\s*(\S+)", re.I)
_LOG_CARD = re.compile(r"^\[(\d{1,4})\]\s+AIP\b.*?\(accel(\d{1,4})\)")


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
    """The plain table: its cards, the processes it shows, the versions in its header.

    Of a card it shows the index and the name; a value is None where it shows N/A.
    """

    rows: tuple[Card, ...] = ()
    processes: tuple[Process, ...] = ()
    version: str | None = None
    firmware: str | None = None
    driver: str | None = None


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


def parse_table(text: str) -> Table:
    """Return the plain ``hl-smi`` table."""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if "Compute Processes" in line]
    cards_end = min(heads, default=len(lines))
    versions: dict[str, str] = {}
    for match in filter(None, map(_VERSION.match, lines)):
        versions.setdefault(match[1].lower(), match[2])
    version, _, firmware = versions.get("hl-smi", "").removeprefix("hl-").partition("-fw-")
    processes = map(_PROCESS.match, lines[cards_end:])
    return Table(
        rows=tuple(_rows(lines[:cards_end])),
        processes=tuple(_process(match) for match in processes if match),
        version=version or None,
        firmware=firmware or None,
        driver=versions.get("driver"),
    )


def _rows(lines: list[str]) -> list[Card]:
    """Return the cards: a line with the name, then one with the readings."""
    shown = [line for line in lines if line.startswith("|") and not line.startswith("|-")]
    rows = []
    for first, second in zip_longest(shown, shown[1:], fillvalue=""):
        card = _CARD.match(first)
        if card is None:
            continue
        if _CARD.match(second):
            second = ""
        rows.append(_row(card, second))
    return rows


def _process(match: re.Match[str]) -> Process:
    index, pid, kind, command, memory = match.groups()
    shown = re.sub(r"[^\x20-\x7e]", "?", command)
    return Process(int(index), int(pid), kind, shown, natural_number(memory))


def _row(card: re.Match[str], second: str) -> Card:
    """Return a card by the match of its first line and by its second line."""
    first = card.string
    # the last column of both lines follows the last inner bar
    events = first.rstrip().removesuffix("|").rsplit("|", 1)[-1]
    return Card(
        index=int(card[1]),
        module=None,
        product=card[2],
        bus=captured(_BUS, first.lower()),
        temperature_c=_number(_TEMPERATURE, second),
        power_w=_number(_POWER, second),
        power_cap_w=_number(_POWER, second, 2),
        memory_used_mib=_number(_MEMORY, second),
        memory_total_mib=_number(_MEMORY, second, 2),
        utilization_percent=_number(_PERCENT, second),
        uncorrectable_events=natural_number(events),
    )


def _number(pattern: re.Pattern[str], text: str, group: int = 1) -> int | None:
    """Return the number in a group of the first match; None without a match."""
    match = pattern.search(text)
    if match is None:
        return None
    return int(match[group])


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
        if not names:
            names = _header(cells)
        elif len(cells) == len(names):
            values = {n: _without_unit(cell) for n, cell in zip(names, cells, strict=True)}
            rows.append({name: value for name, value in values.items() if value})
    return tuple(rows)


VIOLATIONS = ("-Q", "index,stats.violation.thermal,stats.violation.power", "-f", "csv")
_CAUSES = ("thermal", "power")


def parse_violations(text: str) -> dict[int, dict[str, int]]:
    """Return the counters of `VIOLATIONS` by card index and cause."""
    found: dict[int, dict[str, int]] = {}
    for row in parse_csv(text):
        index = whole_number(row.get("index"))
        if index is not None:
            causes = {name: whole_number(row.get(f"stats.violation.{name}")) for name in _CAUSES}
            found[index] = {name: count for name, count in causes.items() if count is not None}
    return found


def _header(cells: list[str]) -> tuple[str, ...]:
    """Return the columns that these cells name; () when they are not a header."""
    names = tuple(re.sub(r"\s*\[.*?\]$", "", cell) for cell in cells)
    if all(map(_COLUMN.fullmatch, names)) and _KNOWN.intersection(names):
        return names
    return ()


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
        first, *rest = line.replace(",", " ").split() or [""]
        module = _four_digits(first)
        if module is None:
            continue
        numa = None
        # a range in the last place is the CPU column of a line whose NUMA column is empty
        if has_numa and rest and "-" not in rest[-1][1:]:
            numa = _four_digits(rest.pop())
        ranges: list[tuple[int, int]] = []
        if has_cpus:
            ranges = list(filter(None, map(_range, rest)))
        found.setdefault(module, Affinity(module, tuple(ranges), numa))
    return tuple(found.values())


def _four_digits(word: str) -> int | None:
    if not re.fullmatch("[0-9]{1,4}", word):
        return None
    return int(word)


def _range(word: str) -> tuple[int, int] | None:
    match = _RANGE.match(word)
    if match is None:
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


def parse_log(text: str) -> dict[int, dict[str, str]]:
    """Return the flat ``name : value`` lines of ``hl-smi -L`` by index of the card.

    Only lines that name one value; the units stay with it. Those of the PCI link have names such as
    ``Link Speed Max``.
    """
    cards: dict[int, dict[str, str]] = {}
    facts: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if match := _LOG_CARD.match(line):
            facts = cards[int(match[2])] = {}
            section = ""
            continue
        name, colon, value = (part.strip() for part in line.partition(" : "))
        if not colon:
            section = name or section
        elif name in ("Max", "Current") and section.startswith("Link"):
            facts[f"{section} {name}"] = value
        elif not name.startswith("["):
            # a long name has a separate line, its value is on the next one: "Thermal Slowdown"
            facts.setdefault(name or section, value)
    return cards
