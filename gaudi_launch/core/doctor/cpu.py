"""BIOS and CPU settings that slow the host's side of every step."""

from __future__ import annotations

import re

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor import guides
from gaudi_launch.core.doctor.findings import DoctorFacts, Remedy, Verdict, check
from gaudi_launch.core.host.config_files import CPU

G2E = "Gaudi2E 1.23.0 manual (HabanaAI/vllm-fork#2222)"
# C1E and everything from C6 on; the guide switches these off by name
_DEEP = re.compile(r"C1E|C([6-9]|1\d)\w*", re.I)


@check("cpu.governor", f"docs: Optimize Inference on PyTorch; {G2E} 1.1.2", ("host",))
def _governor(facts: DoctorFacts) -> Verdict:
    governors = facts.config.governors
    if not governors:
        return Verdict.unknown("doctor.cpu.governor.unknown", "", "performance")
    found = "; ".join(f"{cpus}={word}" for word, cpus in governors.items())
    if set(governors) == {"performance"}:
        return Verdict.ok(found, "performance")
    remedy = Remedy(
        message("doctor.cpu.governor.remedy"),
        commands=("sudo cpupower frequency-set -g performance",),
        persist=(
            "echo 'w /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor - - - - performance' | "
            "sudo tee /etc/tmpfiles.d/gaudi-launch-governor.conf",
        ),
        steps=(message("doctor.bios.hwp"),),
        root=True,
        fix="governor",
    )
    return Verdict.warn("doctor.cpu.governor.warn", found, "performance", remedy)


@check("cpu.pstate_driver", f"{G2E} 1.1.1", ("host",))
def _pstate(facts: DoctorFacts) -> Verdict:
    config = facts.config
    if not config.scaling_drivers:
        return Verdict.unknown("doctor.cpu.governor.unknown", "", "intel_pstate")
    found = "; ".join(f"{cpus}={word}" for word, cpus in config.scaling_drivers.items())
    if config.pstate_status:
        found += f" ({config.pstate_status})"
    # AMD servers have another driver; no public source states that it is slower
    good = all(re.match(r"intel_pstate|intel_cpufreq|amd", word) for word in config.scaling_drivers)
    if good and config.pstate_status != "off":
        return Verdict.ok(found, "intel_pstate")
    return Verdict.warn(
        "doctor.cpu.pstate_driver.warn",
        found,
        "intel_pstate",
        guides.bios("doctor.bios.hwp"),
    )


@check("cpu.idle_states", f"{G2E} 1.1.1; docs: release notes", ("host",))
def _idle_states(facts: DoctorFacts) -> Verdict:
    config = facts.config
    if facts.host.virtual_machine:
        return Verdict.unknown("doctor.virtual", "", "POLL, C1")
    if not config.idle_states:
        return Verdict.unreadable(f"/{CPU}/cpu0/cpuidle", "POLL, C1")
    deep = {
        name: cpus for name, cpus in config.idle_states.items() if _DEEP.fullmatch(name) and cpus
    }
    if not deep:
        return Verdict.ok(", ".join(config.idle_states), "POLL, C1")
    found = "; ".join(f"{cpus}={name}" for name, cpus in deep.items())
    if facts.amd:
        # intel_idle is not loaded there
        return Verdict.warn(
            "doctor.cpu.idle_states.warn", found, "POLL, C1", guides.bios("doctor.bios.c6")
        )
    remedy = guides.boot(
        "doctor.cpu.idle_states.remedy", ("intel_idle.max_cstate=0",), bios="doctor.bios.c6"
    )
    return Verdict.warn("doctor.cpu.idle_states.warn", found, "POLL, C1", remedy)


@check("cpu.max_cstate", f"{G2E} 1.1.2", ("host",))
def _max_cstate(facts: DoctorFacts) -> Verdict:
    found = facts.config.max_cstate
    if facts.host.virtual_machine:
        return Verdict.unknown("doctor.virtual", "" if found is None else str(found), "0")
    if found is None and facts.amd:
        return Verdict.ok("-", id="doctor.cpu.intel_only")
    if found is None:
        return Verdict.unreadable("/sys/module/intel_idle/parameters/max_cstate", "0")
    if found == 0:
        return Verdict.ok("0", "0")
    remedy = guides.boot("doctor.cpu.max_cstate.remedy", ("intel_idle.max_cstate=0",))
    return Verdict.warn("doctor.cpu.max_cstate.warn", str(found), "0", remedy)


@check("cpu.turbo", f"{G2E} 1.1.1", ("host",))
def _turbo(facts: DoctorFacts) -> Verdict:
    found = facts.config.no_turbo
    if found is None and facts.amd:
        return Verdict.ok("-", id="doctor.cpu.intel_only")
    if found is None:
        return Verdict.unreadable(f"/{CPU}/intel_pstate/no_turbo", "no_turbo=0")
    if found == 0:
        return Verdict.ok("no_turbo=0", "no_turbo=0")
    remedy = Remedy(
        message("doctor.cpu.turbo.remedy"),
        commands=(f"echo 0 | sudo tee /{CPU}/intel_pstate/no_turbo",),
        steps=(message("doctor.bios.turbo"),),
        root=True,
    )
    return Verdict.warn("doctor.cpu.turbo.warn", f"no_turbo={found}", "no_turbo=0", remedy)
