"""Every check on a good machine, and on machines that make it warn, fail, skip or unknown."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.doctor import runner
from gaudi_launch.core.doctor.findings import Check, DoctorFacts, Verdict, Wants
from gaudi_launch.core.doctor.releases import releases
from gaudi_launch.core.doctor.runner import CHECKS, judge, quick
from gaudi_launch.core.host import host_config, simulated
from gaudi_launch.core.host.files import Imagined
from gaudi_launch.core.host.read import assemble
from tests.support import doctor_machines as m
from tests.support.cli import golden
from tests.support.doctor_cases import BY_ID, CASES
from tests.support.refusals import failing
from tests.support.waiting import GENEROUS
from tests.support.whole_plans import shown


@given(minor=st.integers(16, 40), patch=st.integers(0, 9), torch=st.integers(0, 20))
def test_a_patch_release_is_judged_by_its_own_line_only(minor: int, patch: int, torch: int) -> None:
    known = releases().torch
    own = known.get((1, minor, patch), known.get((1, minor)) if patch == 0 else None)
    change = m.engine(torch=f"2.{torch}.0", torch_plugin=f"1.{minor}.{patch}.12")
    found = judge(BY_ID["engine.torch"], change(m.facts("hls2"))).status
    assert found == ("unknown" if own is None else "ok" if own == (2, torch) else "warn")


def test_every_check_has_a_machine_that_it_does_not_call_ok() -> None:
    found = {(id, judge(BY_ID[id], change(m.facts(name))).status) for id, name, change in CASES}
    assert {id for id, status in found if status != "ok"} == set(BY_ID)


@pytest.mark.parametrize(
    ("os", "between", "notes"),
    [(("ubuntu", "24.04"), "=", 0), (("opencloudos", "9.2"), "-", 2), (("debian", "12"), "=", 1)],
)
def test_the_packages_of_an_image_are_in_this_distributions_form(
    os: tuple[str, str], between: str, notes: int
) -> None:
    image = "gaudi-docker/1.24.1/ubuntu24.04/habanalabs/vllm-0.26.0-ptupstream-2.11.0:latest"
    changed = m.both(
        m.wants(image=image, container=True), m.settings(os_id=os[0], os_version=os[1], os_like=())
    )
    remedy = judge(BY_ID["driver.image"], changed(m.facts("hls2"))).remedy
    assert remedy is not None and len(remedy.steps) == 2 + notes
    packages = remedy.steps[0].render("en")
    assert packages.startswith(
        f"Packages of release 1.24.1: habanalabs-container-runtime{between}1.24.1-482, "
    )


@pytest.mark.parametrize("release", ["1.16.0", "1.20.0", "1.21.3"])
def test_an_image_older_than_the_driver_is_to_be_replaced(release: str) -> None:
    changed = m.wants(image=f"gaudi-docker/{release}/ubuntu22.04/habanalabs/x:latest")
    remedy = judge(BY_ID["driver.image"], changed(m.facts("hls2"))).remedy
    installer = f"https://vault.habana.ai/artifactory/gaudi-installer/{release}/"

    assert remedy is not None and remedy.commands == ()
    assert remedy.text == message("doctor.driver.image.newer", release="1.22", torch="2.7")
    assert [step.id for step in remedy.steps] == ["doctor.driver.image.keep"]
    assert installer in remedy.steps[0].render("en")


def test_a_probe_that_breaks_or_hangs_is_unknown() -> None:
    def breaks(facts: DoctorFacts) -> object:
        raise KeyError("x")

    def hangs(facts: DoctorFacts) -> object:
        given_up.wait(GENEROUS)
        return Verdict.ok("")

    given_up = threading.Event()

    broken = judge(Check("cpu.governor", breaks, "test"), m.facts())  # type: ignore[arg-type]
    assert (broken.status, broken.message.id) == ("unknown", "doctor.broken")
    slow = Check("cards.links", hangs, "test", (), "slow", 0.1)  # type: ignore[arg-type]
    (hung,) = runner.run([slow], m.facts())
    assert (hung.status, hung.message.id, given_up.is_set()) == ("unknown", "doctor.timeout", False)
    given_up.set()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_text_in_a_machines_files_ends_in_a_traceback(data: st.DataObject) -> None:
    machine = simulated.build("gaudi2e-4")
    paths = sorted(p for p in machine.files if "/cpu" not in p or "/cpu0/" in p)
    chosen = data.draw(st.lists(st.sampled_from(paths), max_size=8))
    texts = {path: data.draw(st.text(max_size=40)) for path in chosen}
    files = Imagined({**machine.files, **texts}, machine.links)
    findings = quick(assemble(files, machine.ask), host_config.read_config(files))
    assert [f.message.render() for f in findings if f.message.id == "doctor.broken"] == []


def test_serve_is_stopped_by_failures_only() -> None:
    good = m.facts("hls2+busy=3")
    runner.stop_on_failures(quick(good.host, good.config, Wants(modules=(0, 1))))
    with failing("doctor.stops", ExitCode.MACHINE) as error:
        runner.stop_on_failures(quick(good.host, good.config, Wants(modules=(2, 3))))
    assert error.value.text.values == {"count": 1, "ids": "cards.free"}


def test_an_amd_server_gets_no_intel_argument() -> None:
    facts = m.settings(command_line=("ro",), idle_states={"C6": "0-3"}, grub=())(
        m.facts("hls2+amd")
    )
    findings = runner.run(runner.select(levels=("quick", "slow")), facts)
    shown = json.dumps([finding.to_json() for finding in findings])
    assert "amd_iommu" not in shown
    assert "intel_iommu" not in shown
    assert "intel_idle.max_cstate=" not in shown
    assert int(runner.exit_code(findings)) == 0


def _stated(facts: DoctorFacts, check: Check) -> list[str]:
    """Return everything that a finding states: ids, values, commands."""
    finding = runner.run([check], facts, named=[check.id])[0]
    lines = [
        f"{finding.status} {_of(finding.message)} host {finding.on_host} [{finding.source}]",
        f"  found {_of(finding.found)!r} expected {_of(finding.expected)!r}",
    ]
    remedy = finding.remedy
    if remedy is not None:
        flags = f"reboot {remedy.reboot} root {remedy.root} fix {remedy.fix}"
        lines.append(f"  remedy {_of(remedy.text)} {flags}")
        lines += [f"  command {each}" for each in remedy.commands]
        lines += [f"  persist {each}" for each in remedy.persist]
        lines += [f"  step {shown(each)}" for each in remedy.steps]
    return lines


def _of(value: str | Message) -> str:
    return value if isinstance(value, str) else shown(value)


def _recorded(check: Check) -> list[str]:
    """Return what a check states of each machine that is drawn for it."""
    lines = [f"==== {check.id} needs {check.needs} level {check.level} {check.seconds:g} s"]
    for name, change in (
        *((name, m.both()) for name in ("hls2", "gaudi2e-8", "hls2+amd")),
        *((name, change) for id, name, change in CASES if id == check.id),
    ):
        lines += [f"== {name}", *_stated(change(m.facts(name)), check)]
    return lines


@pytest.mark.parametrize("area", sorted({check.area for check in CHECKS}))
def test_each_finding_states_what_is_recorded(area: str) -> None:
    checks = [check for check in CHECKS if check.area == area]
    golden(
        f"doctor/{area}.txt", "\n".join(line for each in checks for line in _recorded(each)) + "\n"
    )
