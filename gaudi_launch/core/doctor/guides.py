"""Guides for manual changes: kernel arguments and BIOS settings, step by step.

Commands by family of distribution: Ubuntu and Debian have grub.d and update-grub; RHEL and its
rebuilds change every installed kernel with grubby; OpenCloudOS, TencentOS, Anolis and openEuler
read /etc/default/grub through grub2-mkconfig (their manuals).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.findings import DoctorFacts, Finding, Remedy

# writes the boot menu from /etc/default/grub and grub.d (Ubuntu and Debian)
UPDATE = "update-grub"
_REBOOT = message("doctor.kernel.grub.remedy")
_FAMILIES = {
    "ubuntu": ("ubuntu", "debian"),
    "rhel": ("rhel", "centos", "rocky", "almalinux", "fedora", "ol"),
    "opencloudos": ("opencloudos", "tencentos", "anolis", "alinux", "openeuler", "kylin"),
}


def family(facts: DoctorFacts) -> str | None:
    """Return ``ubuntu``, ``rhel``, ``opencloudos`` or None."""
    # the distribution's ID is compared first: Anolis identifies itself like RHEL
    for word in (facts.config.os_id, *facts.config.os_like):
        for name, words in _FAMILIES.items():
            if word in words:
                return name
    return None


def distribution(facts: DoctorFacts) -> str:
    """Return the name that support matrices have, such as ``ubuntu-22.04``.

    A distribution without a version has its ID alone: ``arch``.
    """
    return "-".join(filter(None, (facts.config.os_id, facts.config.os_version)))


def boot(text: str, arguments: tuple[str, ...], bios: str | None = None) -> Remedy:
    """Return the remedy of missing kernel arguments, without steps."""
    return Remedy(
        message(text, arguments=" ".join(arguments)),
        steps=(message(bios),) if bios else (),
        reboot=True,
        root=True,
        arguments=arguments,
    )


def with_boot_steps(facts: DoctorFacts, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with the steps that add all their kernel arguments at once.

    They are those of this distribution, or of all where it is unknown; what is written already
    waits for a reboot.
    """
    found = {each.id: each.remedy for each in findings if each.remedy and each.remedy.arguments}
    missing = dict.fromkeys(word for each in found.values() for word in each.arguments)
    absent = tuple(word for word in missing if word not in (facts.config.grub or ()))
    words, known = " ".join(absent), family(facts)
    fix = "boot" if absent and known == "ubuntu" and UPDATE in facts.config.programs else None
    # one literal per family, so that the catalogue test sees them
    all_steps = {
        "ubuntu": message("doctor.grub.ubuntu", arguments=words),
        "rhel": message("doctor.grub.rhel", arguments=words),
        "opencloudos": message("doctor.grub.opencloudos", arguments=words),
    }
    steps = (all_steps[known],) if known else tuple(all_steps.values())
    if not absent:
        steps = (_REBOOT,)
    steps += (message("doctor.grub.verify", arguments=" ".join(missing)),)
    changed = {
        id: replace(remedy, steps=(*steps, *remedy.steps), arguments=absent, fix=fix)
        for id, remedy in found.items()
    }
    return [replace(each, remedy=changed.get(each.id, each.remedy)) for each in findings]


def waits_for_reboot(finding: Finding) -> bool:
    """Report whether a finding's kernel arguments are written already."""
    return finding.remedy is not None and finding.remedy.steps[:1] == (_REBOOT,)


def bios(setting: str) -> Remedy:
    """Return the steps to a BIOS setting."""
    steps = (message("doctor.bios.enter"), message(setting))
    return Remedy(message("doctor.bios.remedy"), steps=steps, reboot=True)
