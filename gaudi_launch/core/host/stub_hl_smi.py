"""hl-smi of a simulated machine: it answers from a JSON file in its folder.

`simulated.write_tree` copies this file as ``bin/hl-smi``, so it imports the standard library only;
in memory the same `answer` is called, so both show the same machine. Layout: hl-smi 1.21 and later.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_UNITS = {
    "memory.total": "MiB",
    "memory.used": "MiB",
    "memory.free": "MiB",
    "temperature.aip": "C",
    "utilization.aip": "%",
    "power.draw": "W",
}


def answer(machine: dict[str, Any], arguments: list[str]) -> tuple[str, int]:
    """Return the output of hl-smi for these arguments, and its exit code."""
    cards = machine["cards"]
    if not cards:
        return "habanalabs driver is not loaded or no AIPs available, aborting...\n", 1
    match arguments:
        case []:
            return _table(machine), 0
        case ["-v" | "--version"]:
            return f"HL-SMI Version: hl-{machine['version']}-fw-{machine['firmware']}\n", 0
        case ["-L" | "--list-aips" | "-q" | "--query", *_]:
            return _log(cards), 0
        case ["-i", bus, "-p", watts]:
            card = next((card for card in cards if card["bus_id"] == bus), None)
            if card is None or not watts.isdecimal():
                return "no such device\n", 1
            card["cap"] = int(watts)
            return "", 0
        case ["topo", *options]:
            return _topo(cards, options), 0
        case ["-n" | "--nic", "link", *_]:
            return _links(cards, arguments[-1])
        case ["-Q" | "--query-aip", fields, _, form, *_]:
            return _csv(cards, fields.split(","), form.split(",")[1:])
    return "Invalid arguments\n", 1


def _links(cards: list[dict[str, Any]], bus: str) -> tuple[str, int]:
    for card in cards:
        if card["bus_id"] == bus:
            lines = [f"port {int(port):2}:\t{word}\n" for port, word in card["ports"].items()]
            return "".join(lines), 0
    return "no such device\n", 1


def _csv(cards: list[dict[str, Any]], fields: list[str], options: list[str]) -> tuple[str, int]:
    if any(field not in card for card in cards for field in fields):
        return "Invalid query field\n", 1
    lines = []
    if "noheader" not in options:
        lines.append(", ".join(map(_head, fields)))
    units = _UNITS
    if "nounits" in options:
        units = {}
    for card in cards:
        lines.append(", ".join(_cell(card[field], units.get(field, "")) for field in fields))
    return "\n".join(lines) + "\n", 0


def _head(field: str) -> str:
    if field in _UNITS:
        return f"{field} [{_UNITS[field]}]"
    return field


def _cell(value: Any, unit: str) -> str:
    if value is None:
        return "N/A"
    return f"{value} {unit}".rstrip()


def _log(cards: list[dict[str, Any]]) -> str:
    lines = [
        "================ HL-SMI LOG ================",
        f"Attached AIPs                           : {len(cards)}",
    ]
    for card in cards:
        lines += [
            f"[{card['index']}] AIP (accel{card['index']}) {card['bus_id']}",
            f"        Product Name                    : {card['name']}",
            f"        Serial Number                   : {card['serial']}",
            f"        Module status                   : {card['status']}",
            f"        Module ID                       : {card['module_id']}",
            "        PCI",
            f"                Bus Id                  : {card['bus_id']}",
            (
                f"        Firmware [FIT] Version          : Linux gaudi 5.10.18-{card['fit']} #1 "
                "SMP PREEMPT aarch64"
            ),
            f"        Firmware [SPI] Version          : Preboot version {card['spi']}",
            "        Clocks Throttle Reasons",
            f"                HW Slowdown             : {_active(card['slowdowns'])}",
            "                        Thermal Slowdown",
            f"                                        : {_active('thermal' in card['slowdowns'])}",
            "                        Power Slowdown",
            f"                                        : {_active('power' in card['slowdowns'])}",
            "        Replaced Rows",
            "                Single Bit ECC          : 0",
            f"                Double Bit ECC          : {int(card['rows_pending'])}",
            f"                Pending                 : {('No', 'Yes')[card['rows_pending']]}",
        ]
    return "\n".join(lines) + "\n"


def _active(found: object) -> str:
    return ("Not Active", "Active")[bool(found)]


def _topo(cards: list[dict[str, Any]], options: list[str]) -> str:
    columns = {"module_id": "modID"}
    if "-c" in options:
        columns["cpus"] = "CPU Affinity"
    if "-N" in options:
        columns["numa"] = "NUMA Affinity"
    heads = columns.values()
    lines = ["\t".join(heads) + "\t", "\t".join("-" * len(head) for head in heads) + "\t"]
    for card in sorted(cards, key=lambda card: int(card["module_id"])):
        lines.append("\t".join(str(card[name]) for name in columns) + "\t")
    return "\n".join(lines) + "\n"


def _memory_cells(card: dict[str, Any]) -> tuple[str, str]:
    """Return the memory in use and its share of a card; N/A for a failed one."""
    used, total = card["memory.used"], card["memory.total"]
    if used is None:
        return "N/A", "N/A"
    return f"{used:5}MiB / {total:6}MiB", f"{100 * used // total}%"


def _table(machine: dict[str, Any]) -> str:
    edge = "+" + "-" * 77 + "+"
    release = f"hl-{machine['version']}-fw-{machine['firmware']}"
    rule = "|-------------------------------+----------------------+----------------------+"
    lines = [
        edge,
        f"| HL-SMI Version:                              {release:<31}|",
        f"| Driver Version:                                     {machine['driver']:<24}|",
        f"| Nic Driver Version:                                 {machine['driver']:<24}|",
        rule,
        "| AIP  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncor-Events|",
        "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | AIP-Util  Compute M. |",
        "|===============================+======================+======================|",
    ]
    for card in machine["cards"]:
        memory, share = _memory_cells(card)
        power = f"{card['power.draw']:4}W / {card['cap']:4}W"
        lines += [
            (
                f"| {card['index']:3}  {card['name']:<20}N/A  | {card['bus_id']}     N/A | "
                f"{card['events']:19}  |"
            ),
            f"| N/A  {str(card['temperature.aip']) + 'C':>4}   P0 {power}  |{memory:>21} |"
            f"{str(card['utilization.aip']) + '%':>7}{share:>14} |",
            rule,
        ]
    lines += [
        "| Compute Processes:                                               AIP Memory |",
        "|  AIP       PID   Type   Process name                             Usage      |",
        "|=============================================================================|",
    ]
    for card in machine["cards"]:
        if card["process"] is None:
            lines.append(
                f"| {card['index']:3}        N/A   N/A    N/A                                "
                "      N/A        |"
            )
        else:
            pid, name = card["process"]
            usage = f"{card['memory.used']}MiB"
            lines.append(f"| {card['index']:3}   {pid:>10}     C   {name[:40]:<40} {usage:<10} |")
    lines.append("+=============================================================================+")
    return "\n".join(lines) + "\n"


def main() -> None:
    path = Path(__file__).with_name("hl-smi.json")
    machine = json.loads(path.read_text())
    text, code = answer(machine, sys.argv[1:])
    if "-p" in sys.argv[1:] and code == 0:
        path.write_text(json.dumps(machine))
    sys.stdout.write(text)
    sys.exit(code)


if __name__ == "__main__":
    main()
