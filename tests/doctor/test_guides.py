"""Kernel arguments are explained for the distribution at hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.doctor import guides
from gaudi_launch.doctor.runner import CHECKS, judge
from tests.support import doctor_machines as m


@pytest.mark.parametrize(
    ("os_id", "like", "step"),
    [
        ("ubuntu", ("debian",), "sudo update-grub"),
        ("rhel", ("fedora",), 'sudo grubby --update-kernel=ALL --args="intel_iommu=on iommu=pt"'),
        ("rocky", ("rhel", "centos", "fedora"), "grubby"),
        ("opencloudos", (), "sudo grub2-mkconfig -o /boot/grub2/grub.cfg"),
        ("openeuler", (), "grub2-mkconfig"),
        ("kylin", (), "grub2-mkconfig"),
        ("anolis", ("rhel", "fedora", "centos"), "grub2-mkconfig"),
    ],
)
def test_the_steps_are_those_of_the_distribution(
    os_id: str, like: tuple[str, ...], step: str
) -> None:
    facts = m.settings(os_id=os_id, os_like=like)(m.facts("hls2+bad-tuning"))
    remedy = judge(next(check for check in CHECKS if check.id == "kernel.iommu"), facts).remedy
    assert remedy is not None
    assert (remedy.fix, remedy.commands, remedy.reboot) == (None, (), True)
    first, verify = remedy.steps
    assert step in first.render("en") and "intel_iommu=on iommu=pt" in first.render("zh")
    assert "/proc/cmdline" in verify.render("en")


def test_an_unknown_distribution_gets_all_of_them() -> None:
    facts = m.settings(os_id="arch", os_like=())(m.facts("hls2+bad-tuning"))
    assert guides.family(facts) is None
    assert len(guides.boot(facts, "doctor.kernel.iommu.remedy", ("iommu=pt",)).steps) == 4


def test_a_distribution_without_a_version_has_its_name_alone() -> None:
    """Rolling distributions have no VERSION_ID (os-release(5): it is optional)."""
    facts = m.settings(os_id="arch", os_version=None, os_like=())(m.facts("hls2"))
    facts = replace(facts, host=replace(facts.host, os_name=None))
    found = judge(next(check for check in CHECKS if check.id == "kernel.os"), facts)
    assert (guides.distribution(facts), found.found) == ("arch", "arch")
    image = m.wants(image="gaudi-docker/1.23.0/x:1.23.0-695")(facts)
    remedy = judge(next(check for check in CHECKS if check.id == "driver.image"), image).remedy
    assert remedy is not None and remedy.steps[-1].render("en").startswith("arch is not in ")
