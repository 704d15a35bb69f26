"""The configuration of a machine: BIOS, kernel, limits, disks (`HostConfig`).

It is read once, can be written as JSON, and is judged by the doctor.

``None`` means "could not be read", never "no". Mappings and tuples are empty where nothing was
found. Nothing is judged here; the checks define the expected values.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import codec, paths
from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.host import config_files as settings
from gaudi_launch.core.host.cpus import parse_cpus
from gaudi_launch.core.host.files import Files, FolderFiles, content, first_line, whole_number
from gaudi_launch.core.host.machine import SIMULATED, load_document, named
from gaudi_launch.core.host.simulated import build
from gaudi_launch.core.host.snapshot import config_of, read_part
from gaudi_launch.core.host.sysfs import mib_of, read_meminfo

_DISK_SECONDS = 2.0  # statvfs on a dead network mount never returns
# only names that a check reads; values of other variables may be private
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
    """The file system of a folder that exists or will be created. Sizes in MiB."""

    path: str
    free_mib: int | None = None
    kind: str | None = None
    writable: bool | None = None


@dataclass(frozen=True)
class HostConfig:
    """Settings of one machine at one moment.

    ``governors``, ``scaling_drivers``: CPUs (a kernel list) by name. ``idle_states``: CPUs on which
    a C-state is enabled, by the state's name. ``command_line`` and ``grub`` are kernel arguments
    (running, and in /etc/default/grub). Limits are values of /proc/self/limits. ``device_nodes``
    states for each node whether this user may read and write it. ``pci_devices`` are addresses of
    Gaudi cards on the PCI bus, None when there is no bus to read. ``ports`` are TCP ports with a
    listener. ``disks`` by use: ``cache``, ``data``.
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
"""Free MiB under a path of the machine and whether it is writable; None when unknown."""


def _unknown(name: str) -> None:
    """Answer nothing, as for a machine that is not running."""


@dataclass(frozen=True)
class LiveAnswers:
    """Facts of the running machine that no file shows.

    ``allowed`` returns True for a device that this process may open, ``find`` a program's path.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    space: Space = _unknown
    allowed: Callable[[str], bool] = lambda path: True
    find: Callable[[str], str | None] = _unknown
    root: str = "/"
    root_user: bool | None = None


_NO_ANSWERS = LiveAnswers()


def load_config(machine: str | None = None) -> HostConfig:
    """Return the HostConfig of ``--machine``, as `core.host.machine.load` its Host.

    A snapshot without a config gives one where nothing is known. Raises LaunchError (USAGE) as
    `load` does.
    """
    if machine is None:
        return read_live(paths.machine_root())
    machine = named(machine)
    if machine.startswith(SIMULATED):
        made = build(machine.removeprefix(SIMULATED))
        return read_config(made.view, LiveAnswers(space=lambda path: (2 << 20, True)))
    config = config_of(load_document(machine)) or {}
    return read_part(HostConfig, config, "config")


def to_json(config: HostConfig) -> dict[str, Any]:
    """Return the ``config`` object of a snapshot."""
    return dict(codec.write(config))


def read_live(root: Path) -> HostConfig:
    """Return the machine under ``root``.

    Environment and programs on PATH count only when that is this machine.
    """
    find: Callable[[str], str | None] = _unknown
    if root == Path("/"):
        find = shutil.which

    def space(path: str) -> tuple[int, bool] | None:
        return _space(root / path)

    def allowed(path: str) -> bool:
        return os.access(root / path, os.R_OK | os.W_OK)

    return read_config(
        FolderFiles(root),
        LiveAnswers(
            environment=os.environ,
            space=space,
            allowed=allowed,
            find=find,
            root=str(root),
            root_user=os.geteuid() == 0,
        ),
    )


def read_config(files: Files, live: LiveAnswers = _NO_ANSWERS) -> HostConfig:
    """Return the settings that these files show.

    Never raises, whatever the files contain.
    """
    memory = read_meminfo(content(files, "proc/meminfo"))
    os_release = content(files, "etc/os-release")
    release = settings.assignments(os_release)
    # os-release(5): IDs are in lower case, but openEuler's has a capital letter
    lower = settings.assignments(os_release.lower())
    known = _environment(live.environment)
    runtimes, problem = settings.docker_runtimes(files)
    governors, drivers = settings.cpufreq(files)
    libraries: tuple[str, ...] = settings.LIBRARIES
    if "LIBFABRIC_ROOT" in known:
        libraries = (f"{known['LIBFABRIC_ROOT'].strip('/')}/lib", *libraries)
    return HostConfig(
        governors=governors,
        scaling_drivers=drivers,
        pstate_status=first_line(files, f"{settings.CPU}/intel_pstate/status"),
        no_turbo=whole_number(first_line(files, f"{settings.CPU}/intel_pstate/no_turbo")),
        idle_driver=first_line(files, f"{settings.CPU}/cpuidle/current_driver"),
        idle_states=settings.idle_states(files),
        max_cstate=whole_number(first_line(files, "sys/module/intel_idle/parameters/max_cstate")),
        command_line=settings.words(first_line(files, "proc/cmdline")),
        grub=settings.grub(files),
        os_id=lower.get("id"),
        os_like=tuple(lower.get("id_like", "").split()),
        os_version=release.get("VERSION_ID"),
        numa_balancing=whole_number(first_line(files, "proc/sys/kernel/numa_balancing")),
        swap_total_mib=mib_of(memory.get("SwapTotal")),
        swap_used_mib=mib_of(_swap_used(memory)),
        # the setting itself, which is what a change of it shows first; the kernel keeps both alike
        hugepages_total=settings.first(
            whole_number(first_line(files, "proc/sys/vm/nr_hugepages")),
            memory.get("HugePages_Total"),
        ),
        hugepages_free=memory.get("HugePages_Free"),
        hugepage_kib=memory.get("Hugepagesize"),
        transparent_hugepages=settings.bracketed(
            first_line(files, "sys/kernel/mm/transparent_hugepage/enabled")
        ),
        memlock=settings.limit(files, "Max locked memory"),
        nofile=settings.limit(files, "Max open files"),
        shm_mib=settings.shm_mib(files),
        modules=settings.modules(files),
        module_built=settings.module_built(files),
        packages=settings.packages(files),
        pci_devices=settings.pci_devices(files),
        device_nodes={f"/{n}": live.allowed(n) for n in settings.device_nodes(files)},
        programs=settings.programs(files, live.find),
        docker_runtimes=runtimes,
        docker_problem=problem,
        runtime_programs=tuple(
            path
            for path in dict.fromkeys((*(runtimes or {}).values(), settings.RUNTIME))
            if files.exists(path.lstrip("/"))
        ),
        libfabric=settings.library(files, libraries, "libfabric.so"),
        ofi_wrapper=settings.library(files, libraries, "libhccl_ofi_wrapper.so"),
        environment=known,
        ports=settings.listening(files),
        disks={
            use: _disk(files, str(path), live.space)
            for use, path in (("cache", paths.cache_dir()), ("data", paths.data_dir()))
        },
        root_user=live.root_user,
        root=live.root,
    )


def _swap_used(memory: Mapping[str, int]) -> int | None:
    """Return the used swap in KiB; 0 where the free part is not shown."""
    total = memory.get("SwapTotal")
    if total is None:
        return None
    return total - memory.get("SwapFree", total)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that checks read.

    A proxy's password is left out, upper-case proxy names count too.
    """
    found: dict[str, str] = {}
    for name in ENVIRONMENT:
        value = environment.get(name)
        if not value and name.endswith("_proxy"):
            value = environment.get(name.upper())
        if value:
            found[name] = re.sub(r"//[^/@]*@", "//", value)
    return found


def _disk(files: Files, path: str, space: Space) -> Disk:
    free, writable = space(path.lstrip("/")) or (None, None)
    kind = settings.mount_kind(settings.mounts(files), path)
    return Disk(path, free, kind, writable)


def _space(path: Path) -> tuple[int, bool] | None:
    """Return free MiB and writability of the nearest existing folder.

    Return None if the disk does not answer within a short time.
    """
    measured: list[tuple[int, bool] | None] = [None]

    def look() -> None:
        place = path
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            state = os.statvfs(place)
        except OSError:
            return
        measured[0] = (state.f_bavail * state.f_frsize >> 20, os.access(place, os.W_OK))

    in_background(look).join(_DISK_SECONDS)
    return measured[0]


def cpus_without(governors: Mapping[str, str], wanted: str) -> tuple[int, ...]:
    """Return the CPUs whose governor is not ``wanted``, ascending."""
    return tuple(
        sorted(c for word, cpus in governors.items() if word != wanted for c in parse_cpus(cpus))
    )
