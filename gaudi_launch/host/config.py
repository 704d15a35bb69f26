"""HostConfig: how a machine is set up, beyond what it is (`Host`). Read once, JSON-able, judged by the doctor.

``None`` means "could not be read", never "no". Mappings and tuples are empty where nothing was found. Nothing here
judges; which value is wanted stands with the checks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaudi_launch import paths
from gaudi_launch.host.accelerators import VENDOR
from gaudi_launch.host.cpus import format_cpus, parse_cpus
from gaudi_launch.host.files import Files, Folder, first_line, numbered, whole_number
from gaudi_launch.host.sysfs import read_meminfo

CPU = "sys/devices/system/cpu"
_DISK_SECONDS = 2.0  # statvfs on a dead network mount never returns
_MODULES = ("habanalabs", "ib_uverbs", "ib_core")
_PROGRAMS = ("docker", "podman", "hl-smi", "numactl", "update-grub", "grubby", "grub2-mkconfig")
_PROGRAM_FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
_LIBRARIES = (
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
# only names that a check reads; values of others are nobody's business
ENVIRONMENT = (
    "HABANA_VISIBLE_DEVICES",
    "HABANA_VISIBLE_MODULES",
    "HABANA_RUNTIME_ERROR",
    "HCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "LIBFABRIC_ROOT",
    "VLLM_PROMPT_BS_BUCKET_LIMIT",
    "VLLM_PROMPT_SEQ_BUCKET_LIMIT",
    "VLLM_DECODE_BS_BUCKET_LIMIT",
    "VLLM_DECODE_BLOCK_BUCKET_LIMIT",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
)


@dataclass(frozen=True)
class Disk:
    """The file system that a folder of ours is (or would be) on. Sizes in MiB."""

    path: str
    free_mib: int | None = None
    kind: str | None = None
    writable: bool | None = None


@dataclass(frozen=True)
class HostConfig:
    """Settings of one machine at one moment.

    ``governors``, ``scaling_drivers``: CPUs (a kernel list) by word. ``idle_states``: CPUs on which a C-state may
    be entered, by its name. ``command_line`` and ``grub`` are kernel arguments (running, and in
    /etc/default/grub). Limits are words of /proc/self/limits. ``device_nodes`` says of each node whether this
    user may read and write it. ``pci_devices`` are addresses of Gaudi cards on the PCI bus, None when there is no
    bus to read. ``ports`` listen on TCP. ``disks`` by use: ``cache``, ``data``.
    """

    governors: Mapping[str, str] = field(default_factory=dict)
    scaling_drivers: Mapping[str, str] = field(default_factory=dict)
    pstate_status: str | None = None
    no_turbo: int | None = None
    idle_driver: str | None = None
    idle_states: Mapping[str, str] = field(default_factory=dict)
    max_cstate: int | None = None
    command_line: tuple[str, ...] | None = None
    grub: tuple[str, ...] | None = None
    os_id: str | None = None
    os_like: tuple[str, ...] = ()
    os_version: str | None = None
    numa_balancing: int | None = None
    swap_total_mib: int | None = None
    swap_used_mib: int | None = None
    hugepages_total: int | None = None
    hugepages_free: int | None = None
    hugepage_kib: int | None = None
    transparent_hugepages: str | None = None
    memlock: str | None = None
    nofile: str | None = None
    shm_mib: int | None = None
    modules: tuple[str, ...] | None = None
    module_built: bool | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    pci_devices: tuple[str, ...] | None = None
    device_nodes: Mapping[str, bool] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    docker_runtimes: Mapping[str, str] | None = None
    docker_problem: str | None = None
    runtime_programs: tuple[str, ...] = ()
    libfabric: str | None = None
    ofi_wrapper: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] | None = None
    disks: Mapping[str, Disk] = field(default_factory=dict)
    root_user: bool | None = None
    root: str = "/"


Space = Callable[[str], tuple[int, bool] | None]
"""Free MiB under a path of the machine and whether it may be written; None when it cannot be told."""


def load_config(machine: str | None = None) -> HostConfig:
    """The HostConfig of ``--machine``, the partner of `host.machine.load`.

    A snapshot without a config gives one where nothing is known. Raises LaunchError (USAGE) as `load` does.
    """
    from gaudi_launch.host.machine import SIMULATED, load_document

    if machine is None:
        return read_live(paths.machine_root())
    if machine.startswith(SIMULATED):
        from gaudi_launch.host.simulated import build

        made = build(machine.removeprefix(SIMULATED))
        return read_config(made.view, space=lambda path: (2 << 20, True))
    from gaudi_launch.host.snapshot import config_of, read_record

    config = config_of(load_document(machine))
    found: HostConfig = read_record(HostConfig, config, "config") if config is not None else HostConfig()
    return found


def to_json(config: HostConfig) -> dict[str, Any]:
    """The ``config`` object of a snapshot."""
    from gaudi_launch.host.snapshot import write_record

    return dict(write_record(config))


def read_live(root: Path) -> HostConfig:
    """The machine under ``root``; environment and programs on PATH count only when that is this machine."""
    here = root == Path("/")

    def space(path: str) -> tuple[int, bool] | None:
        return _space(root / path)

    def allowed(path: str) -> bool:
        return os.access(root / path, os.R_OK | os.W_OK)

    return read_config(
        Folder(root),
        environment=os.environ,
        space=space,
        allowed=allowed,
        find=shutil.which if here else None,
        root=str(root),
        root_user=os.geteuid() == 0,
    )


def read_config(
    files: Files,
    *,
    environment: Mapping[str, str] | None = None,
    space: Space | None = None,
    allowed: Callable[[str], bool] | None = None,
    find: Callable[[str], str | None] | None = None,
    root: str = "/",
    root_user: bool | None = None,
) -> HostConfig:
    """The settings that these files show. Never raises for what a machine holds."""
    memory = read_meminfo(files.text("proc/meminfo") or "")
    release = _assignments(files.text("etc/os-release") or "")
    swap = memory.get("SwapTotal")
    known = _environment(environment or {})
    runtimes, problem = _docker_runtimes(files)
    governors, drivers = _cpufreq(files)
    libraries = (*(f"{known[n].strip('/')}/lib" for n in ("LIBFABRIC_ROOT",) if n in known), *_LIBRARIES)
    return HostConfig(
        governors=governors,
        scaling_drivers=drivers,
        pstate_status=first_line(files, f"{CPU}/intel_pstate/status"),
        no_turbo=whole_number(first_line(files, f"{CPU}/intel_pstate/no_turbo")),
        idle_driver=first_line(files, f"{CPU}/cpuidle/current_driver"),
        idle_states=_idle_states(files),
        max_cstate=whole_number(first_line(files, "sys/module/intel_idle/parameters/max_cstate")),
        command_line=_words(first_line(files, "proc/cmdline")),
        grub=_grub(files),
        os_id=release.get("ID"),
        os_like=tuple(release.get("ID_LIKE", "").split()),
        os_version=release.get("VERSION_ID"),
        numa_balancing=whole_number(first_line(files, "proc/sys/kernel/numa_balancing")),
        swap_total_mib=None if swap is None else swap // 1024,
        swap_used_mib=None if swap is None else (swap - memory.get("SwapFree", swap)) // 1024,
        # the setting itself, which is what a change of it shows first; the kernel keeps both alike
        hugepages_total=_first(
            whole_number(first_line(files, "proc/sys/vm/nr_hugepages")), memory.get("HugePages_Total")
        ),
        hugepages_free=memory.get("HugePages_Free"),
        hugepage_kib=memory.get("Hugepagesize"),
        transparent_hugepages=_bracketed(first_line(files, "sys/kernel/mm/transparent_hugepage/enabled")),
        memlock=_limit(files, "Max locked memory"),
        nofile=_limit(files, "Max open files"),
        shm_mib=_shm_mib(files),
        modules=_modules(files),
        module_built=_module_built(files),
        packages=_packages(files),
        pci_devices=_pci_devices(files),
        device_nodes={f"/{n}": True if allowed is None else allowed(n) for n in _device_nodes(files)},
        programs=_programs(files, find),
        docker_runtimes=runtimes,
        docker_problem=problem,
        runtime_programs=tuple(p for p in (runtimes or {}).values() if files.exists(p.lstrip("/"))),
        libfabric=_library(files, libraries, "libfabric.so"),
        ofi_wrapper=_library(files, libraries, "libhccl_ofi_wrapper.so"),
        environment=known,
        ports=_listening(files),
        disks=_disks(files, space),
        root_user=root_user,
        root=root,
    )


def _cpufreq(files: Files) -> tuple[dict[str, str], dict[str, str]]:
    """CPUs by governor and by scaling driver; empty where BIOS or hypervisor owns the frequency."""
    found: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for cpu, name in numbered(files.names(CPU), "cpu"):
        for words, attribute in zip(found, ("scaling_governor", "scaling_driver"), strict=True):
            word = first_line(files, f"{CPU}/{name}/cpufreq/{attribute}")
            if word:
                words.setdefault(word, []).append(cpu)
    governors, drivers = ({word: format_cpus(c) for word, c in sorted(words.items())} for words in found)
    return governors, drivers


def _idle_states(files: Files) -> dict[str, str]:
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


def _first(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(text.split())


def _assignments(text: str) -> dict[str, str]:
    """NAME=value lines with the quotes taken off; a later line wins."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name.isidentifier():
            found[name] = value.strip().strip("\"'")
    return found


def _grub(files: Files) -> tuple[str, ...] | None:
    text = files.text("etc/default/grub")
    if text is None:
        return None
    found = _assignments(text)
    both = (found.get("GRUB_CMDLINE_LINUX", ""), found.get("GRUB_CMDLINE_LINUX_DEFAULT", ""))
    return tuple(" ".join(both).split())


def _bracketed(text: str | None) -> str | None:
    match = re.search(r"\[(\w+)\]", text or "")
    return match[1] if match else None


def _limit(files: Files, name: str) -> str | None:
    """The soft limit's word: a number or ``unlimited``."""
    match = re.search(rf"^{name}\s+(\S+)", files.text("proc/self/limits") or "", re.M)
    return match[1] if match else None


def _shm_mib(files: Files) -> int | None:
    """Size of /dev/shm from its mount options; without a size the kernel gives half of the memory."""
    for line in (files.text("proc/mounts") or files.text("proc/self/mounts") or "").splitlines():
        words = line.split()
        if len(words) >= 4 and words[1] == "/dev/shm" and words[2] in ("tmpfs", "ramfs"):
            match = re.search(r"(?:^|,)size=(\d+)([kmg%]?)", words[3])
            total = read_meminfo(files.text("proc/meminfo") or "").get("MemTotal")
            if match is None:
                return None if total is None else total // 2048
            size = int(match[1])
            if match[2] == "%":
                return None if total is None else total * size // 100 // 1024
            return {"": size >> 20, "k": size >> 10, "m": size, "g": size << 10}[match[2]]
    return None


def _modules(files: Files) -> tuple[str, ...] | None:
    text = files.text("proc/modules")
    if text is None:
        return None
    names = (line.split()[0] for line in text.splitlines() if line.split())
    return tuple(sorted(n for n in names if n.startswith(_MODULES[0]) or n in _MODULES))


def _module_built(files: Files) -> bool | None:
    """Whether a habanalabs module lies ready for the running kernel; None when its folder cannot be read."""
    kernel = first_line(files, "proc/sys/kernel/osrelease")
    folders = [f"lib/modules/{kernel}/{place}" for place in ("updates/dkms", "extra", "updates", "weak-updates")]
    if kernel is None or not files.exists(f"lib/modules/{kernel}"):
        return None
    return any(name.startswith("habanalabs.ko") for folder in folders for name in files.names(folder))


def _packages(files: Files) -> dict[str, str]:
    """Versions of installed habanalabs packages (dpkg's own database; rpm's cannot be read as text)."""
    found: dict[str, str] = {}
    for block in (files.text("var/lib/dpkg/status") or "").split("\n\n"):
        if not block.startswith("Package: habana"):
            continue
        words = dict(line.split(": ", 1) for line in block.splitlines() if re.match(r"[A-Z]\S*: ", line))
        if words.get("Status", "").endswith(" installed") and "Version" in words:
            found[words["Package"]] = words["Version"]
    return found


def _pci_devices(files: Files) -> tuple[str, ...] | None:
    folder = "sys/bus/pci/devices"
    if not files.exists(folder):
        return None
    wanted = (VENDOR, f"0x{VENDOR}")
    return tuple(n for n in files.names(folder) if first_line(files, f"{folder}/{n}/vendor") in wanted)


def _device_nodes(files: Files) -> list[str]:
    nodes = [f"dev/accel/{name}" for _, name in numbered(files.names("dev/accel"), "accel")]
    nodes += [f"dev/accel/{name}" for _, name in numbered(files.names("dev/accel"), "accel_controlD")]
    return nodes or [f"dev/{name}" for _, name in numbered(files.names("dev"), "hl")]


def _programs(files: Files, find: Callable[[str], str | None] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _PROGRAMS:
        inside = next((f"/{f}/{name}" for f in _PROGRAM_FOLDERS if files.exists(f"{f}/{name}")), None)
        path = (find(name) if find else None) or inside
        if path:
            found[name] = path
    return found


def _docker_runtimes(files: Files) -> tuple[dict[str, str] | None, str | None]:
    """Runtime programs by name in docker's daemon.json, and why it could not be understood."""
    text = files.text("etc/docker/daemon.json")
    if text is None:
        return ({}, None) if not files.exists("etc/docker/daemon.json") else (None, "unreadable")
    try:
        document = json.loads(text or "{}")
        runtimes = document.get("runtimes", {})
        return {str(name): str(entry.get("path", "")) for name, entry in runtimes.items()}, None
    except (ValueError, AttributeError, RecursionError) as error:
        return None, str(error)


def _library(files: Files, folders: tuple[str, ...], stem: str) -> str | None:
    """The library with the longest (most exact) version in its name."""
    found = [f"/{f}/{n}" for f in folders for n in files.names(f) if n == stem or n.startswith(f"{stem}.")]
    return max(found, key=len) if found else None


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that checks read; a proxy's password is left out, upper-case proxy names count too."""
    found: dict[str, str] = {}
    for name in ENVIRONMENT:
        value = environment.get(name)
        if not value and name.endswith("_proxy"):
            value = environment.get(name.upper())
        if value:
            found[name] = re.sub(r"//[^/@]*@", "//", value)
    return found


def _listening(files: Files) -> tuple[int, ...] | None:
    texts = [text for text in (files.text(f"proc/net/{name}") for name in ("tcp", "tcp6")) if text is not None]
    if not texts:
        return None
    # "  0: 0100007F:1F90 00000000:0000 0A": local address and port in hexadecimal, state 0A listens
    ports = re.findall(r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A ", "\n".join(texts), re.M)
    return tuple(sorted({int(port, 16) for port in ports}))


def _disks(files: Files, space: Space | None) -> dict[str, Disk]:
    places = {"cache": paths.cache_dir(), "data": paths.data_dir()}
    return {use: _disk(files, str(path), space) for use, path in places.items()}


def _disk(files: Files, path: str, space: Space | None) -> Disk:
    told = space(path.lstrip("/")) if space else None
    kind = _mount_kind(files.text("proc/mounts") or files.text("proc/self/mounts") or "", path)
    return Disk(path, told[0] if told else None, kind, told[1] if told else None)


def read_disk(root: Path, path: Path) -> Disk:
    """The disk of any folder of this machine, a model's say."""
    return _disk(Folder(root), str(path), lambda inner: _space(Path("/") / inner))


def _mount_kind(mounts: str, path: str) -> str | None:
    best, kind = "", None
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = words[1].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, words[2]
    return kind


def _space(path: Path) -> tuple[int, bool] | None:
    """Free MiB and writability of the nearest existing folder, or None after a short wait."""
    told: list[tuple[int, bool]] = []

    def look() -> None:
        place = path
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            state = os.statvfs(place)
        except OSError:
            return
        told.append((state.f_bavail * state.f_frsize >> 20, os.access(place, os.W_OK)))

    # a daemon thread: one that hangs must not keep the program from ending
    worker = threading.Thread(target=look, daemon=True)
    worker.start()
    worker.join(_DISK_SECONDS)
    return told[0] if told else None


def cpus_without(governors: Mapping[str, str], wanted: str) -> tuple[int, ...]:
    """CPUs whose governor is not ``wanted``, ascending."""
    return tuple(sorted(c for word, cpus in governors.items() if word != wanted for c in parse_cpus(cpus)))
