"""Detect who uses a card, without opening accelN.

Gaudi2 and Gaudi3 reset a card when its node is closed. The signs, strongest first: hl-smi's process
table, links in /proc/*/fd, memory above the product's idle reading, the driver's status, a lock of
another launch. The absence of signs does not prove that a card is free, so a card is free only when
the sources that would show a user could be read (facts: hl-smi sees only what its caller may see,
and a container only its own processes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gaudi_launch.host.accelerators import Accelerator, accelerators, memory_margin_mib
from gaudi_launch.host.files import Files, first_line, numbered
from gaudi_launch.host.hardware import Holder
from gaudi_launch.host.hl_smi_text import Process
from gaudi_launch.host.merge import CardFacts, Cards

_DEVICE = re.compile(
    r"(?:^|/)(?:accel/accel(?P<control>_controlD)?|hl(?P<old>_controlD)?)(?P<index>\d{1,4})$"
)
# They keep the control node open to read sensors and never run anything on a card.
_WATCHERS = re.compile(
    r"hl-smi|hl_smi|hlml|exporter|habana[-_]?(?:metric|device|k8s)|telegraf|collectd"
)


@dataclass
class OpenFiles:
    """Processes by card index from /proc.

    ``complete``: every process could be looked into.
    """

    holders: dict[int, list[Holder]] = field(default_factory=dict)
    processes: int = 0
    hidden: int = 0

    @property
    def complete(self) -> bool:
        return self.processes > 0 and not self.hidden


def read_open_files(files: Files) -> OpenFiles:
    """Return the processes that have a card's device node open.

    A control node counts too, as in the public start scripts (HabanaAI/vllm-fork@aice/v1.21.0:
    scripts/utils.sh uses lsof), except for programs that only monitor.
    """
    found = OpenFiles()
    for pid, name in numbered(files.names("proc"), ""):
        folder = f"proc/{name}/fd"
        found.processes += 1
        links = [files.link(f"{folder}/{number}") for number in files.names(folder)]
        if not links and files.hidden(folder):
            found.hidden += 1
            continue
        indices: set[int] = set()
        for match in (_DEVICE.search(link) for link in links if link):
            if match is None:
                continue
            control = match["control"] or match["old"]
            if not control or not _WATCHERS.search(_command(files, name)):
                indices.add(int(match["index"]))
        if indices:
            holder = Holder(pid, _command(files, name), _user(files, name))
            for index in indices:
                found.holders.setdefault(index, []).append(holder)
    return found


def _command(files: Files, name: str) -> str:
    words = (files.text(f"proc/{name}/cmdline") or "").strip().split("\0")
    command = (
        " ".join(word for word in words if word) or first_line(files, f"proc/{name}/comm") or ""
    )
    return re.sub(r"[^\x20-\x7e]", "?", command)[:200]


def _user(files: Files, name: str) -> str:
    match = re.search(r"^Uid:\s+(\d+)", files.text(f"proc/{name}/status") or "", re.M)
    if match is None:
        return ""
    for line in (files.text("etc/passwd") or "").splitlines():
        parts = line.split(":")
        if len(parts) > 2 and parts[2] == match[1]:
            return parts[0]
    return match[1]


def judge(
    cards: Cards,
    processes: tuple[Process, ...],
    opened: OpenFiles,
    reserved: Mapping[int, Holder | None],
    products: Mapping[int, Accelerator | None],
    in_container: bool | None,
) -> None:
    """Set ``busy``, ``busy_because`` and ``holders`` of every card.

    ``products`` is by position in ``cards``.
    """
    nodes = any(facts.get("device_node") for facts in cards)
    for position, facts in enumerate(cards):
        index, module = facts.get("index"), facts.get("module")
        listed = [Holder(p.pid, p.command) for p in processes if p.index == index is not None]
        opening = opened.holders.get(index, []) if index is not None else []
        used = facts.get("memory_used_mib")
        # /sys shows every card of the server in a container, /dev only those that it was given
        absent = bool(in_container) and nodes and not facts.get("device_node")
        known = {holder.pid: holder for holder in listed}
        known.update({holder.pid: holder for holder in opening})
        if listed:
            because, source = "process-table", "hl-smi process table"
        elif opening:
            because, source = "open-file", "/proc/*/fd"
        else:
            because, source = _own_reason(facts, _idle_mib(products.get(position)))
        if not because and absent:
            because, source = "device-node", "no device node in this container"
        elif not because and module in reserved:
            because, source = "reserved", "lock of another launch"
            holder = reserved[module]
            known.update({holder.pid: holder} if holder else {})
        if because:
            facts.put("busy", True, source)
            facts.put("busy_because", because, source)
        elif used is not None:
            facts.put("busy", False, "memory at the idle reading, no process")
        elif opened.complete and not in_container:
            facts.put("busy", False, "no process of this machine has it open")
        facts.put("holders", tuple(known[pid] for pid in sorted(known)), source or "process table")


def _own_reason(facts: CardFacts, idle_mib: int) -> tuple[str, str]:
    """Return the reason to call the card busy by its readings, and the source.

    Both are "" where the readings are those of an idle card.
    """
    used, status = facts.get("memory_used_mib"), facts.get("status")
    if used is not None and used > idle_mib + memory_margin_mib():
        return "memory", f"{used} MiB used, idle is {idle_mib} MiB"
    if status is not None and status.lower() != "operational":
        return "status", facts.sources["status"]
    if facts.get("temperature_c") == 0:
        return "status", "temperature 0 C: the card failed to initialise"
    return "", ""


def _idle_mib(product: Accelerator | None) -> int:
    """Return the memory in use on an idle card; of an unknown card the most of all."""
    if product:
        return product.memory_idle_mib
    return max(each.memory_idle_mib for each in accelerators().values())
