"""Kernel arguments are explained for the distribution at hand."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.doctor import guides
from gaudi_launch.core.doctor.runner import CHECKS, judge
from tests.support import doctor_machines as m


def test_a_distribution_without_a_version_has_its_name_alone() -> None:
    """Rolling distributions have no VERSION_ID (os-release(5): it is optional)."""
    facts = m.settings(os_id="arch", os_version=None, os_like=())(m.facts("hls2"))
    facts = replace(facts, host=replace(facts.host, os_name=None))
    found = judge(next(check for check in CHECKS if check.id == "kernel.os"), facts)
    assert (guides.distribution(facts), found.found) == ("arch", "arch")
    image = m.wants(image="gaudi-docker/1.23.0/x:1.23.0-695")(facts)
    remedy = judge(next(check for check in CHECKS if check.id == "driver.image"), image).remedy
    assert remedy is not None and remedy.steps[-1].render("en").startswith("arch is not in ")
