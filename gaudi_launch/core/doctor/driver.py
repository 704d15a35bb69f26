"""The driver and its software, compared by major.minor.

A patch release never breaks a pair.
"""

from __future__ import annotations

import re

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.doctor.findings import (
    DoctorFacts,
    Remedy,
    Verdict,
    check,
    dotted,
    release_of,
)
from gaudi_launch.core.doctor.installer import SoftwareRelease, driver_remedy, software_release
from gaudi_launch.core.doctor.releases import releases

# in the order in which they are loaded (Gaudi2E 1.23.0 manual 1.2.2)
_COMPANIONS = ("habanalabs_compat", "habanalabs_cn", "habanalabs_en", "habanalabs_ib", "ib_uverbs")


@check("driver.loaded", "docs: Driver Installation; dell/omnia known issue", ("gaudi", "host"))
def _loaded(facts: DoctorFacts) -> Verdict:
    config, driver = facts.config, facts.host.driver_version
    if driver or "habanalabs" in (config.modules or ()):
        return Verdict.ok(driver or "habanalabs", "habanalabs")
    if config.modules is None and facts.host.cards:
        return Verdict.ok("habanalabs", "habanalabs")
    kernel = facts.host.kernel
    if config.module_built is False:
        # a kernel upgrade without DKMS leaves exactly this (dell/omnia known issue)
        remedy = Remedy(
            message("doctor.driver.loaded.rebuild", kernel=kernel),
            commands=("sudo dkms autoinstall", "sudo modprobe habanalabs"),
            root=True,
        )
        return Verdict.fail(
            "doctor.driver.loaded.not_built", "-", "habanalabs", remedy, kernel=kernel
        )
    load = tuple(
        f"sudo modprobe {name}" for name in ("habanalabs_compat", "habanalabs", *_COMPANIONS[1:4])
    )
    remedy = Remedy(
        message("doctor.driver.loaded.remedy"),
        commands=load,
        steps=_install_steps(facts),
        root=True,
    )
    return Verdict.fail("doctor.driver.loaded.fail", "-", "habanalabs", remedy)


def _install_steps(facts: DoctorFacts) -> tuple[Message, ...]:
    """Return the steps that install the driver of the engine's release.

    Without an engine, the driver is that of the newest known release.
    """
    asked = facts.wants.image or (facts.engine.torch_plugin if facts.engine is not None else None)
    release = software_release(asked) or SoftwareRelease(*releases().newest_build)
    remedy = driver_remedy(facts, release)
    lines = "; ".join(remedy.commands)
    return (
        message("doctor.driver.release_install", release=release.release, commands=lines),
        *remedy.steps,
    )


@check("driver.modules", "Gaudi2E 1.23.0 manual 1.2.2", ("gaudi", "host"))
def _modules(facts: DoctorFacts) -> Verdict:
    loaded = facts.config.modules
    expected = ", ".join(_COMPANIONS)
    if loaded is None:
        return Verdict.unreadable("/proc/modules", expected)
    if "habanalabs" not in loaded:
        return Verdict.skip("doctor.needs.driver")
    missing = [name for name in _COMPANIONS if name not in loaded]
    if not missing:
        return Verdict.ok(", ".join(loaded), expected)
    commands = tuple(f"sudo modprobe {name}" for name in missing)
    remedy = Remedy(message("doctor.driver.modules.remedy"), commands=commands, root=True)
    return Verdict.warn(
        "doctor.driver.modules.warn",
        ", ".join(loaded),
        expected,
        remedy,
        missing=", ".join(missing),
    )


@check("driver.hl_smi", "docs: Support Matrix", ("gaudi",))
def _hl_smi(facts: DoctorFacts) -> Verdict:
    driver, tool = facts.host.driver_version, facts.host.hl_smi_version
    if driver is None:
        return Verdict.skip("doctor.needs.driver")
    if tool is None:
        return Verdict.unknown(
            "doctor.driver.hl_smi.unknown", reason=facts.host.notes.get("hl-smi", "-")
        )
    if release_of(tool) == release_of(driver):
        return Verdict.ok(tool, driver)
    remedy = Remedy(message("doctor.driver.same_release"))
    return Verdict.warn("doctor.driver.hl_smi.warn", tool, driver, remedy)


@check(
    "driver.firmware", "docs: release notes (firmware of the driver's release)", ("cards", "host")
)
def _firmware(facts: DoctorFacts) -> Verdict:
    driver = release_of(facts.host.driver_version)
    reporting = {card.firmware for card in facts.host.cards if card.firmware}
    # "hl-gaudi2-1.22.1-fw-61.4": the release is between the product and the firmware's number
    found = {word: release_of(word.rpartition("-fw-")[0] or word) for word in reporting}
    shown = ", ".join(sorted(reporting))
    if not reporting or driver is None or None in found.values():
        return Verdict.unknown("doctor.driver.firmware.unknown", shown)
    expected = dotted(driver)
    remedy = Remedy(
        message("doctor.driver.firmware.remedy"), commands=("sudo hl-fw-loader",), root=True
    )
    if len(set(found.values())) > 1:
        return Verdict.warn("doctor.driver.firmware.mixed", shown, expected, remedy)
    if set(found.values()) != {driver}:
        return Verdict.warn("doctor.driver.firmware.warn", shown, expected, remedy)
    return Verdict.ok(shown, expected)


@check("driver.packages", "dpkg; docs: Support Matrix", ("gaudi", "named"))
def _packages(facts: DoctorFacts) -> Verdict:
    found = facts.config.packages
    driver = release_of(facts.host.driver_version)
    if not found or driver is None:
        return Verdict.unknown("doctor.driver.packages.unknown")
    shown = ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
    others = [name for name, version in found.items() if release_of(version) not in (driver, None)]
    if not others:
        return Verdict.ok(shown, dotted(driver))
    remedy = Remedy(message("doctor.driver.packages.remedy"), reboot=True, root=True)
    return Verdict.warn(
        "doctor.driver.packages.warn",
        shown,
        dotted(driver),
        remedy,
        others=", ".join(sorted(others)),
    )


@check(
    "driver.missing_packages",
    "docs: Custom Driver and Software Installation; profiles/releases.yaml",
    ("gaudi", "named", "host"),
)
def _missing_packages(facts: DoctorFacts) -> Verdict:
    """Return packages of the release that are not installed.

    The packages are those of a host that runs containers, or of a complete one.
    """
    found = facts.config.packages
    if not found:
        return Verdict.unknown("doctor.driver.packages.unknown")
    table = releases()
    wanted = table.container_packages if facts.wants.container else table.packages
    shown, expected = ", ".join(sorted(found)), ", ".join(wanted)
    missing = [name for name in wanted if name not in found]
    if not missing:
        return Verdict.ok(shown, expected)
    # the same release as the driver's package, where dpkg knows it
    version = next(
        (found[name] for name in ("habanalabs-dkms", "habanalabs-firmware") if name in found), None
    )
    names = " ".join(name if version is None else f"{name}={version}" for name in missing)
    remedy = Remedy(
        message("doctor.driver.missing_packages.remedy"),
        commands=(f"sudo apt-get install {names}",),
        root=True,
    )
    return Verdict.warn(
        "doctor.driver.missing_packages.warn", shown, expected, remedy, missing=", ".join(missing)
    )


@check(
    "driver.firmware_pair",
    "docs: release notes; profiles/releases.yaml",
    ("cards", "host"),
    "slow",
    20.0,
)
def _firmware_pair(facts: DoctorFacts) -> Verdict:
    """Return a verdict on boot image (FIT) and preboot firmware (SPI) of each card."""
    reporting = [one for one in facts.health.values() if one.spi and one.fit]
    if not reporting:
        return Verdict.unknown("doctor.driver.firmware.unknown", "-")
    shown = ", ".join(sorted({f"SPI {one.spi} FIT {one.fit}" for one in reporting}))
    for pair in releases().firmware_pairs:
        bad = [
            one
            for one in reporting
            if facts.host.product in pair.products and pair.covers(one.spi, one.fit)
        ]
        if bad:
            remedy = Remedy(
                message("doctor.driver.firmware_pair.remedy"),
                commands=("sudo hl-fw-loader",),
                root=True,
            )
            expected = f"FIT > {dotted(pair.fit_to)}"
            found = ", ".join(sorted({f"SPI {one.spi} FIT {one.fit}" for one in bad}))
            return Verdict.warn(
                "doctor.driver.firmware_pair.warn", found, expected, remedy, source=pair.source
            )
    return Verdict.ok(shown)


@check("driver.user_space", "docs: Support Matrix; profiles/releases.yaml", ("gaudi", "engine"))
def _user_space(facts: DoctorFacts) -> Verdict:
    assert facts.engine is not None
    driver, plugin = release_of(facts.host.driver_version), release_of(facts.engine.torch_plugin)
    if driver is None:
        return Verdict.skip("doctor.needs.driver")
    if plugin is None:
        return Verdict.skip("doctor.driver.user_space.skip", python=facts.engine.python)
    return _pair(facts, plugin, str(facts.engine.torch_plugin))


@check("driver.image", "docs: Support Matrix; profiles/releases.yaml", ("gaudi", "image"))
def _image(facts: DoctorFacts) -> Verdict:
    # .../gaudi-docker/1.24.0/ubuntu24.04/...:1.24.0-1007
    image = facts.wants.image or ""
    match = re.search(r"gaudi-docker/(\d+\.\d+[.\d]*)/|:(\d+\.\d+\.\d+-\d+)$", image)
    if match is None:
        return Verdict.unknown("doctor.driver.image.unknown", image)
    if facts.host.driver_version is None:
        return Verdict.skip("doctor.needs.driver")
    version = match[1] or match[2]
    tag = image.rpartition(":")[2]
    shown = tag if tag.startswith(f"{version}-") else version
    return _pair(facts, release_of(version) or (0, 0), shown, of_image=True)


def _pair(
    facts: DoctorFacts, user_space: tuple[int, int], shown: str, *, of_image: bool = False
) -> Verdict:
    """Return the verdict on user space and driver.

    A publicly known failure is a failure, any other difference is only untested.
    """
    driver = release_of(facts.host.driver_version) or (0, 0)
    if user_space == driver:
        return Verdict.ok(shown, str(facts.host.driver_version))
    remedy = Remedy(message("doctor.driver.same_release"))
    release = software_release(shown)
    if release is not None:
        remedy = driver_remedy(facts, release)
    if of_image and user_space < driver:
        remedy = _newer_image(remedy, str(facts.host.driver_version))
    values = {"driver": facts.host.driver_version}
    source = releases().bad_pairs.get((user_space, driver))
    if source:
        return Verdict.fail(
            "doctor.driver.pair.fail", shown, dotted(driver), remedy, source=source, **values
        )
    return Verdict.warn("doctor.driver.pair.warn", shown, dotted(driver), remedy, **values)


def _newer_image(host_remedy: Remedy, driver: str) -> Remedy:
    """Return the remedy for an image that is older than the driver: a newer image.

    An older driver, as in ``host_remedy``, is the last resort.
    """
    steps: tuple[Message, ...] = ()
    if host_remedy.commands:
        steps = (message("doctor.driver.image.keep", commands="; ".join(host_remedy.commands)),)
    torch = ", ".join(dotted(each) for each in releases().torch_of(driver)) or "-"
    release = dotted(release_of(driver) or ())
    newer = message("doctor.driver.image.newer", release=release, torch=torch)
    return Remedy(newer, steps=steps)
