"""The machine around the cards: names, kernel, memory, container or not, network."""

from __future__ import annotations

import re
import socket
import struct
from typing import Any

from gaudi_launch.host.files import Files, first_line, whole_number
from gaudi_launch.host.hardware import Interface
from gaudi_launch.host.sysfs import mib_of, read_meminfo

_VIRTUAL = re.compile(
    r"qemu|kvm|vmware|virtualbox|xen|amazon ec2|google compute|openstack|bochs|parallels", re.I
)
_CONTAINER = re.compile(r"docker|kubepods|containerd|libpod|lxc|crio")


def read_system(files: Files) -> dict[str, Any]:
    """Return the fields of `Host` that plain files contain; unreadable ones are None."""
    memory = read_meminfo(files.text("proc/meminfo") or "")
    return {
        "hostname": first_line(files, "proc/sys/kernel/hostname")
        or first_line(files, "etc/hostname"),
        "kernel": first_line(files, "proc/sys/kernel/osrelease"),
        "os_name": _os_name(files.text("etc/os-release") or ""),
        "cpu_model": _cpu_field(files, "model name"),
        "driver_version": first_line(files, "sys/module/habanalabs/version"),
        "memory_total_mib": mib_of(memory.get("MemTotal")),
        "memory_available_mib": mib_of(memory.get("MemAvailable")),
        "in_container": in_container(files),
        "virtual_machine": virtual_machine(files),
    }


def _os_name(text: str) -> str | None:
    match = re.search(r"^PRETTY_NAME=(.+)$", text, re.M)
    if not match:
        return None
    return match[1].strip().strip("\"'") or None


def _cpu_field(files: Files, name: str) -> str | None:
    match = re.search(rf"^{name}[ \t]*:[ \t]*(\S.*)$", files.text("proc/cpuinfo") or "", re.M)
    return match[1].strip() if match else None


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
    flags = _cpu_field(files, "flags")
    board = " ".join(
        filter(
            None,
            (first_line(files, f"sys/class/dmi/id/{n}") for n in ("sys_vendor", "product_name")),
        )
    )
    if flags is None and not board:
        return None
    return "hypervisor" in (flags or "").split() or bool(_VIRTUAL.search(board))


def read_interfaces(files: Files) -> tuple[Interface, ...]:
    """Return network interfaces by name, with the addresses that /proc/net shows.

    The loopback interface is left out.
    """
    routes = _routes(files.text("proc/net/route") or "")
    default = {name for name, network, mask in routes if network == mask == 0}
    addresses: dict[str, list[str]] = {}
    for address in _local_addresses(files.text("proc/net/fib_trie") or ""):
        value = int.from_bytes(bytes(map(int, address.split("."))), "big")
        fitting = [
            (mask, name) for name, network, mask in routes if mask and value & mask == network
        ]
        if fitting:
            addresses.setdefault(max(fitting)[1], []).append(address)
    for line in (files.text("proc/net/if_inet6") or "").splitlines():
        words = line.split()
        if len(words) == 6 and re.fullmatch(r"[0-9a-f]{32}", words[0]):
            addresses.setdefault(words[5], []).append(
                socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0]))
            )
    return tuple(
        Interface(
            name=name,
            up=first_line(files, f"sys/class/net/{name}/operstate") in ("up", "unknown"),
            addresses=tuple(addresses.get(name, ())),
            default_route=name in default,
        )
        for name in files.names("sys/class/net")
        if name != "lo" and name != "bonding_masters"
    )


def _routes(text: str) -> list[tuple[str, int, int]]:
    """Return interface, network and mask of each line of /proc/net/route.

    Its hexadecimal numbers are in the machine's byte order.
    """
    routes = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) >= 8 and all(re.fullmatch(r"[0-9A-Fa-f]{8}", words[n]) for n in (1, 7)):
            network, mask = (
                struct.unpack("!I", struct.pack("<I", int(words[n], 16)))[0] for n in (1, 7)
            )
            routes.append((words[0], network, mask))
    return routes


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
            parts = [whole_number(part) for part in address.split(".")]
            usable = all(part is not None and part < 256 for part in parts) and parts[0] != 127
            if usable and address not in found:
                found.append(address)
            address = ""
    return found
