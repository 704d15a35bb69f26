"""The kernel: command line, NUMA balancing, swap, tested versions."""

from __future__ import annotations

import re

from gaudi_launch.doctor import guides
from gaudi_launch.doctor.cpu import G2E
from gaudi_launch.doctor.findings import (
    Check,
    DoctorFacts,
    Remedy,
    Verdict,
    dotted,
    fail,
    ok,
    release_of,
    unknown,
    unreadable,
    warn,
)
from gaudi_launch.doctor.releases import Version, releases
from gaudi_launch.messages import message

_GOVERNOR = "cpufreq.default_governor=performance"
# arguments that guides require; only these are compared between grub and the running kernel
_OURS = re.compile(
    r"cpufreq\.default_governor=|intel_idle\.max_cstate=|intel_iommu=|amd_iommu=|iommu=|hugepages="
)
# any small amount: a server that swaps a little at boot is not unreliable
_SWAP_MIB = 1024


def _command_line(facts: DoctorFacts) -> Verdict:
    words = facts.config.command_line
    if words is None:
        return unreadable("/proc/cmdline", _GOVERNOR)
    if _GOVERNOR in words:
        return ok(_GOVERNOR, _GOVERNOR)
    if facts.host.virtual_machine and not facts.config.governors:
        return unknown("doctor.virtual", "", _GOVERNOR)
    found = next((word for word in words if word.startswith("cpufreq.default_governor=")), "-")
    remedy = guides.boot(facts, "doctor.kernel.command_line.remedy", (_GOVERNOR,))
    return warn("doctor.kernel.command_line.warn", found, _GOVERNOR, remedy)


def _iommu(facts: DoctorFacts) -> Verdict:
    words, kernel = facts.config.command_line, release_of(facts.host.kernel)
    if words is None or kernel is None:
        return unreadable("/proc/cmdline", "iommu=pt")
    found = " ".join(word for word in words if "iommu" in word) or "-"
    if kernel < (6, 8):
        return ok(found, id="doctor.kernel.iommu.older", kernel=facts.host.kernel)
    if facts.amd:
        return _iommu_amd(facts, words, found)
    vendor = "intel_iommu=on"
    wanted = f"{vendor} iommu=pt"
    if "iommu=pt" in words and vendor in words:
        return ok(found, wanted)
    # without passthrough the engine runs and gives wrong answers, so this is more than a question
    # of speed
    missing = tuple(word for word in (vendor, "iommu=pt") if word not in words)
    remedy = guides.boot(facts, "doctor.kernel.iommu.remedy", missing)
    return fail("doctor.kernel.iommu.fail", found, wanted, remedy, kernel=facts.host.kernel)


def _iommu_amd(facts: DoctorFacts, words: tuple[str, ...], found: str) -> Verdict:
    """Return the verdict for AMD, whose IOMMU is on by default.

    ``amd_iommu=on`` does not exist (linux admin-guide/kernel-parameters). That passthrough is
    needed there too is assumed: the vendor's page names Intel processors only.
    """
    if "iommu=pt" in words:
        return ok(found, "iommu=pt")
    remedy = guides.boot(facts, "doctor.kernel.iommu.remedy", ("iommu=pt",))
    return warn("doctor.kernel.iommu.amd", found, "iommu=pt", remedy, kernel=facts.host.kernel)


def _grub(facts: DoctorFacts) -> Verdict:
    grub, running = facts.config.grub, facts.config.command_line
    if grub is None:
        return unreadable("/etc/default/grub")
    if running is None:
        return unreadable("/proc/cmdline")
    waiting = [word for word in grub if _OURS.match(word) and word not in running]
    if not waiting:
        return ok(" ".join(word for word in grub if _OURS.match(word)) or "-")
    remedy = Remedy(message("doctor.kernel.grub.remedy"), reboot=True, root=True)
    return warn("doctor.kernel.grub.warn", "-", " ".join(waiting), remedy)


def _numa_balancing(facts: DoctorFacts) -> Verdict:
    found = facts.config.numa_balancing
    if found is None:
        return unreadable("/proc/sys/kernel/numa_balancing", "0")
    if found == 0:
        return ok("0", "0")
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
    return warn("doctor.kernel.numa_balancing.warn", str(found), "0", remedy)


def _installed(facts: DoctorFacts) -> Version | None:
    return release_of(facts.host.driver_version)


def _version(facts: DoctorFacts) -> Verdict:
    kernel = release_of(facts.host.kernel)
    if kernel is None:
        return unreadable("/proc/sys/kernel/osrelease")
    table = releases()
    installed = _installed(facts)
    known = table.kernels.get(installed, {}) if installed else {}
    wanted = known.get(guides.distribution(facts)) or min(
        known.values(), default=table.oldest_kernel
    )
    shown, expected = str(facts.host.kernel), f">= {dotted(wanted)}"
    if kernel >= wanted:
        return ok(shown, expected)
    remedy = Remedy(message("doctor.kernel.version.remedy"), reboot=True, root=True)
    release = dotted(installed) if installed else "-"
    return warn("doctor.kernel.version.warn", shown, expected, remedy, release=release)


def _os(facts: DoctorFacts) -> Verdict:
    config, table = facts.config, releases()
    if config.os_id is None:
        return unreadable("/etc/os-release")
    shown = facts.host.os_name or guides.distribution(facts)
    expected = ", ".join(sorted(table.distributions))
    if guides.distribution(facts) in table.distributions:
        return ok(shown, expected)
    known = [
        release_of(name) for name in table.distributions if name.startswith(f"{config.os_id}-")
    ]
    ours = release_of(config.os_version)
    if known and ours and ours > min(version for version in known if version):
        return ok(shown, expected, "doctor.kernel.os.newer")
    return warn(
        "doctor.kernel.os.warn",
        shown,
        expected,
        Remedy(message("doctor.kernel.os.remedy")),
        release=_named(facts),
    )


def _named(facts: DoctorFacts) -> str:
    return dotted(_installed(facts) or releases().newest)


def _swap(facts: DoctorFacts) -> Verdict:
    total, used = facts.config.swap_total_mib, facts.config.swap_used_mib
    if total is None or used is None:
        return unreadable("/proc/meminfo")
    shown, expected = f"{used} / {total} MiB", f"< {_SWAP_MIB} MiB"
    if used < _SWAP_MIB:
        return ok(shown, expected)
    remedy = Remedy(
        message("doctor.kernel.swap.remedy"),
        commands=("sudo swapoff -a", "sudo swapon -a"),
        root=True,
    )
    return warn("doctor.kernel.swap.warn", shown, expected, remedy)


CHECKS = (
    Check("kernel.version", _version, "docs: Support Matrix, per release", ("gaudi", "host")),
    Check("kernel.os", _os, "docs: Support Matrix, per release", ("gaudi",)),
    Check("kernel.command_line", _command_line, f"{G2E} 1.1.2", ("host",)),
    Check(
        "kernel.iommu",
        _iommu,
        "docs: Driver Installation (kernel 6.8); AMD: assumed",
        ("gaudi", "host"),
    ),
    Check("kernel.grub", _grub, f"{G2E} 1.1.2", ("host",)),
    Check(
        "kernel.numa_balancing",
        _numa_balancing,
        f"{G2E} 1.1.2; HabanaAI/vllm-fork scripts",
        ("host",),
    ),
    Check("kernel.swap", _swap, "assumed: swapped-out engine memory slows every step", ("host",)),
)
