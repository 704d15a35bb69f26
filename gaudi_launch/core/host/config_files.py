"""Single settings of a machine, each read from its files.

`host.config` combines them.

``None`` means "could not be read", never "no". Nothing here raises, whatever the files contain.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable

from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.host.accelerators import VENDOR
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.host.files import Files, captured, content, first_line, numbered
from gaudi_launch.core.host.sysfs import read_meminfo

CPU = "sys/devices/system/cpu"
_MODULES = ("habanalabs", "ib_uverbs", "ib_core")
_PROGRAMS = (
    *("docker", "podman", "hl-smi", "numactl"),
    *("update-grub", "grubby", "grub2-mkconfig", "systemctl"),
)
DOCKER = "etc/docker/daemon.json"
# of the package habanalabs-container-runtime (docs: Docker Installation)
RUNTIME = "/usr/bin/habana-container-runtime"
_PROGRAM_FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
LIBRARIES = (
    "opt/libfabric/lib",
    "opt/habanalabs/libfabric/lib",
    "opt/amazon/efa/lib",
    "opt/amazon/efa/lib64",
    "usr/local/lib",
    "usr/lib",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/habanalabs",
)


def cpufreq(files: Files) -> tuple[dict[str, str], dict[str, str]]:
    """Return CPUs by governor and by scaling driver.

    The result is empty where BIOS or hypervisor owns the frequency.
    """
    return _cpus_by(files, "scaling_governor"), _cpus_by(files, "scaling_driver")


def _cpus_by(files: Files, attribute: str) -> dict[str, str]:
    """Return the CPUs by the value of a cpufreq attribute."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for cpu, name in numbered(files.names(CPU), "cpu"):
        value = first_line(files, f"{CPU}/{name}/cpufreq/{attribute}")
        if value:
            found[value].append(cpu)
    return {value: format_cpus(cpus) for value, cpus in sorted(found.items())}


def idle_states(files: Files) -> dict[str, str]:
    """Return the CPUs on which each C-state is enabled, by the state's name."""
    states: dict[str, list[int]] = {}
    for cpu, name in numbered(files.names(CPU), "cpu"):
        folder = f"{CPU}/{name}/cpuidle"
        for _, state in numbered(files.names(folder), "state"):
            word = first_line(files, f"{folder}/{state}/name")
            if word:
                cpus = states.setdefault(word, [])
                if first_line(files, f"{folder}/{state}/disable") in (None, "0"):
                    cpus.append(cpu)
    return {word: format_cpus(cpus) for word, cpus in states.items()}


def first(*numbers: int | None) -> int | None:
    """Return the first number that is known."""
    return next((number for number in numbers if number is not None), None)


def words(text: str | None) -> tuple[str, ...] | None:
    """Return the fields of a line; None stays None."""
    if text is None:
        return None
    return tuple(text.split())


def assignments(text: str) -> dict[str, str]:
    """Return NAME=value lines without quotes; a later line wins."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name.isidentifier():
            found[name] = value.strip().strip("\"'")
    return found


def grub(files: Files) -> tuple[str, ...] | None:
    """Return kernel arguments of /etc/default/grub; None without that file.

    Debian and Ubuntu read grub.d, too (the patch default-grub-d of their grub2).
    """
    text = files.text("etc/default/grub")
    if text is None:
        return None
    more = [f"etc/default/grub.d/{name}" for name in sorted(files.names("etc/default/grub.d"))]
    texts = [text, *(content(files, path) for path in more if path.endswith(".cfg"))]
    found = [
        assignments(each).get(name, "")
        for name in ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT")
        for each in texts
    ]
    return tuple(word for word in " ".join(found).split() if not word.startswith("$"))


def bracketed(text: str | None) -> str | None:
    """Return the selected value of a sysfs list: ``always [madvise] never``."""
    return captured(r"\[(\w+)\]", text or "")


def limit(files: Files, name: str) -> str | None:
    """Return the soft limit: a number or ``unlimited``."""
    return captured(rf"(?m)^{name}\s+(\S+)", content(files, "proc/self/limits"))


def mounts(files: Files) -> str:
    """Return the mount table, "" if it cannot be read."""
    return content(files, "proc/mounts") or content(files, "proc/self/mounts")


_SHM = re.compile(r"(?m)^\S+[ \t]+/dev/shm[ \t]+(?:tmpfs|ramfs)[ \t]+(\S+)")


_SIZE = re.compile(r"(?:^|,)size=(\d+)([kmg%]?)")


def shm_mib(files: Files) -> int | None:
    """Return the size of /dev/shm from its mount options."""
    options = captured(_SHM, mounts(files))
    if options is None:
        return None
    # without a size it is half of the memory (tmpfs(5))
    size, unit = _SIZE.findall(f"{options},size=50%")[0]
    if unit != "%":
        return int(size) * _BYTES[unit] >> 20
    total = read_meminfo(content(files, "proc/meminfo")).get("MemTotal")
    if total is None:
        return None
    return total * int(size) // 100 // 1024


_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def modules(files: Files) -> tuple[str, ...] | None:
    """Return the loaded kernel modules that cards need or that belong to them."""
    text = files.text("proc/modules")
    if text is None:
        return None
    names = re.findall(r"(?m)^\s*(\S+)", text)
    return tuple(sorted(n for n in names if n.startswith(_MODULES[0]) or n in _MODULES))


def module_built(files: Files) -> bool | None:
    """Return whether a habanalabs module is installed for the running kernel.

    Return None when its folder cannot be read.
    """
    kernel = first_line(files, "proc/sys/kernel/osrelease")
    folders = [
        f"lib/modules/{kernel}/{place}"
        for place in ("updates/dkms", "extra", "updates", "weak-updates")
    ]
    if kernel is None or not files.exists(f"lib/modules/{kernel}"):
        return None
    return any(
        name.startswith("habanalabs.ko") for folder in folders for name in files.names(folder)
    )


def packages(files: Files) -> dict[str, str]:
    """Return versions of installed habanalabs packages from dpkg's database.

    The database of rpm cannot be read as text.
    """
    found: dict[str, str] = {}
    for block in content(files, "var/lib/dpkg/status").split("\n\n"):
        if not block.startswith("Package: habana"):
            continue
        words = dict(re.findall(r"(?m)^([A-Z]\S*): (.*)$", block))
        if words.get("Status", "").endswith(" installed") and "Version" in words:
            found[words["Package"]] = words["Version"]
    return found


def pci_devices(files: Files) -> tuple[str, ...] | None:
    """Return addresses of Gaudi cards on the PCI bus.

    Return None when there is no bus to read.
    """
    folder = "sys/bus/pci/devices"
    if not files.exists(folder):
        return None
    wanted = (VENDOR, f"0x{VENDOR}")
    return tuple(
        n for n in files.names(folder) if first_line(files, f"{folder}/{n}/vendor") in wanted
    )


def device_nodes(files: Files) -> list[str]:
    """Return paths of the cards' nodes, without the leading slash.

    The old /dev/hl* where there are no new ones.
    """
    nodes = [
        f"dev/accel/{name}"
        for stem in ("accel", "accel_controlD")
        for _, name in numbered(files.names("dev/accel"), stem)
    ]
    return nodes or [f"dev/{name}" for _, name in numbered(files.names("dev"), "hl")]


def programs(files: Files, find: Callable[[str], str | None]) -> dict[str, str]:
    """Return the paths of the programs that checks look for, by name."""
    found: dict[str, str] = {}
    for name in _PROGRAMS:
        places = (f"{folder}/{name}" for folder in _PROGRAM_FOLDERS)
        paths = [find(name), *(f"/{place}" for place in places if files.exists(place))]
        path = next(filter(None, paths), None)
        if path:
            found[name] = path
    return found


def docker_runtimes(files: Files) -> tuple[dict[str, str] | None, str | None]:
    """Return runtime programs by name in docker's daemon.json, and a parse error."""
    text = files.text(DOCKER)
    if text is None:
        if not files.exists(DOCKER):
            return ({}, None)
        return (None, "unreadable")
    try:
        document = parse_json(text or "{}")
        runtimes = document.get("runtimes", {})
        return {str(name): str(entry.get("path", "")) for name, entry in runtimes.items()}, None
    except (ValueError, AttributeError) as error:
        return None, str(error)


def library(files: Files, folders: tuple[str, ...], stem: str) -> str | None:
    """Return the library with the longest (most exact) version in its name."""
    found = [
        f"/{folder}/{name}"
        for folder in folders
        for name in files.names(folder)
        if f"{name}.".startswith(f"{stem}.")
    ]
    return max(found, key=len, default=None)


def listening(files: Files) -> tuple[int, ...] | None:
    """Return TCP ports with a listener, ascending.

    Return None when the kernel's tables cannot be read.
    """
    tables = [files.text("proc/net/tcp"), files.text("proc/net/tcp6")]
    texts = [text for text in tables if text is not None]
    if not texts:
        return None
    # "  0: 0100007F:1F90 00000000:0000 0A": local address and port in hexadecimal, state 0A listens
    ports = re.findall(r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A ", "\n".join(texts), re.M)
    return tuple(sorted({int(port, 16) for port in ports}))


def mount_kind(mounts: str, path: str) -> str | None:
    """Return the file system type that a path of /proc/mounts is on.

    The last mount on a point is the one that is seen.
    """
    best, kind = "", None
    for line in mounts.splitlines():
        words = line.split(" ")
        if len(words) < 3:
            continue
        # the kernel writes a blank in a name as \040
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), words[1])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, words[2]
    return kind
