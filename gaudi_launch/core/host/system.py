"""The machine around the cards: names, kernel, memory, container or not, network."""

from __future__ import annotations

import re
import socket
import struct
from collections import defaultdict
from typing import Any

from gaudi_launch.core.host.files import Files, captured, content, first_line
from gaudi_launch.core.host.hardware import Interface
from gaudi_launch.core.host.sysfs import mib_of, read_meminfo

_VIRTUAL = re.compile(
    r"qemu|kvm|vmware|virtualbox|xen|amazon ec2|google compute|openstack|bochs|parallels", re.I
)
_CONTAINER = re.compile(r"docker|kubepods|containerd|libpod|lxc|crio")


def read_system(files: Files) -> dict[str, Any]:
    """Return the fields of `Host` that plain files contain; unreadable ones are None."""
    memory = read_meminfo(content(files, "proc/meminfo"))
    name = captured(r"(?m)^PRETTY_NAME=(.+)$", content(files, "etc/os-release")) or ""
    return {
        "hostname": first_line(files, "proc/sys/kernel/hostname")
        or first_line(files, "etc/hostname"),
        "kernel": first_line(files, "proc/sys/kernel/osrelease"),
        "os_name": name.strip().strip("\"'") or None,
        "cpu_model": _cpu_field(files, "model name"),
        "driver_version": first_line(files, "sys/module/habanalabs/version"),
        "memory_total_mib": mib_of(memory.get("MemTotal")),
        "memory_available_mib": mib_of(memory.get("MemAvailable")),
        "in_container": in_container(files),
        "virtual_machine": virtual_machine(files),
    }


def _cpu_field(files: Files, name: str) -> str | None:
    return captured(rf"(?m)^{name}[ \t]*:[ \t]*(\S.*?)\s*$", content(files, "proc/cpuinfo"))


def in_container(files: Files) -> bool | None:
    """Return whether process 1 is a container's; None when /proc cannot be read."""
    if files.exists(".dockerenv") or files.exists("run/.containerenv"):
        return True
    groups, environment = files.text("proc/1/cgroup"), files.text("proc/1/environ")
    if groups is None and environment is None:
        return None
    return bool(
        _CONTAINER.search(groups or "") or re.search(r"(?:^|\0)container=", environment or "")
    )


def virtual_machine(files: Files) -> bool | None:
    """Return whether the CPU or the board says that this is a virtual machine.

    Return None when neither can be read.
    """
    flags = _cpu_field(files, "flags") or ""
    names = [first_line(files, f"sys/class/dmi/id/{n}") for n in ("sys_vendor", "product_name")]
    board = " ".join(filter(None, names))
    if not flags and not board:
        return None
    return "hypervisor" in flags.split() or bool(_VIRTUAL.search(board))


def read_interfaces(files: Files) -> tuple[Interface, ...]:
    """Return network interfaces by name, with the addresses that /proc/net shows.

    The loopback interface is left out.
    """
    routes = _routes(content(files, "proc/net/route"))
    default = {name for name, network, mask in routes if network == mask == 0}
    addresses = _addresses_by_interface(files, routes)
    return tuple(
        Interface(
            name=name,
            up=first_line(files, f"sys/class/net/{name}/operstate") in ("up", "unknown"),
            addresses=tuple(addresses[name]),
            default_route=name in default,
        )
        for name in files.names("sys/class/net")
        if name not in ("lo", "bonding_masters")
    )


def _addresses_by_interface(
    files: Files, routes: list[tuple[str, int, int]]
) -> defaultdict[str, list[str]]:
    """Return IPv4 addresses by the narrowest route to them, then IPv6 addresses."""
    addresses: defaultdict[str, list[str]] = defaultdict(list)
    for address in _local_addresses(content(files, "proc/net/fib_trie")):
        value = int.from_bytes(bytes(map(int, address.split("."))), "big")
        fitting = [
            (mask, name) for name, network, mask in routes if mask and value & mask == network
        ]
        if fitting:
            addresses[max(fitting)[1]].append(address)
    for line in content(files, "proc/net/if_inet6").splitlines():
        words = line.split()
        if len(words) == 6 and re.fullmatch(r"[0-9a-f]{32}", words[0]):
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0]))
            addresses[words[5]].append(address)
    return addresses


def _routes(text: str) -> list[tuple[str, int, int]]:
    """Return interface, network and mask of each line of /proc/net/route.

    Its hexadecimal numbers are in the machine's byte order.
    """
    routes = []
    for line in text.splitlines()[1:]:
        match = _ROUTE.match(line)
        if match:
            routes.append((match["name"], _swapped(match["network"]), _swapped(match["mask"])))
    return routes


_ROUTE = re.compile(
    r"\s*(?P<name>\S+)\s+(?P<network>[0-9A-Fa-f]{8})(?:\s+\S+){5}\s+(?P<mask>[0-9A-Fa-f]{8})(?!\S)"
)


def _swapped(hexadecimal: str) -> int:
    """Return a number of the machine's byte order as one of the network's."""
    number: int = struct.unpack("!I", struct.pack("<I", int(hexadecimal, 16)))[0]
    return number


def _local_addresses(text: str) -> list[str]:
    """Return this machine's addresses in /proc/net/fib_trie.

    They are leaves followed by ``/32 host LOCAL``.
    """
    found: list[str] = []
    address = ""
    for line in text.splitlines():
        if match := re.match(r"^[ \t]+\|-- (\d{1,3}(?:\.\d{1,3}){3})$", line):
            address = match[1]
        elif address and "/32 host LOCAL" in line:
            # not a loopback address, and four bytes
            first, *rest = map(int, address.split("."))
            if first != 127 and max(first, *rest) < 256 and address not in found:
                found.append(address)
            address = ""
    return found
