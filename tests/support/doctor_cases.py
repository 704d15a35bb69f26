"""Changes of machines, each for a check: the goldens state what it finds there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from gaudi_launch.core.base.locks import Holder
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.findings import Deviation, DoctorFacts, Pins
from gaudi_launch.core.doctor.runner import CHECKS, run
from gaudi_launch.core.host.hardware import NumaNode
from gaudi_launch.core.host.hl_smi import HlSmiOutput
from gaudi_launch.core.host.host_config import Disk
from tests.support import doctor_machines as m

# a line of the shell in a step for people
IN_A_SENTENCE = re.compile(r"run: (.+?); then reboot|installer: (?=wget)(.+)|instead: (?=wget)(.+)")
BY_ID = {check.id: check for check in CHECKS}
BUSY = {"busy": True, "busy_because": "process-table", "holders": (Holder(4103, "python3"),)}
VM = m.host(virtual_machine=True)
NODES_2 = m.wants(nodes=2)


def no_cards(facts: DoctorFacts) -> DoctorFacts:
    return replace(facts, host=replace(facts.host, cards=(), driver_version=None, product=None))


def laptop(facts: DoctorFacts) -> DoctorFacts:
    return m.settings(pci_devices=(), modules=())(no_cards(facts))


def link_down(port: int) -> m.Change:
    def ask(arguments: Sequence[str]) -> HlSmiOutput:
        return HlSmiOutput(
            "".join(f"port {p}:\t{'DOWN' if p == port else 'UP'}\n" for p in range(24))
        )

    return lambda facts: replace(facts, ask=ask)


# (check, machine, what is different there)
CASES: list[tuple[str, str, m.Change]] = [
    ("cpu.governor", "hls2+bad-tuning", m.both()),
    ("cpu.governor", "hls2", m.settings(governors={"performance": "0-3,8", "powersave": "4-7"})),
    ("cpu.governor", "hls2", m.settings(governors={})),
    ("cpu.pstate_driver", "hls2", m.settings(scaling_drivers={"acpi-cpufreq": "0-159"})),
    ("cpu.pstate_driver", "hls2", m.settings(scaling_drivers={})),
    ("cpu.idle_states", "hls2+bad-tuning", m.both()),
    ("cpu.idle_states", "hls2", m.settings(idle_states={"POLL": "0-159", "C6": ""})),
    ("cpu.idle_states", "hls2", VM),
    ("cpu.idle_states", "hls2", m.settings(idle_states={})),
    ("cpu.max_cstate", "hls2+bad-tuning", m.both()),
    ("cpu.max_cstate", "hls2", m.settings(max_cstate=None)),
    ("cpu.turbo", "hls2", m.settings(no_turbo=1)),
    ("cpu.turbo", "hls2", m.settings(no_turbo=None)),
    ("kernel.version", "hls2", m.host(kernel="4.18.0-553.el8")),
    ("kernel.version", "hls2", m.host(kernel="7.3.1")),
    ("kernel.version", "hls2", m.host(kernel=None)),
    ("kernel.os", "hls2", m.settings(os_id="arch", os_version="rolling")),
    ("kernel.os", "hls2", m.settings(os_version="28.04")),
    ("kernel.os", "hls2", m.settings(os_id=None)),
    ("kernel.command_line", "hls2+bad-tuning", m.both()),
    ("kernel.command_line", "hls2", m.settings(command_line=None)),
    ("kernel.iommu", "hls2+bad-tuning", m.both()),
    ("kernel.iommu", "hls2+bad-tuning", m.host(kernel="5.15.0-119-generic")),
    ("kernel.iommu", "hls2", m.settings(command_line=None)),
    ("kernel.iommu", "hls2", laptop),
    ("kernel.iommu", "hls2+amd", m.both()),
    ("kernel.iommu", "hls2+amd", m.settings(command_line=("ro",))),
    ("kernel.grub", "hls2", m.settings(command_line=("ro", "iommu=pt"))),
    ("kernel.grub", "hls2", m.settings(grub=None)),
    ("kernel.numa_balancing", "hls2+bad-tuning", m.both()),
    ("kernel.numa_balancing", "hls2", m.settings(numa_balancing=None)),
    ("kernel.swap", "hls2", m.settings(swap_total_mib=8192, swap_used_mib=4096)),
    ("kernel.swap", "hls2", m.settings(swap_total_mib=None)),
    ("memory.hugepages", "hls2+bad-tuning", m.both()),
    ("memory.hugepages", "hls2", m.settings(hugepages_total=8000)),
    ("memory.hugepages", "hls2", m.wants(hugepages=32768)),
    ("memory.hugepages", "hls2", m.settings(hugepages_total=8, hugepage_kib=1 << 20)),
    ("memory.hugepages", "hls2", m.settings(hugepages_total=32, hugepage_kib=1 << 20)),
    ("memory.hugepages", "hls2", m.settings(hugepages_total=None)),
    ("memory.hugepages", "hls2", m.both(m.settings(hugepages_total=1875), m.wants(cards=1))),
    ("memory.hugepages", "hls2", m.both(m.settings(hugepages_total=1874), m.wants(cards=1))),
    ("memory.hugepages", "hls2", m.both(m.settings(hugepages_total=3749), m.wants(modules=(2, 3)))),
    ("memory.hugepages", "hls2", m.both(m.settings(hugepages_total=1875), m.wants(cards=8))),
    ("memory.hugepages", "hls2", m.settings(hugepages_total=1875)),
    ("memory.hugepages_free", "hls2", m.settings(hugepages_free=0)),
    ("memory.hugepages_free", "hls2", m.settings(hugepages_free=1)),
    ("memory.hugepages_free", "hls2", m.settings(hugepages_free=1874)),
    ("memory.hugepages_free", "hls2", m.settings(hugepages_free=1875)),
    ("memory.hugepages_free", "hls2", m.settings(hugepages_free=4, hugepage_kib=1 << 20)),
    ("memory.hugepages_free", "hls2", m.both(m.settings(hugepages_free=1875), m.wants(cards=2))),
    ("memory.hugepages_free", "hls2+bad-tuning", m.both()),
    ("memory.hugepages_free", "hls2", m.settings(hugepages_free=None)),
    (
        "memory.hugepages_nodes",
        "hls2",
        m.host(
            numa_nodes=(
                NumaNode(0, (0,), hugepages_total=15000),
                NumaNode(1, (1,), hugepages_total=0),
            )
        ),
    ),
    ("memory.hugepages_nodes", "hls2", m.host(numa_nodes=())),
    ("memory.transparent_hugepages", "hls2", m.settings(transparent_hugepages=None)),
    ("memory.memlock", "hls2", m.settings(memlock="8192")),
    ("memory.memlock", "hls2", m.both(m.settings(memlock="8192"), NODES_2)),
    ("memory.memlock", "hls2", m.settings(memlock=None)),
    ("memory.nofile", "hls2", m.settings(nofile="1024")),
    ("memory.nofile", "hls2", m.settings(nofile=None)),
    ("memory.shm", "hls2", m.settings(shm_mib=64)),
    ("memory.shm", "hls2", m.settings(shm_mib=None)),
    ("memory.available", "hls2", m.host(memory_available_mib=8192)),
    ("memory.available", "hls2", m.weights(bytes=None)),
    ("driver.loaded", "hls2+no-driver", m.both()),
    ("driver.loaded", "hls2+no-driver", m.settings(module_built=False)),
    ("driver.loaded", "hls2", laptop),
    ("driver.modules", "hls2", m.settings(modules=("habanalabs",))),
    ("driver.modules", "hls2+no-driver", m.both()),
    ("driver.modules", "hls2", m.settings(modules=None)),
    ("driver.hl_smi", "hls2", m.host(hl_smi_version="1.21.0")),
    ("driver.hl_smi", "hls2", m.host(hl_smi_version="1.22.9")),
    ("driver.hl_smi", "hls2+no-hl-smi", m.both()),
    ("driver.firmware", "hls2", m.every_card(firmware="hl-gaudi2-1.20.0-fw-58.1.1")),
    ("driver.firmware", "hls2", m.cards(firmware="hl-gaudi2-1.21.0-fw-59.1.1")),
    ("driver.firmware", "hls2", m.every_card(firmware=None)),
    ("driver.packages", "hls2", m.settings(packages={"habanalabs-dkms": "1.23.0-695"})),
    ("driver.packages", "hls2+no-driver", m.both()),
    ("driver.missing_packages", "hls2", m.without_packages("habanalabs-firmware-tools")),
    ("driver.missing_packages", "hls2", m.without_packages("habanalabs-graph")),
    ("driver.missing_packages", "hls2", m.settings(packages={})),
    (
        "driver.missing_packages",
        "hls2",
        m.both(m.without_packages("habanalabs-graph", "habanalabs-thunk"), m.wants(container=True)),
    ),
    (
        "driver.missing_packages",
        "hls2",
        m.both(m.without_packages("habanalabs-container-runtime"), m.wants(container=True)),
    ),
    ("driver.firmware_pair", "hls2+old-fit", m.both()),
    ("driver.firmware_pair", "gaudi2e-8+old-fit", m.both()),
    ("driver.firmware_pair", "gaudi3-oam+old-fit", m.both()),
    ("driver.firmware_pair", "hls2+no-hl-smi", m.both()),
    ("driver.user_space", "hls2", m.engine(torch_plugin="1.21.0.555")),
    ("driver.user_space", "hls2", m.host(driver_version="1.24.0-abc")),
    ("driver.user_space", "hls2", m.engine(torch_plugin=None)),
    ("driver.image", "hls2", m.wants(image="gaudi-docker/1.21.0/ubuntu24.04/habanalabs/x:latest")),
    ("driver.image", "hls2", m.host(driver_version="1.24.0-abc")),
    ("driver.image", "hls2", m.wants(image="my/own:latest")),
    ("cards.present", "hls2", laptop),
    ("cards.present", "hls2+no-driver", m.both()),
    ("cards.present", "hls2", lambda f: m.host(cards=f.host.cards[:7])(f)),
    ("cards.present", "hls2", lambda f: m.settings(pci_devices=None)(no_cards(f))),
    ("cards.present", "hls2", m.wants(gaudi=False)),
    ("cards.count", "hls2", lambda f: m.host(cards=f.host.cards[:7])(f)),
    ("cards.count", "gaudi2e-4", m.wants(cards=8)),
    ("cards.count", "hls2", m.host(product=None)),
    ("cards.nodes", "hls2", m.settings(device_nodes={})),
    (
        "cards.nodes",
        "hls2",
        lambda f: m.settings(device_nodes=dict.fromkeys(f.config.device_nodes, False))(f),
    ),
    ("cards.nodes", "hls2", m.settings(device_nodes={}, command_line=None)),
    ("cards.status", "hls2+failed=3", m.both()),
    ("cards.status", "hls2+failed=3", m.wants(modules=(2, 3))),
    ("cards.status", "hls2+failed=3", m.wants(modules=(0, 1))),
    ("cards.status", "hls2", m.every_card(status=None)),
    ("cards.temperature", "hls2+failed=3", m.both()),
    ("cards.temperature", "hls2+no-hl-smi", m.both()),
    ("cards.temperature", "hls2+hot=3", m.both()),
    ("cards.temperature", "hls2", m.cards(temperature_c=100)),
    ("cards.temperature", "hls2", m.cards(temperature_c=99)),
    ("cards.throttling", "hls2+hot=3", m.both()),
    # a limit that the card itself reports, though it has not slowed down yet
    ("cards.throttling", "hls2", m.cards(temperature_c=105)),
    ("cards.throttling", "hls2", m.cards(temperature_c=104)),
    ("cards.throttling", "hls2+no-hl-smi", m.both()),
    ("cards.rows", "hls2+pending-rows=3,5", m.both()),
    ("cards.rows", "hls2+no-hl-smi", m.both()),
    ("cards.power_cap", "hls2+capped=3", m.both()),
    ("cards.power_cap", "hls2+no-hl-smi", m.both()),
    ("cards.power_cap", "hls2", m.every_card(product="HL-225D")),
    ("cards.power_cap", "hls2", m.host(product=None)),
    ("cards.memory", "hls2", m.cards(memory_total_mib=65536)),
    ("cards.memory", "hls2+no-hl-smi", m.both()),
    ("cards.events", "hls2", m.cards(uncorrectable_events=21)),
    ("cards.events", "hls2+no-hl-smi", m.both()),
    ("cards.pcie", "hls2", m.cards(pcie_width=8)),
    ("cards.pcie", "hls2", m.cards(pcie_speed="2.5 GT/s PCIe")),
    ("cards.pcie", "hls2+no-sysfs", m.every_card(pcie_width=None)),
    ("cards.free", "hls2+busy=3,5", m.both()),
    ("cards.free", "hls2+busy=3,5", m.wants(modules=(2, 3))),
    ("cards.free", "hls2+busy=3,5", m.wants(cards=8)),
    ("cards.free", "hls2", m.every_card(**BUSY)),
    ("cards.free", "hls2", m.every_card(busy=None)),
    ("cards.visible", "hls2", m.settings(environment={"HABANA_RUNTIME_ERROR": "no such device"})),
    ("cards.visible", "hls2", m.settings(environment={"HABANA_VISIBLE_MODULES": "0,9"})),
    ("cards.visible", "hls2+container", lambda f: replace(f, live=True)),
    ("cards.links", "hls2", link_down(3)),
    ("cards.links", "hls2", link_down(22)),
    ("cards.links", "hls2", m.both(link_down(3), m.wants(cards=1))),
    ("cards.links", "hls2+no-hl-smi", m.both()),
    ("network.interfaces", "hls2", m.both(NODES_2, m.host(interfaces=()))),
    ("network.interfaces", "gaudi2e-8", m.both(m.wants(cards=8), m.host(interfaces=()))),
    ("network.libfabric", "hls2", NODES_2),
    (
        "network.libfabric",
        "hls2",
        m.both(NODES_2, m.settings(libfabric="/usr/lib/libfabric.so.1.11.0")),
    ),
    ("network.libfabric", "hls2", m.both(NODES_2, m.settings(libfabric="/usr/lib/libfabric.so.1"))),
    (
        "network.libfabric",
        "hls2",
        m.both(NODES_2, m.settings(libfabric="/usr/lib/libfabric.so.1.22.0")),
    ),
    ("network.ofi_wrapper", "gaudi3-pcie", m.wants(cards=8)),
    ("network.socket_interface", "hls2", m.settings(environment={"HCCL_SOCKET_IFNAME": "eth7"})),
    ("network.socket_interface", "hls2", m.settings(environment={"GLOO_SOCKET_IFNAME": "ens8f1"})),
    ("network.socket_interface", "hls2", m.settings(environment={"HCCL_SOCKET_IFNAME": "ens"})),
    ("network.socket_interface", "hls2", m.settings(environment={"HCCL_SOCKET_IFNAME": "^docker"})),
    ("network.port", "hls2", m.settings(ports=(22, 8000))),
    ("network.port", "hls2", m.settings(ports=None)),
    (
        "network.proxy",
        "hls2",
        m.settings(environment={"http_proxy": "http://p:1", "no_proxy": "corp"}),
    ),
    (
        "network.proxy",
        "hls2",
        m.settings(environment={"http_proxy": "http://p:1", "no_proxy": "localhost, 127.0.0.1"}),
    ),
    ("container.engine", "hls2", m.both(m.settings(programs={}), m.wants(container=False))),
    ("container.engine", "hls2", m.both(m.settings(programs={}), m.wants(container=True))),
    ("container.runtime", "hls2+bad-tuning", m.wants(container=False)),
    ("container.runtime", "hls2+bad-tuning", m.wants(container=True)),
    ("container.runtime", "hls2", m.settings(runtime_programs=())),
    (
        "container.runtime",
        "hls2",
        m.settings(docker_runtimes=None, docker_problem="Expecting value"),
    ),
    ("container.runtime", "hls2", m.settings(docker_runtimes=None, docker_problem="unreadable")),
    ("container.runtime", "hls2+container", m.both()),
    ("engine.present", "hls2", m.engine(problem="no answer")),
    ("engine.present", "hls2", m.engine(vllm=None)),
    ("engine.pair", "hls2", m.engine(plugin="0.19.1")),
    ("engine.pair", "hls2", m.host(product="gaudi1")),
    ("engine.pair", "hls2", m.engine(plugin="0.99.0")),
    ("engine.pair", "hls2", m.engine(vllm=None)),
    ("engine.pair", "hls2", m.engine(vllm=None, optimum="1.19.1")),
    ("engine.pair", "hls2", m.engine(vllm=None, optimum="1.15.0")),
    ("engine.pair", "hls2", m.engine(optimum="1.15.0")),
    ("engine.pair", "hls2", m.engine(optimum="9.9.0")),
    ("engine.torch", "hls2", m.engine(torch="2.9.0")),
    ("engine.torch", "hls2", m.engine(torch_plugin="1.99.0")),
    ("engine.torch", "hls2", m.engine(torch="2.11.0", torch_plugin="1.24.1.482")),
    ("engine.torch", "hls2", m.engine(torch="2.10.0", torch_plugin="1.24.1.482")),
    ("engine.torch", "hls2", m.engine(torch="2.13.0", torch_plugin="1.24.2.10")),
    ("engine.torch", "hls2", m.engine(torch="2.10.0", torch_plugin="1.24.0.460")),
    # a patch without a line is not judged by 1.24
    ("engine.torch", "hls2", m.engine(torch="2.14.0", torch_plugin="1.24.3.1")),
    ("engine.torch", "hls2", m.engine(torch="2.10.0", torch_plugin="1.24.0.1007")),
    ("engine.torch", "hls2", m.engine(torch="2.11.0", torch_plugin="1.24.0.1007")),
    ("engine.torch", "hls2", m.engine(torch="2.11.0", torch_plugin="1.24")),
    ("engine.torch", "hls2", m.engine(torch="2.10.0", torch_plugin="1.24")),
    ("engine.torch", "hls2", m.engine(torch=None)),
    ("engine.bucket_limit", "hls2", m.engine(bucket_limit=False)),
    (
        "engine.bucket_limit",
        "hls2",
        m.both(
            m.engine(bucket_limit=False),
            m.settings(environment={"VLLM_PROMPT_SEQ_BUCKET_LIMIT": "0.25"}),
        ),
    ),
    ("engine.bucket_limit", "hls2", m.engine(bucket_limit=None)),
    ("engine.gaudi_packages", "hls2", m.engine(packages=None)),
    ("engine.gaudi_packages", "hls2", m.engine(plugin=None, extension=None, torch_plugin=None)),
    ("engine.gaudi_packages", "hls2", m.engine(packages=frozenset({"pyhlml"}))),
    ("engine.gaudi_packages", "hls2", m.engine(packages=frozenset({"habana-torch-plugin"}))),
    ("engine.conditions", "hls2", m.engine(conditions=(message("engines.problem_mixed_grammar"),))),
    ("engine.pins", "hls2", m.engine(pins=None)),
    (
        "engine.pins",
        "hls2",
        m.engine(pins=Pins("f.txt", (Deviation("fastapi", "0.137.1", "0.116.1"),))),
    ),
    ("weights.complete", "hls2", m.weights(problem="No such file or directory")),
    ("weights.complete", "hls2", m.weights(has_config=False)),
    ("weights.complete", "hls2", m.weights(missing=("model-00002-of-00004.safetensors",))),
    ("weights.sizes", "hls2", m.weights(damaged=("model-00001-of-00004.safetensors",))),
    ("weights.sizes", "hls2", m.weights(problem="Permission denied")),
    ("cache.space", "hls2", m.settings(disks={"cache": Disk("/c", 5000, "ext4", True)})),
    ("cache.space", "hls2", m.settings(disks={"cache": Disk("/c", 500, "ext4", True)})),
    ("cache.space", "hls2", m.settings(disks={"cache": Disk("/c", 50_000, "ext4", False)})),
    ("cache.space", "hls2", m.settings(disks={})),
    ("cache.filesystem", "hls2", m.settings(disks={"cache": Disk("/c", 50_000, "nfs4", True)})),
    ("cache.filesystem", "hls2", m.settings(disks={})),
    ("cache.conversion", "hls2", m.settings(disks={"data": Disk("/d", 100, "ext4", True)})),
    ("cache.conversion", "hls2", m.settings(disks={})),
    ("gateway.program", "hls2", m.both()),
    ("gateway.program", "hls2", m.gateway("HAProxy version 2.8.25-5cf5d0683 2026/06/26")),
    ("gateway.program", "hls2", m.gateway("HAProxy version 2.6.12")),
    ("gateway.program", "hls2", m.gateway("")),
]


def remedies_commands() -> dict[str, str]:
    """Return the lines of remedies for a shell, and the check of each."""
    found: dict[str, str] = {}
    for id, name, change in CASES:
        for remedy in (each.remedy for each in run([BY_ID[id]], change(m.facts(name)))):
            if remedy is None:
                continue
            sentences = (step.render("en") for step in remedy.steps)
            told = ["".join(parts) for each in sentences for parts in IN_A_SENTENCE.findall(each)]
            for line in (*remedy.commands, *remedy.persist, *told):
                found.setdefault(line, id)
    return found
