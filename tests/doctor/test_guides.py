"""Kernel arguments are explained for the distribution at hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.doctor import guides
from gaudi_launch.doctor.runner import CHECKS, judge, run, select
from gaudi_launch.host.config_files import grub
from gaudi_launch.host.files import Imagined
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
    remedy = run(select(["kernel.iommu"]), facts)[0].remedy
    assert remedy is not None
    assert (remedy.fix, remedy.commands, remedy.reboot) == (None, (), True)
    first, verify = remedy.steps
    assert step in first.render("en") and "intel_iommu=on iommu=pt" in first.render("zh")
    assert "/proc/cmdline" in verify.render("en")


def test_the_arguments_of_all_findings_are_one_step() -> None:
    found = run(select(["cpu", "kernel"]), m.facts("hls2+bad-tuning"))
    steps = {each.id: each.remedy.steps for each in found if each.remedy and each.remedy.arguments}
    all_of_them = (
        "intel_idle.max_cstate=0 cpufreq.default_governor=performance intel_iommu=on iommu=pt"
    )
    assert [*steps] == ["cpu.idle_states", "cpu.max_cstate", "kernel.command_line", "kernel.iommu"]
    assert {each[0].values["arguments"] for each in steps.values()} == {all_of_them}
    line = steps["kernel.iommu"][0].render("en")
    file = f'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {all_of_them}"'
    assert f"echo '{file}' | sudo tee /etc/default/grub.d/90-gaudi-launch.cfg && " in line
    # what the line wrote waits for the reboot
    written = Imagined({"etc/default/grub": "A=1\n", "etc/default/grub.d/90-x.cfg": f"{file}\n"})
    assert grub(written) == tuple(all_of_them.split())
    waiting = m.settings(grub=grub(written))(m.facts("hls2+bad-tuning"))
    [after] = run(select(["kernel.iommu"]), waiting)
    assert guides.waits_for_reboot(after) and after.remedy is not None
    assert all_of_them not in after.remedy.steps[0].render("en")


def test_an_unknown_distribution_gets_all_of_them() -> None:
    facts = m.settings(os_id="arch", os_like=())(m.facts("hls2+bad-tuning"))
    remedy = run(select(["kernel.iommu"]), facts)[0].remedy
    assert guides.family(facts) is None
    assert remedy is not None and len(remedy.steps) == 4


def test_a_distribution_without_a_version_has_its_name_alone() -> None:
    """Rolling distributions have no VERSION_ID (os-release(5): it is optional)."""
    facts = m.settings(os_id="arch", os_version=None, os_like=())(m.facts("hls2"))
    facts = replace(facts, host=replace(facts.host, os_name=None))
    found = judge(next(check for check in CHECKS if check.id == "kernel.os"), facts)
    assert (guides.distribution(facts), found.found) == ("arch", "arch")
    image = m.wants(image="gaudi-docker/1.23.0/x:1.23.0-695")(facts)
    remedy = judge(next(check for check in CHECKS if check.id == "driver.image"), image).remedy
    assert remedy is not None and remedy.steps[-1].render("en").startswith("arch is not in ")
