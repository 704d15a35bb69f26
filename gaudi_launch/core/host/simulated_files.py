"""Files of a simulated machine, as a kernel, a distribution and hl-smi show them.

Values are those that the host guides require (facts of the doctor's checks), or with ``bad-tuning``
those of a freshly installed system.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gaudi_launch.core.host.accelerators import Accelerator, accelerators
from gaudi_launch.core.host.cpus import format_cpus

RELEASE = "1.22.1"
DRIVER = "1.22.1-97ec1a4"
FIRMWARE = "61.4.2.1"
KERNEL = "6.8.0-57-generic"
# the newest boot image that the 1.21.2 and later SPI firmware of Gaudi2 does not start with
# (release notes)
OLD_FIT = "1.20.1"
# made up: what a card reports as its own limit through hwmon
TEMPERATURE_LIMIT_C = 105
AMD_CPU = "AMD EPYC 9654 96-Core Processor"
_MODULES = (
    "habanalabs",
    "habanalabs_cn",
    "habanalabs_en",
    "habanalabs_ib",
    "habanalabs_compat",
    "ib_uverbs",
    "ib_core",
)
# variants whose values change with the time (simulated_motion)
MOVING = ("busy", "hot", "link-down", "lost")
_DEVICE_TYPE = {
    "gaudi2": "GAUDI2",
    "gaudi2e": "GAUDI2",
    "gaudi3": "GAUDI3",
    "gaudi3-pcie": "GAUDI3 HL-338",
}
# ports between cards: HabanaAI/HCL@54fed3a server types
_PORTS = {
    "gaudi2": tuple(port for port in range(24) if port not in (8, 22, 23)),
    "gaudi2e": (*range(6), *range(10, 22)),
    "gaudi3": tuple(range(21)),
    "gaudi3-pcie": (*range(2, 8), *range(12, 24)),
}

Options = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class SimulatedServer:
    """A two-socket server.

    ``slots`` by hl-smi index: (module, PCI bus); the lower half of the modules is on node 0.
    """

    product: str
    card_name: str
    slots: tuple[tuple[int, str], ...]
    cores_per_socket: int
    cpu_model: str
    smt: bool = True
    sockets: int = 2
    memory_gib: int = 1024

    @property
    def accelerator(self) -> Accelerator:
        return accelerators()[self.product]

    @property
    def cores(self) -> int:
        return self.cores_per_socket * self.sockets

    @property
    def cpu_count(self) -> int:
        return self.cores * (1 + self.smt)

    def node_of(self, module: int) -> int:
        ordered = sorted(m for m, _ in self.slots)
        return ordered.index(module) * self.sockets // len(ordered)

    def cpus_of(self, node: int) -> tuple[int, ...]:
        first = range(node * self.cores_per_socket, (node + 1) * self.cores_per_socket)
        if self.smt:
            return (*first, *(cpu + self.cores for cpu in first))
        return tuple(first)


def bus_of(slot: str) -> str:
    return f"0000:{slot}:00.0"


def pid_of(module: int) -> int:
    """Return the process that uses this module on a ``busy`` machine."""
    return 4100 + module


_STATES = ("busy", "failed", "hot", "capped", "pending-rows")


@dataclass(frozen=True)
class _Tuning:
    """Settings that a host guide changes; the defaults are a fresh system's."""

    arguments: str = "quiet splash"
    memlock: str = "8192"
    nofile: str = "1024"
    numa_balancing: str = "1"
    max_cstate: str = "9"
    hugepages: int = 0
    pstate_status: str = "passive"
    idle_driver: str = "intel_idle"
    scaling_driver: str = "intel_cpufreq"
    governor: str = "powersave"
    idle_states: tuple[str, ...] = ("POLL", "C1", "C1E", "C6")
    runtimes: tuple[str, ...] = ()
    cpu_maker: str = "GenuineIntel"


_FRESH = _Tuning()


_TUNED = _Tuning(
    arguments=(
        "cpufreq.default_governor=performance intel_idle.max_cstate=0 intel_iommu=on iommu=pt"
    ),
    memlock="unlimited",
    nofile="1048576",
    numa_balancing="0",
    max_cstate="0",
    # as the public guide for Gaudi2E servers sets vm.nr_hugepages
    hugepages=15000,
    pstate_status="active",
    idle_driver="acpi_idle",
    scaling_driver="intel_pstate",
    governor="performance",
    idle_states=("POLL", "C1"),
    runtimes=("habana",),
)


# AMD's IOMMU is on by itself, and intel_idle is not loaded
_AMD_ARGUMENTS = "cpufreq.default_governor=performance iommu=pt"


def _tuning_of(options: Options) -> _Tuning:
    tuning = _TUNED
    arguments = _AMD_ARGUMENTS
    if "bad-tuning" in options:
        tuning = _FRESH
        arguments = _FRESH.arguments
    if "amd" not in options:
        return tuning
    return replace(
        tuning,
        arguments=arguments,
        idle_driver="acpi_idle",
        scaling_driver="amd-pstate-epp",
        cpu_maker="AuthenticAMD",
    )


def hl_smi_of(box: SimulatedServer, options: Options) -> dict[str, Any]:
    """Return the data of this machine's hl-smi."""
    cards = [_hl_smi_card(box, options, index) for index in range(len(box.slots))]
    if "no-driver" in options:
        cards = []
    return {"version": RELEASE, "firmware": FIRMWARE, "driver": DRIVER, "cards": cards}


def _hl_smi_card(box: SimulatedServer, options: Options, index: int) -> dict[str, Any]:
    """Return hl-smi's data of one card: an idle one, with what the options change."""
    module, slot = box.slots[index]
    memory = box.accelerator
    total, used = memory.memory_total_mib, memory.memory_idle_mib
    states = {name for name in _STATES if module in options.get(name, ())}
    if "busy" in states:
        used = total * 9 // 10
    fit = RELEASE
    if "old-fit" in options:
        fit = OLD_FIT
    card: dict[str, Any] = {
        "index": index,
        "module_id": module,
        "bus_id": bus_of(slot),
        "name": box.card_name,
        "uuid": f"01P0-SIMULATED-{module:02}",
        "serial": f"AM{module:08}",
        "driver_version": DRIVER,
        "memory.total": total,
        "memory.used": used,
        "memory.free": total - used,
        "temperature.aip": 26 + module,
        "utilization.aip": 0,
        "power.draw": 85 + module,
        "cap": memory.power_w or 0,
        "events": 0,
        "status": "Operational",
        "cpus": format_cpus(box.cpus_of(box.node_of(module))).replace(",", ", "),
        "numa": box.node_of(module),
        "ports": {str(port): "UP" for port in _PORTS[box.product]},
        "process": None,
        "fit": f"hl-{box.product}-{fit}-fw-{FIRMWARE}",
        "spi": f"hl-{box.product}-{RELEASE}-fw-{FIRMWARE}",
        "slowdowns": [],
        "stats.violation.thermal": 0,
        "stats.violation.power": 0,
        "rows_pending": "pending-rows" in states,
        "moves": [name for name in MOVING if module in options.get(name, ())],
    }
    if "busy" in states:
        card |= {"utilization.aip": 80, "power.draw": 420, "process": [pid_of(module), "python3"]}
    if "hot" in states:
        card |= {"temperature.aip": 104, "slowdowns": ["thermal"], "stats.violation.thermal": 1250}
    if "capped" in states:
        card["cap"] = (memory.power_w or 0) * 2 // 3
    if "failed" in states:
        card |= dict.fromkeys(("memory.total", "memory.used", "memory.free"))
        card |= {"temperature.aip": 0, "power.draw": 0, "status": "Disabled"}
        card["ports"] = {str(port): "DOWN" for port in _PORTS[box.product]}
    return card


def files_of(box: SimulatedServer, options: Options) -> tuple[dict[str, str], dict[str, str]]:
    """Return every file of the machine by path, and its symbolic links."""
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    tuning = _tuning_of(options)
    host = f"{box.product}-server"
    command_line = f"BOOT_IMAGE=/vmlinuz-{KERNEL} root=/dev/mapper/root ro {tuning.arguments}"
    limit_lines = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        f"Max open files            {tuning.nofile:<20} {'1048576':<20} files     \n"
        f"Max locked memory         {tuning.memlock:<20} {tuning.memlock:<20} bytes     \n"
    )
    files.update(
        {
            "etc/hostname": host,
            "etc/os-release": (
                'NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n'
            ),
            "etc/passwd": (
                "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000:Ann:/home/ann:/bin/bash\n"
            ),
            "etc/default/grub": (
                f'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="{tuning.arguments}"\n'
            ),
            "proc/cmdline": command_line,
            "proc/version": f"Linux version {KERNEL} (buildd@host) #59-Ubuntu SMP PREEMPT_DYNAMIC",
            "proc/uptime": "86400.00 1000000.00",
            "proc/loadavg": "0.10 0.10 0.10 1/2000 5000",
            "proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n",
            "proc/mounts": (
                "/dev/mapper/root / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw,size=528000000k 0 0\n"
            ),
            "proc/self/limits": limit_lines,
            "proc/sys/kernel/hostname": host,
            "proc/sys/kernel/osrelease": KERNEL,
            "proc/sys/kernel/numa_balancing": tuning.numa_balancing,
            "proc/sys/vm/swappiness": "10",
            "sys/class/dmi/id/sys_vendor": "Simulated",
            "sys/class/dmi/id/product_name": host,
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        }
    )
    _docker(files, options, tuning)
    _driver(files, options, tuning)
    _memory(files, box, tuning)
    _cpus(files, box, options, tuning)
    _network(files)
    _cards(files, box, options)
    _processes(files, links, box, options)
    return {path: _closed(text) for path, text in files.items()}, links


def _closed(text: str) -> str:
    """Return a file's text with a line feed at its end; an empty file stays empty."""
    if not text:
        return text
    return text.removesuffix("\n") + "\n"


def _docker(files: dict[str, str], options: Options, tuning: _Tuning) -> None:
    runtimes = {}
    for name in tuning.runtimes:
        program = f"usr/bin/{name}-container-runtime"
        runtimes[name] = {"path": f"/{program}", "runtimeArgs": []}
        files[program] = ""
    files["etc/docker/daemon.json"] = json.dumps({"runtimes": runtimes}, indent=4)
    files["usr/bin/docker"] = ""
    if "container" in options:
        files[".dockerenv"] = ""


def _driver(files: dict[str, str], options: Options, tuning: _Tuning) -> None:
    loaded: tuple[str, ...] = _MODULES
    if "no-driver" in options:
        loaded = ()
    files["proc/modules"] = "".join(
        f"{name} 1000000 1 - Live 0x0000000000000000\n" for name in (*loaded, "nvme")
    )
    for name in loaded:
        files[f"sys/module/{name}/initstate"] = "live"
        if name.startswith("habanalabs"):
            files[f"sys/module/{name}/version"] = DRIVER
    if "amd" not in options:
        files["sys/module/intel_idle/parameters/max_cstate"] = tuning.max_cstate


def _memory(files: dict[str, str], box: SimulatedServer, tuning: _Tuning) -> None:
    pages = tuning.hugepages
    total = box.memory_gib << 20
    free = total * 9 // 10 - pages * 2048
    files["proc/meminfo"] = (
        f"MemTotal:       {total} kB\nMemFree:        {free} kB\n"
        f"MemAvailable:   {free + (8 << 20)} kB\nSwapTotal:      0 kB\nSwapFree:       0 kB\n"
        f"HugePages_Total: {pages}\nHugePages_Free:  {pages}\nHugePages_Rsvd:        0\n"
        "HugePages_Surp:        0\nHugepagesize:       2048 kB\n"
    )
    files["proc/sys/vm/nr_hugepages"] = str(pages)
    files["sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] = str(pages)
    files["sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"] = str(pages)
    for node, distance in zip(range(box.sockets), ("10 21", "21 10"), strict=True):
        folder = f"sys/devices/system/node/node{node}"
        files[f"{folder}/cpulist"] = format_cpus(box.cpus_of(node))
        files[f"{folder}/distance"] = distance
        files[f"{folder}/meminfo"] = (
            f"Node {node} MemTotal:       {total // box.sockets} kB\n"
            f"Node {node} MemFree:        {free // box.sockets} kB\n"
        )
        for name in ("nr_hugepages", "free_hugepages"):
            files[f"{folder}/hugepages/hugepages-2048kB/{name}"] = str(pages // box.sockets)


def _cpus(files: dict[str, str], box: SimulatedServer, options: Options, tuning: _Tuning) -> None:
    folder = "sys/devices/system/cpu"
    everything = f"0-{box.cpu_count - 1}"
    for name in ("online", "possible", "present"):
        files[f"{folder}/{name}"] = everything
    files[f"{folder}/smt/active"] = str(int(box.smt))
    files[f"{folder}/cpuidle/current_driver"] = tuning.idle_driver
    cpu_model = AMD_CPU
    if "amd" not in options:
        cpu_model = box.cpu_model
        files[f"{folder}/intel_pstate/status"] = tuning.pstate_status
        files[f"{folder}/intel_pstate/no_turbo"] = "0"
    described = []
    for cpu in range(box.cpu_count):
        core = cpu % box.cores
        here = f"{folder}/cpu{cpu}"
        # the second SMT sibling of each core follows all first ones
        siblings = range(core, box.cpu_count, box.cores)
        files[f"{here}/topology/thread_siblings_list"] = format_cpus(siblings)
        files[f"{here}/topology/core_id"] = str(core % box.cores_per_socket)
        files[f"{here}/topology/physical_package_id"] = str(core // box.cores_per_socket)
        files[f"{here}/cpufreq/scaling_governor"] = tuning.governor
        files[f"{here}/cpufreq/scaling_driver"] = tuning.scaling_driver
        files[f"{here}/cpufreq/scaling_available_governors"] = "performance powersave"
        for number, name in enumerate(tuning.idle_states):
            files[f"{here}/cpuidle/state{number}/name"] = name
            files[f"{here}/cpuidle/state{number}/disable"] = "0"
        described.append(
            f"processor\t: {cpu}\nvendor_id\t: {tuning.cpu_maker}\n"
            f"model name\t: {cpu_model}\n"
            f"physical id\t: {core // box.cores_per_socket}\n"
            "flags\t\t: fpu sse2 avx2 avx512f amx_bf16 ht\n"
        )
    files["proc/cpuinfo"] = "\n".join(described)


_LINK_SPEED = {
    "gaudi2": "16.0 GT/s PCIe",
    "gaudi2e": "16.0 GT/s PCIe",
    "gaudi3": "32.0 GT/s PCIe",
    "gaudi3-pcie": "32.0 GT/s PCIe",
}
# of the matrix engine; of the PCIe cards it is assumed
_CLOCK_MHZ = {"gaudi2": "1650", "gaudi2e": "1650", "gaudi3": "1600", "gaudi3-pcie": "1600"}


def _network(files: dict[str, str]) -> None:
    def word(address: str) -> str:
        return f"{struct.unpack('<I', socket.inet_aton(address))[0]:08X}"

    head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    default = f"ens8f0\t00000000\t{word('10.20.30.1')}\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    local = (
        f"ens8f0\t{word('10.20.30.0')}\t00000000\t0001\t0\t0\t0\t{word('255.255.255.0')}\t0\t0\t0\n"
    )
    files["proc/net/route"] = head + default + local
    files["proc/net/fib_trie"] = (
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n"
        "Local:\n  +-- 10.20.30.0/24 2 0 2\n     |-- 10.20.30.40\n        /32 host LOCAL\n"
        "     |-- 127.0.0.1\n        /32 host LOCAL\n"
    )
    files["proc/net/tcp"] = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
        "timeout inode\n"
        "   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0       "
        " 0 1 1\n"
    )
    files["sys/class/net/ens8f0/operstate"] = "up"
    files["sys/class/net/ens8f1/operstate"] = "down"
    files["sys/class/net/lo/operstate"] = "unknown"


def _cards(files: dict[str, str], box: SimulatedServer, options: Options) -> None:
    for index, (module, slot) in enumerate(box.slots):
        pci = f"sys/bus/pci/devices/{bus_of(slot)}"
        _put(files, pci, _pci_attributes(box, module))
        if "no-driver" in options:
            continue
        files[f"dev/accel/accel{index}"] = ""
        files[f"dev/accel/accel_controlD{index}"] = ""
        files[f"sys/class/infiniband/hbl_{index}/node_type"] = "1: CA"
        if "no-sysfs" in options:
            continue
        attributes = {
            "vendor": "0x1da3",
            "device": f"0x{box.accelerator.pci_ids[0]}",
            "module_id": str(module),
            "pci_addr": bus_of(slot),
            "device_type": _DEVICE_TYPE[box.product],
            "driver_ver": DRIVER,
            "status": "Operational",
            "cpucp_ver": f"hl-{box.product}-{RELEASE}-fw-{FIRMWARE}",
            "max_power": str((box.accelerator.power_w or 0) * 1000),
            "hard_reset_cnt": "0",
            "clk_max_freq_mhz": _CLOCK_MHZ[box.product],
        }
        if module in options.get("failed", ()):
            attributes["status"] = "Disabled"
        _put(files, f"sys/class/accel/accel{index}/device", attributes)


def _put(files: dict[str, str], folder: str, texts: Mapping[str, str]) -> None:
    """Add files of one folder by name."""
    files.update({f"{folder}/{name}": text for name, text in texts.items()})


def _pci_attributes(box: SimulatedServer, module: int) -> dict[str, str]:
    node = box.node_of(module)
    return {
        "vendor": "0x1da3",
        "device": f"0x{box.accelerator.pci_ids[0]}",
        "numa_node": str(node),
        "local_cpulist": format_cpus(box.cpus_of(node)),
        "current_link_speed": _LINK_SPEED[box.product],
        "current_link_width": "16",
        "max_link_speed": _LINK_SPEED[box.product],
        "max_link_width": "16",
        "hwmon/hwmon0/temp1_crit": str(TEMPERATURE_LIMIT_C * 1000),
        # made up: the highest since the driver was loaded
        "hwmon/hwmon0/temp1_highest": "62000",
        "hwmon/hwmon0/power1_input_highest": "540000000",
        # the last line of each is the sum: linux Documentation/ABI, sysfs-bus-pci-devices-aer
        "aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 0",
        "aer_dev_fatal": "DLP 0\nTOTAL_ERR_FATAL 0",
        "aer_dev_nonfatal": "DLP 0\nTOTAL_ERR_NONFATAL 0",
    }


def _processes(
    files: dict[str, str], links: dict[str, str], box: SimulatedServer, options: Options
) -> None:
    def process(pid: int, command: str, words: str, user: int) -> None:
        files[f"proc/{pid}/comm"] = command
        files[f"proc/{pid}/cmdline"] = words.replace(" ", "\0") + "\0\n"
        files[f"proc/{pid}/status"] = f"Name:\t{command}\nUid:\t{user}\t{user}\t{user}\t{user}\n"

    process(1, "systemd", "/sbin/init", 0)
    files["proc/1/cgroup"] = "0::/init.scope"
    files["proc/1/limits"] = files["proc/self/limits"]
    links["proc/1/fd/0"] = "/dev/null"
    for index, (module, _) in enumerate(box.slots):
        if module in options.get("busy", ()) and "no-driver" not in options:
            pid = pid_of(module)
            process(pid, "python3", "python3 -m vllm.entrypoints.openai.api_server", 1000)
            links[f"proc/{pid}/fd/7"] = f"/dev/accel/accel{index}"
            links[f"proc/{pid}/fd/8"] = f"/dev/accel/accel_controlD{index}"
