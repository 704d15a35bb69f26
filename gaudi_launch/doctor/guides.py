"""Guides for manual changes: kernel arguments and BIOS settings, step by step.

Commands by family of distribution: Ubuntu and Debian have update-grub; RHEL and its rebuilds change
every installed kernel with grubby; OpenCloudOS, TencentOS, Anolis and openEuler read
/etc/default/grub through grub2-mkconfig (their manuals).
"""

from __future__ import annotations

from gaudi_launch.doctor.findings import DoctorFacts, Remedy
from gaudi_launch.messages import message

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


def boot(
    facts: DoctorFacts, text: str, arguments: tuple[str, ...], bios: str | None = None
) -> Remedy:
    """Return the steps that add kernel arguments on this distribution.

    Return those of all distributions when it is unknown.
    """
    words = " ".join(arguments)
    known = family(facts)
    # one literal per family, so that the catalogue test sees them
    all_steps = {
        "ubuntu": message("doctor.grub.ubuntu", arguments=words),
        "rhel": message("doctor.grub.rhel", arguments=words),
        "opencloudos": message("doctor.grub.opencloudos", arguments=words),
    }
    steps = (all_steps[known],) if known else tuple(all_steps.values())
    steps += (message("doctor.grub.verify", arguments=words),)
    if bios:
        steps += (message(bios),)
    return Remedy(message(text, arguments=words), steps=steps, reboot=True, root=True)


def bios(facts: DoctorFacts, setting: str) -> Remedy:
    """Return the steps to a BIOS setting."""
    return Remedy(
        message("doctor.bios.remedy"),
        steps=(message("doctor.bios.enter"), message(setting)),
        reboot=True,
    )
