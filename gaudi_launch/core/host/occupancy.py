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

from gaudi_launch.core.base.locks import Holder
from gaudi_launch.core.host.accelerators import Accelerator, accelerators, memory_margin_mib
from gaudi_launch.core.host.files import Files, captured, content, first_line, numbered
from gaudi_launch.core.host.hl_smi_text import Process
from gaudi_launch.core.host.merge import CardFacts, Cards

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
        links = [files.link(f"{folder}/{number}") or "" for number in files.names(folder)]
        if not links and files.hidden(folder):
            found.hidden += 1
            continue
        nodes = [match for match in map(_DEVICE.search, links) if match]
        if not nodes:
            continue
        command = _command(files, name)
        if _WATCHERS.search(command):
            nodes = [node for node in nodes if not (node["control"] or node["old"])]
        holder = Holder(pid, command, _user(files, name))
        for index in sorted({int(node["index"]) for node in nodes}):
            found.holders.setdefault(index, []).append(holder)
    return found


def _command(files: Files, name: str) -> str:
    words = content(files, f"proc/{name}/cmdline").strip().split("\0")
    command = " ".join(filter(None, words)) or first_line(files, f"proc/{name}/comm") or ""
    return re.sub(r"[^\x20-\x7e]", "?", command)[:200]


def _user(files: Files, name: str) -> str:
    number = captured(r"(?m)^Uid:\s+(\d+)", content(files, f"proc/{name}/status"))
    if number is None:
        return ""
    for line in content(files, "etc/passwd").splitlines():
        user, *rest = line.split(":")
        if rest[1:2] == [number]:
            return user
    return number


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
    has_nodes = any(facts.get("device_node") for facts in cards)
    for position, facts in enumerate(cards):
        index, module = facts.get("index"), facts.get("module")
        listed = [Holder(each.pid, each.command) for each in processes if each.index == index]
        opening = opened.holders.get(index, [])
        # /sys shows every card of the server in a container, /dev only those that it was given
        absent = bool(in_container) and has_nodes and not facts.get("device_node")
        signs = (
            _Sign(listed, "process-table", "hl-smi process table"),
            _Sign(opening, "open-file", "/proc/*/fd"),
            *_signs_of_readings(facts, _idle_mib(products.get(position))),
            _Sign(absent, "device-node", "no device node in this container"),
            _Sign(module in reserved, "reserved", "lock of another launch"),
        )
        sign = next((sign for sign in signs if sign.seen), _Sign(False, "", ""))
        holders: list[Holder | None] = [*listed, *opening]
        if sign.because == "reserved":
            holders.append(reserved[module])
        known = {holder.pid: holder for holder in holders if holder}
        _put_use(facts, sign, no_process=opened.complete and not in_container)
        source = sign.source or "process table"
        facts.put("holders", tuple(known[pid] for pid in sorted(known)), source)


@dataclass(frozen=True)
class _Sign:
    """A sign that a card is used, and where it shows; ``seen`` is true when it does."""

    seen: object
    because: str
    source: str


def _signs_of_readings(facts: CardFacts, idle_mib: int) -> tuple[_Sign, ...]:
    """Return the signs by a card's readings; none is seen on an idle card."""
    used = facts.get("memory_used_mib", 0)
    status = facts.get("status", "operational")
    is_used = used > idle_mib + memory_margin_mib()
    return (
        _Sign(is_used, "memory", f"{used} MiB used, idle is {idle_mib} MiB"),
        _Sign(status.lower() != "operational", "status", facts.sources.get("status", "")),
        _Sign(
            facts.get("temperature_c") == 0,
            "status",
            "temperature 0 C: the card failed to initialise",
        ),
    )


def _put_use(facts: CardFacts, sign: _Sign, *, no_process: bool) -> None:
    """Set ``busy``; unknown where neither a sign nor its absence was seen."""
    if sign.because:
        facts.put("busy", True, sign.source)
        facts.put("busy_because", sign.because, sign.source)
    elif facts.get("memory_used_mib") is not None:
        facts.put("busy", False, "memory at the idle reading, no process")
    elif no_process:
        facts.put("busy", False, "no process of this machine has it open")


def _idle_mib(product: Accelerator | None) -> int:
    """Return the memory in use on an idle card; of an unknown card the most of all."""
    if product:
        return product.memory_idle_mib
    return max(each.memory_idle_mib for each in accelerators().values())
