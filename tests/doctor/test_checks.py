"""Every check on a good machine, and on machines that make it warn, fail, skip or unknown."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.doctor import quick, runner, summary
from gaudi_launch.doctor.findings import LEVELS, Check, DoctorFacts, Pins, Verdict, Wants
from gaudi_launch.doctor.releases import releases
from gaudi_launch.doctor.runner import CHECKS, judge
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host import host_config as host_config
from gaudi_launch.host import simulated
from gaudi_launch.host.files import Imagined
from gaudi_launch.host.hardware import Host
from gaudi_launch.host.hl_smi import HlSmiOutput
from gaudi_launch.host.host_config import HostConfig
from gaudi_launch.host.read import assemble
from gaudi_launch.messages import LANGUAGES, Message, message
from tests.support import doctor_machines as m
from tests.support.cli import golden
from tests.support.doctor_cases import BY_ID, CASES, laptop
from tests.support.refusals import refused
from tests.support.speed import within
from tests.support.waiting import GENEROUS
from tests.support.whole_plans import shown


@pytest.mark.parametrize(
    ("id", "status", "name", "change"),
    CASES,
    ids=[f"{c[0]}-{c[1]}-{n}" for n, c in enumerate(CASES)],
)
def test_each_machine_gets_the_status_it_deserves(
    id: str, status: str, name: str, change: m.Change
) -> None:
    finding = judge(BY_ID[id], change(m.facts(name)))
    assert (finding.id, finding.status) == (id, status)
    for language in LANGUAGES:
        sentence = finding.message.render(language)
        assert sentence and "{" not in sentence and "doctor." not in sentence
    if status == "fail" and id not in ("cards.count", "cards.present", "engine.pair"):
        assert finding.remedy is not None


@given(minor=st.integers(16, 40), patch=st.integers(0, 9), torch=st.integers(0, 20))
def test_a_patch_release_is_judged_by_its_own_line_only(minor: int, patch: int, torch: int) -> None:
    known = releases().torch
    own = known.get((1, minor, patch), known.get((1, minor)) if patch == 0 else None)
    change = m.engine(torch=f"2.{torch}.0", torch_plugin=f"1.{minor}.{patch}.12")
    found = judge(BY_ID["engine.torch"], change(m.facts("hls2"))).status
    assert found == ("unknown" if own is None else "ok" if own == (2, torch) else "warn")


def test_every_check_has_a_machine_that_it_does_not_call_ok() -> None:
    assert {case[0] for case in CASES if case[1] != "ok"} == set(BY_ID)


@pytest.mark.parametrize("name", simulated.NAMES)
def test_a_known_good_machine_is_only_ok(name: str) -> None:
    facts = m.facts(name)
    findings = runner.run(runner.select(levels=("quick", "slow")), facts)
    assert [(f.id, f.message.render()) for f in findings if f.status != "ok"] == []
    assert len(findings) == len(CHECKS) - 4


@pytest.mark.parametrize(
    "variant", ["", "+container", "+no-hl-smi", "+no-sysfs", "+no-driver", "+bad-tuning"]
)
def test_the_table_is_never_empty_and_unknown_is_never_a_failure(variant: str) -> None:
    facts = m.facts(f"hls2{variant}")
    findings = quick(facts.host, facts.config)
    assert len(findings) > 30
    assert sum(summary(findings).values()) == len(findings)


def test_nothing_known_is_nothing_red() -> None:
    findings = quick(Host(), HostConfig())
    assert {f.status for f in findings if f.status in ("warn", "fail")} == set()
    assert summary(findings)["unknown"] > 10


def test_an_engine_without_cards_is_not_asked_for_cards() -> None:
    findings = quick(Host(), HostConfig(pci_devices=()), Wants(gaudi=False, port=8000))
    assert {f.id.partition(".")[0] for f in findings} == {"network", "cache"}
    assert int(runner.exit_code(findings)) == 0


def test_all_deviating_packages_are_one_row_with_a_command_for_those_with_one_version() -> None:
    rows = (("fastapi", "0.137.1", "0.116.1"), ("networkx", "3.9", "3.4.2 / 3.5"))
    finding = judge(BY_ID["engine.pins"], m.engine(pins=Pins("f.txt", rows))(m.facts("hls2")))
    assert finding.message.render("en") == (
        "2 packages differ from the constraints file: fastapi 0.137.1, networkx 3.9; "
        "expected fastapi 0.116.1, networkx 3.4.2 / 3.5 (f.txt)."
    )
    assert finding.remedy is not None
    assert finding.remedy.commands == ("/opt/engine/bin/python -m pip install fastapi==0.116.1",)


def test_absent_packages_of_gaudi_are_named_with_intels_installer() -> None:
    # one of them under the name that it has on the index
    has = frozenset({"habana-torch-plugin", "pyhlml", "neural-compressor"})
    finding = judge(BY_ID["engine.gaudi_packages"], m.engine(packages=has)(m.facts("hls2")))
    assert finding.message.render("en") == (
        "/opt/engine/bin/python lacks habana-torch-dataloader, habana-media-loader, which the "
        "engine's guide lists. Found: habana-torch-plugin, habana-pyhlml, neural-compressor-pt."
    )
    assert finding.remedy is not None
    assert finding.remedy.commands == (
        (
            "wget -nv "
            "https://vault.habana.ai/artifactory/gaudi-installer/1.22.1/habanalabs-installer.sh"
        ),
        "chmod +x habanalabs-installer.sh",
        "./habanalabs-installer.sh install --type pytorch",
    )


def test_another_driver_than_the_engines_has_the_packages_and_commands_of_its_release() -> None:
    older = m.both(m.engine(torch_plugin="1.21.0.555"), m.settings(os_id="rhel", os_version="9.4"))
    remedy = judge(BY_ID["driver.user_space"], older(m.facts("hls2"))).remedy
    assert remedy is not None
    assert remedy.commands == (
        (
            "wget -nv "
            "https://vault.habana.ai/artifactory/gaudi-installer/1.21.0/habanalabs-installer.sh"
        ),
        "chmod +x habanalabs-installer.sh",
        "./habanalabs-installer.sh upgrade --type base",
    )
    assert [step.render("en") for step in remedy.steps] == [
        "Packages of release 1.21.0: habanalabs-dkms-1.21.0-555, habanalabs-firmware-1.21.0-555, "
        "habanalabs-firmware-tools-1.21.0-555, habanalabs-graph-1.21.0-555, "
        "habanalabs-rdma-core-1.21.0-555, habanalabs-thunk-1.21.0-555",
        "Flash the SPI firmware only if the release notes require it: sudo hl-fw-loader (package "
        "habanalabs-firmware-odm), with the driver unloaded.",
    ]
    assert remedy.fix is None


@pytest.mark.parametrize(
    ("os", "between", "notes"),
    [
        (("ubuntu", "24.04"), "=", 0),
        (("opencloudos", "9.2"), "-", 2),
        (("debian", "12"), "=", 1),
    ],
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


def test_a_host_without_a_driver_gets_the_installer_of_the_engines_release() -> None:
    facts = m.facts("hls2+no-driver")
    installed = replace(
        facts, wants=Wants(), engine=replace(m.GOOD_ENGINE, torch_plugin="1.22.2.32")
    )
    steps = [
        judge(BY_ID["driver.loaded"], each).remedy
        for each in (installed, replace(installed, engine=None))
    ]
    lines = [each.steps[0].render("en") for each in steps if each is not None]
    assert lines == [
        f"If no driver is installed, install release {release} with Intel's installer: wget -nv "
        f"https://vault.habana.ai/artifactory/gaudi-installer/{release}/habanalabs-installer.sh; "
        f"chmod +x habanalabs-installer.sh; ./habanalabs-installer.sh {action} --type base"
        for release, action in (("1.22.2", "upgrade"), ("1.24.1", "upgrade"))
    ]


def test_a_laptop_fails_once() -> None:
    facts = laptop(m.facts())
    findings = quick(facts.host, facts.config)
    assert [f.id for f in findings if f.status == "fail"] == ["cards.present"]
    assert int(runner.exit_code(findings)) == 3


def test_order_of_areas_and_slow_ones_last() -> None:
    areas = list(dict.fromkeys(c.area for c in CHECKS if c.level == "quick"))
    host = ["cpu", "kernel", "memory", "driver", "cards", "network", "container"]
    assert areas == [*host, "engine", "gateway", "weights", "cache"]
    levels = [LEVELS.index(c.level) for c in CHECKS]
    assert levels == sorted(levels)


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


def test_quick_takes_under_a_second_and_two_hl_smi_calls_on_a_large_machine() -> None:
    machine = simulated.build("gaudi3-oam")
    calls: list[Sequence[str]] = []

    def ask(arguments: Sequence[str]) -> HlSmiOutput:
        calls.append(arguments)
        return machine.ask(arguments)

    with within(1):
        host = assemble(machine.view, ask)
        findings = quick(host, host_config.read_config(machine.view))
    assert len(host.cpu_siblings) == 224
    assert len(host.cards) == 8
    assert len(calls) <= 2
    assert len(findings) > 30


def test_settings_travel_in_a_snapshot_and_are_judged_alike() -> None:
    from gaudi_launch.host.snapshot import read_record

    for name in ("hls2", "gaudi3-oam+bad-tuning"):
        facts = m.facts(name)
        document = json.loads(json.dumps(host_config.to_json(facts.config)))
        assert read_record(HostConfig, document, "config") == facts.config


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
    with pytest.raises(LaunchError) as error:
        runner.stop_on_failures(quick(good.host, good.config, Wants(modules=(2, 3))))
    assert (error.value.id, int(error.value.exit_code)) == ("doctor.stops", 3)
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


@pytest.mark.parametrize("name", simulated.NAMES)
def test_a_known_good_amd_server_is_only_ok(name: str) -> None:
    findings = runner.run(runner.select(levels=("quick", "slow")), m.facts(f"{name}+amd"))
    assert [(f.id, f.message.render()) for f in findings if f.status != "ok"] == []


def test_an_assumed_limit_is_called_assumed() -> None:
    hot = judge(BY_ID["cards.temperature"], m.facts("hls2+hot=3"))
    assert "104 C" in hot.message.render("en")
    assert "assumed" in hot.message.render("en")
    share = judge(
        BY_ID["memory.hugepages"],
        m.both(m.settings(hugepages_total=8), m.wants(cards=2))(m.facts()),
    )
    assert "3750 x 2 MiB (assumed" in share.message.render("en")
    whole = judge(BY_ID["memory.hugepages"], m.settings(hugepages_total=8)(m.facts()))
    assert "assumed" not in whole.message.render("en")


def test_a_slowed_card_is_named_with_what_slows_it() -> None:
    finding = judge(BY_ID["cards.throttling"], m.facts("hls2+hot=3"))
    sentence = finding.message.render("en")
    assert "module 3: HW Slowdown" in sentence
    assert "module 3: Thermal Slowdown" in sentence
    assert "module 3: stats.violation.thermal 1250" in sentence
    assert "module 2" not in sentence


def test_the_condition_of_the_cards_is_read_once() -> None:
    asked: list[str] = []
    machine = simulated.build("hls2")

    def ask(arguments: Sequence[str]) -> HlSmiOutput:
        asked.append(" ".join(arguments))
        return machine.ask(arguments)

    facts = replace(m.facts(), ask=ask)
    for name in ("cards.throttling", "cards.rows", "driver.firmware_pair"):
        assert judge(BY_ID[name], facts).status == "ok"
    assert asked == ["-L", "-Q index,stats.violation.thermal,stats.violation.power -f csv"]


def test_missing_packages_are_installed_in_the_drivers_release() -> None:
    facts = m.without_packages("habanalabs-thunk")(m.facts())
    remedy = judge(BY_ID["driver.missing_packages"], facts).remedy
    assert remedy is not None
    assert remedy.commands == ("sudo apt-get install habanalabs-thunk=1.22.1-6",)


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


SHORT = [check for check in CHECKS if check.level != "deep"]


def _recorded(check: Check) -> list[str]:
    """Return what a check states of each machine that is drawn for it."""
    lines = [f"==== {check.id} needs {check.needs} level {check.level} {check.seconds:g} s"]
    for name, change in (
        *((name, m.both()) for name in ("hls2", "gaudi2e-8", "hls2+amd")),
        *((each[2], each[3]) for each in CASES if each[0] == check.id),
    ):
        lines += [f"== {name}", *_stated(change(m.facts(name)), check)]
    return lines


@pytest.mark.parametrize("area", sorted({check.area for check in SHORT}))
def test_each_finding_states_what_is_recorded(area: str) -> None:
    checks = [check for check in SHORT if check.area == area]
    golden(
        f"doctor/{area}.txt", "\n".join(line for each in checks for line in _recorded(each)) + "\n"
    )


def test_a_check_that_nothing_names_is_refused_with_the_areas() -> None:
    for only, without in ((["cpu", "nothing"], []), ([], ["nothing"])):
        with refused(
            "doctor.unknown_check",
            ExitCode.USAGE,
            found="nothing",
            known=", ".join(dict.fromkeys(check.id.split(".")[0] for check in CHECKS)),
        ):
            runner.select(only, without)


def test_checks_are_chosen_by_id_area_and_level() -> None:
    ids = [check.id for check in runner.select(["cpu"], ["cpu.turbo"])]
    assert ids == ["cpu.governor", "cpu.pstate_driver", "cpu.idle_states", "cpu.max_cstate"]
    assert [check.id for check in runner.select(["cpu.turbo"], levels=())] == ["cpu.turbo"]
    assert [check.id for check in runner.select(levels=(), only=())] == []
    without = {check.area for check in runner.select(without=["cpu", "cards"])}
    assert not without & {"cpu", "cards"} and "kernel" in without
