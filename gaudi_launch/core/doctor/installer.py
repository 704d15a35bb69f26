"""Commands of Intel's installer and packages of a Gaudi release; nothing is run.

docs: Driver and Software Installation, 1.19.2 and 1.23.0 (install, upgrade); Bare Metal
Installation (PyTorch); Gaudi2E 1.23.0 manual 1.2.1. The version of the packages is RELEASE-BUILD
(`apt list --installed`, same manual 1.2.2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.doctor import guides
from gaudi_launch.core.doctor.findings import DoctorFacts, Remedy
from gaudi_launch.core.doctor.releases import releases

_ADDRESS = "https://vault.habana.ai/artifactory/gaudi-installer/{release}/habanalabs-installer.sh"
_PROGRAM = "./habanalabs-installer.sh"
# 1.22.1.6 of a Python package, 1.22.1-6 of an image's tag, 1.24.1 of an image's path
_RELEASE = re.compile(r"(?<![\d.])(\d{1,4}\.\d{1,4}\.\d{1,4})(?:[.-](\d{1,6})(?![\w.]))?")


@dataclass(frozen=True)
class SoftwareRelease:
    """A Gaudi release: ``1.22.1`` and its build, "" where no source names it."""

    release: str
    build: str = ""

    @property
    def version(self) -> str:
        """Return the version of its packages."""
        if self.build:
            return f"{self.release}-{self.build}"
        return self.release


def software_release(text: str | None) -> SoftwareRelease | None:
    """Return the release in a version or an image's name; None without one."""
    found = [(match[1], match[2] or "") for match in _RELEASE.finditer(text or "")]
    if not found:
        return None
    release = found[0][0]
    build = next((build for name, build in found if name == release and build), "")
    return SoftwareRelease(release, build or releases().builds.get(release, ""))


def commands(release: SoftwareRelease, action: str, kind: str = "base") -> tuple[str, ...]:
    """Return the commands that download Intel's installer of a release and run it.

    ``action`` is ``install`` or ``upgrade``, ``kind`` ``base`` (driver, firmware, tools) or
    ``pytorch``.
    """
    return (
        f"wget -nv {_ADDRESS.format(release=release.release)}",
        "chmod +x habanalabs-installer.sh",
        f"{_PROGRAM} {action} --type {kind}",
    )


def package_names(facts: DoctorFacts, release: SoftwareRelease) -> tuple[str, ...]:
    """Return the host's packages of a release in this distribution's form."""
    table = releases()
    names = table.container_packages if facts.wants.container else table.packages
    if not release.build:
        return names
    between = "-" if guides.family(facts) in ("rhel", "opencloudos") else "="
    return tuple(f"{name}{between}{release.version}" for name in names)


def driver_remedy(facts: DoctorFacts, release: SoftwareRelease) -> Remedy:
    """Return the remedy that brings the host's driver and firmware to a release.

    It replaces an installed driver, else installs one.
    """
    action = "install"
    if facts.host.driver_version or facts.config.packages:
        action = "upgrade"
    packages = ", ".join(package_names(facts, release))
    steps = (message("doctor.driver.release_packages", release=release.release, packages=packages),)
    return Remedy(
        message("doctor.driver.release_remedy", release=release.release),
        commands=commands(release, action),
        steps=(*steps, *_notes(facts)),
        reboot=True,
        root=True,
    )


def _notes(facts: DoctorFacts) -> tuple[Message, ...]:
    """Return what the documents say of this distribution."""
    config, known = facts.config, sorted(releases().distributions)
    notes: list[Message] = [message("doctor.driver.release_firmware")]
    if config.os_id == "opencloudos":
        # docs: Driver and Software Installation 1.23.0
        notes.append(message("doctor.driver.release_dkms"))
    name = guides.distribution(facts)
    if name and name not in known:
        notes.append(message("doctor.driver.release_unlisted", name=name, known=", ".join(known)))
    return tuple(notes)
