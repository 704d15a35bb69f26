"""The kernel: command line, NUMA balancing, swap, tested versions."""

from __future__ import annotations

import re

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor import guides
from gaudi_launch.core.doctor.cpu import G2E
from gaudi_launch.core.doctor.findings import (
    DoctorFacts,
    Remedy,
    Verdict,
    check,
    dotted,
    release_of,
)
from gaudi_launch.core.doctor.releases import Version, releases

_GOVERNOR = "cpufreq.default_governor=performance"
# arguments that guides require; only these are compared between grub and the running kernel
_OURS = re.compile(
    r"cpufreq\.default_governor=|intel_idle\.max_cstate=|intel_iommu=|amd_iommu=|iommu=|hugepages="
)
# any small amount: a server that swaps a little at boot is not unreliable
_SWAP_MIB = 1024


@check("kernel.version", "docs: Support Matrix, per release", ("gaudi", "host"))
def _version(facts: DoctorFacts) -> Verdict:
    kernel = release_of(facts.host.kernel)
    if kernel is None:
        return Verdict.unreadable("/proc/sys/kernel/osrelease")
    table = releases()
    installed = _installed(facts)
    known = table.kernels.get(installed, {}) if installed else {}
    wanted = known.get(guides.distribution(facts)) or min(
        known.values(), default=table.oldest_kernel
    )
    shown, expected = str(facts.host.kernel), f">= {dotted(wanted)}"
    if kernel >= wanted:
        return Verdict.ok(shown, expected)
    remedy = Remedy(message("doctor.kernel.version.remedy"), reboot=True, root=True)
    release = dotted(installed) if installed else "-"
    return Verdict.warn("doctor.kernel.version.warn", shown, expected, remedy, release=release)


@check("kernel.os", "docs: Support Matrix, per release", ("gaudi",))
def _os(facts: DoctorFacts) -> Verdict:
    config, table = facts.config, releases()
    if config.os_id is None:
        return Verdict.unreadable("/etc/os-release")
    shown = facts.host.os_name or guides.distribution(facts)
    expected = ", ".join(sorted(table.distributions))
    if guides.distribution(facts) in table.distributions:
        return Verdict.ok(shown, expected)
    known = [
        release_of(name) for name in table.distributions if name.startswith(f"{config.os_id}-")
    ]
    ours = release_of(config.os_version)
    if known and ours and ours > min(version for version in known if version):
        return Verdict.ok(shown, expected, "doctor.kernel.os.newer")
    return Verdict.warn(
        "doctor.kernel.os.warn",
        shown,
        expected,
        Remedy(message("doctor.kernel.os.remedy")),
        release=dotted(_installed(facts) or releases().newest),
    )


@check("kernel.command_line", f"{G2E} 1.1.2", ("host",))
def _command_line(facts: DoctorFacts) -> Verdict:
    words = facts.config.command_line
    if words is None:
        return Verdict.unreadable("/proc/cmdline", _GOVERNOR)
    if _GOVERNOR in words:
        return Verdict.ok(_GOVERNOR, _GOVERNOR)
    if facts.host.virtual_machine and not facts.config.governors:
        return Verdict.unknown("doctor.virtual", "", _GOVERNOR)
    found = next((word for word in words if word.startswith("cpufreq.default_governor=")), "-")
    remedy = guides.boot("doctor.kernel.command_line.remedy", (_GOVERNOR,))
    return Verdict.warn("doctor.kernel.command_line.warn", found, _GOVERNOR, remedy)


@check("kernel.iommu", "docs: Driver Installation (kernel 6.8); AMD: assumed", ("gaudi", "host"))
def _iommu(facts: DoctorFacts) -> Verdict:
    words, kernel = facts.config.command_line, release_of(facts.host.kernel)
    if words is None or kernel is None:
        return Verdict.unreadable("/proc/cmdline", "iommu=pt")
    found = " ".join(word for word in words if "iommu" in word) or "-"
    if kernel < (6, 8):
        return Verdict.ok(found, id="doctor.kernel.iommu.older", kernel=facts.host.kernel)
    if facts.amd:
        if "iommu=pt" in words:
            return Verdict.ok(found, "iommu=pt")
        remedy = guides.boot("doctor.kernel.iommu.remedy", ("iommu=pt",))
        return Verdict.warn(
            "doctor.kernel.iommu.amd", found, "iommu=pt", remedy, kernel=facts.host.kernel
        )
    vendor = "intel_iommu=on"
    wanted = f"{vendor} iommu=pt"
    if "iommu=pt" in words and vendor in words:
        return Verdict.ok(found, wanted)
    # without passthrough the engine runs and gives wrong answers, so this is more than a question
    # of speed
    missing = tuple(word for word in (vendor, "iommu=pt") if word not in words)
    remedy = guides.boot("doctor.kernel.iommu.remedy", missing)
    return Verdict.fail("doctor.kernel.iommu.fail", found, wanted, remedy, kernel=facts.host.kernel)


def _installed(facts: DoctorFacts) -> Version | None:
    return release_of(facts.host.driver_version)


@check("kernel.grub", f"{G2E} 1.1.2", ("host",))
def _grub(facts: DoctorFacts) -> Verdict:
    grub, running = facts.config.grub, facts.config.command_line
    if grub is None:
        return Verdict.unreadable("/etc/default/grub")
    if running is None:
        return Verdict.unreadable("/proc/cmdline")
    waiting = [word for word in grub if _OURS.match(word) and word not in running]
    if not waiting:
        return Verdict.ok(" ".join(word for word in grub if _OURS.match(word)) or "-")
    remedy = Remedy(message("doctor.kernel.grub.remedy"), reboot=True, root=True)
    return Verdict.warn("doctor.kernel.grub.warn", "-", " ".join(waiting), remedy)


@check("kernel.numa_balancing", f"{G2E} 1.1.2; HabanaAI/vllm-fork scripts", ("host",))
def _numa_balancing(facts: DoctorFacts) -> Verdict:
    found = facts.config.numa_balancing
    if found is None:
        return Verdict.unreadable("/proc/sys/kernel/numa_balancing", "0")
    if found == 0:
        return Verdict.ok("0", "0")
    remedy = Remedy(
        message("doctor.kernel.numa_balancing.remedy"),
        commands=("sudo sysctl -w kernel.numa_balancing=0",),
        persist=(
            (
                "echo 'kernel.numa_balancing = 0' | sudo tee "
                "/etc/sysctl.d/90-gaudi-launch-numa-balancing.conf"
            ),
        ),
        root=True,
        fix="numa_balancing",
    )
    return Verdict.warn("doctor.kernel.numa_balancing.warn", str(found), "0", remedy)


@check("kernel.swap", "assumed: swapped-out engine memory slows every step", ("host",))
def _swap(facts: DoctorFacts) -> Verdict:
    total, used = facts.config.swap_total_mib, facts.config.swap_used_mib
    if total is None or used is None:
        return Verdict.unreadable("/proc/meminfo")
    shown, expected = f"{used:,} / {total:,} MiB", f"< {_SWAP_MIB:,} MiB"
    if used < _SWAP_MIB:
        return Verdict.ok(shown, expected)
    remedy = Remedy(
        message("doctor.kernel.swap.remedy"),
        commands=("sudo swapoff -a", "sudo swapon -a"),
        root=True,
    )
    return Verdict.warn("doctor.kernel.swap.warn", shown, expected, remedy)
