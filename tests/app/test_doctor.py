"""doctor: what is read of a machine, repairs and their rights, the file for support."""

from __future__ import annotations

import getpass
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import doctor as cases
from gaudi_launch.app.doctor import DoctorReport, DoctorRequest, FixPlan, FixResult
from gaudi_launch.doctor import bundle, remedies, runner
from gaudi_launch.doctor.findings import (
    DoctorFacts,
    EngineFacts,
    Finding,
    GatewayFacts,
    Pins,
    Remedy,
    Wants,
)
from gaudi_launch.doctor.remedies import Change, RemedyOutcome
from gaudi_launch.engines import detect as detection
from gaudi_launch.engines import pins
from gaudi_launch.engines.detect import Installed
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.gateway import program
from gaudi_launch.host import hl_smi, host_config
from gaudi_launch.host.host_config import load_config
from gaudi_launch.host.simulated import make
from gaudi_launch.messages import message
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

MACHINE = "simulated:hls2"
WORDS = message("services.drain", found=1)


def finding(status: str, remedy: Remedy | None = None) -> Finding:
    return Finding("host.x", status, WORDS, WORDS, "", WORDS, remedy=remedy)


def report(*findings: Finding, container: bool = False) -> DoctorReport:
    host = replace(make("hls2"), in_container=container)
    return DoctorReport(DoctorFacts(host, load_config(MACHINE)), findings)


def outcome(status: str) -> RemedyOutcome:
    return RemedyOutcome("/p", status)


# --- exit codes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "strict", "code"),
    [
        ("ok", True, ExitCode.DONE),
        ("warn", False, ExitCode.DONE),
        ("warn", True, ExitCode.MACHINE),
        ("fail", False, ExitCode.MACHINE),
    ],
)
def test_the_exit_code_is_that_of_the_worst_finding(
    status: str, strict: bool, code: ExitCode
) -> None:
    found = report(finding("ok"), finding(status))
    assert found.exit_code(strict) is code
    plan = FixPlan(DoctorRequest(), report(), ())
    assert FixResult(plan, (outcome("changed"),), found).exit_code(strict) is code
    failed = FixResult(plan, (outcome("changed"), outcome("failed")), found)
    assert failed.exit_code(strict) is ExitCode.FAILED


def test_a_selection_is_partial() -> None:
    assert not DoctorRequest().partial
    assert DoctorRequest(only=("a",)).partial and DoctorRequest(skip=("a",)).partial


# --- facts ---------------------------------------------------------------------------------------


def test_a_simulated_machine_answers_for_hl_smi_and_has_no_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(detection, "detect", lambda python=None: pytest.fail("an interpreter"))
    (tmp_path / "config.json").write_text("{}")
    wants = Wants(cards=2)
    facts = cases.collect(DoctorRequest(MACHINE, wants=wants, weights=str(tmp_path)))
    assert (facts.host, facts.config, facts.wants) == (make("hls2"), load_config(MACHINE), wants)
    assert (facts.engine, facts.live, facts.gateway) == (None, False, None)
    assert facts.ask is not None and facts.files is not None and facts.weights is not None
    assert cases.collect(DoctorRequest(MACHINE)).weights is None


def test_this_machine_is_read_with_engine_and_gateway(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ask: Any = print
    engine, gateway = EngineFacts("/p"), GatewayFacts("/g", "1", "2")
    monkeypatch.setattr("gaudi_launch.host.machine.load", lambda name: make("hls2"))
    monkeypatch.setattr(hl_smi, "find", lambda: ask)
    monkeypatch.setattr(cases, "_engine", lambda request, serves: engine if serves else None)
    monkeypatch.setattr(cases, "_gateway", lambda: gateway)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    facts = cases.collect(DoctorRequest())
    assert (facts.ask, facts.live, facts.engine, facts.gateway) == (ask, True, engine, gateway)
    assert facts.files is not None


def test_the_gateway_is_checked_where_it_was_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program, "environment_dir", lambda: tmp_path / "gone")
    assert cases._gateway() is None
    monkeypatch.setattr(program, "environment_dir", lambda: tmp_path)
    monkeypatch.setattr(program, "answer", lambda: "HAProxy 3")
    assert cases._gateway() == GatewayFacts(str(tmp_path), program.HAPROXY, "HAProxy 3")


def test_an_interpreter_counts_where_it_is_named_or_has_an_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: dict[str | None, Any] = {None: Installed("/path/python", ""), "/p": Installed("/p", "")}
    deviations = (SimpleNamespace(package="torch", installed="2", pinned=("1", "3")),)
    monkeypatch.setattr(detection, "detect", lambda python=None: found[python])
    monkeypatch.setattr(pins, "compare_pins", lambda installed: None)
    engine, here = cases._engine, DoctorRequest()
    assert engine(DoctorRequest(MACHINE), serves=False) is None
    assert engine(here, serves=False) is None
    # serve would stop there
    assert engine(here, serves=True) == EngineFacts("/path/python", packages=frozenset())
    named = engine(DoctorRequest(MACHINE, "/p"), serves=False)
    assert named is not None and (named.python, named.name, named.pins) == ("/p", None, None)
    found[None] = Installed("/path/python", "vllm-gaudi")
    compared: Any = SimpleNamespace(file="/pins.txt", deviations=deviations)
    monkeypatch.setattr(pins, "compare_pins", lambda installed: compared)
    own = engine(here, serves=False)
    assert own is not None
    assert (own.name, own.pins) == ("vllm-gaudi", Pins("/pins.txt", (("torch", "2", "1 / 3"),)))
    found["/p"] = None
    assert engine(DoctorRequest(python="/p"), serves=True) is None


def test_an_interpreter_that_cannot_be_read_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    error = LaunchError("services.drain", ExitCode.MACHINE, found=1)

    def detect(python: str | None = None) -> None:
        raise error

    monkeypatch.setattr(detection, "detect", detect)
    here, named = DoctorRequest(), DoctorRequest(python="/p")
    assert cases._engine(here, serves=True) is None
    assert cases._engine(named, serves=True) == EngineFacts("/p", problem=str(error))
    error = LaunchError("engines.no_python", ExitCode.USAGE, path="/p")
    with refused("engines.no_python", ExitCode.USAGE, path="/p"):
        cases._engine(named, serves=True)
    assert cases._engine(here, serves=True) is None


def test_slow_checks_run_and_deep_ones_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def select(*words: Any) -> list[str]:
        asked.append(words)
        return ["check"]

    monkeypatch.setattr(runner, "select", select)
    monkeypatch.setattr(
        runner, "run", lambda checks, facts, *, named: [finding("ok")] if named == ("a",) else []
    )
    request = DoctorRequest(MACHINE, only=("a",), skip=("b",))
    found = cases.check(request)
    assert found.findings == (finding("ok"),)
    assert asked == [(("a",), ("b",)), (("a",), ("b",), ("quick", "slow"))]
    cases.check(replace(request, deep=True))
    assert asked[-1] == (("a",), ("b",), ("quick", "slow", "deep"))


# --- repairs -------------------------------------------------------------------------------------


def test_repairs_follow_from_the_findings_without_the_tests_of_cards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    fixable = finding("warn", Remedy(WORDS, fix="hugepages"))
    before = report(fixable)
    monkeypatch.setattr(cases, "collect", lambda request: before.facts)
    monkeypatch.setattr(cases, "_run", lambda request, facts: seen.append(request) or before)  # type: ignore[func-returns-value]
    change = Change("hugepages", "/p", "1", True)
    monkeypatch.setattr(remedies, "planned", lambda *words: seen.append(words) or [change])  # type: ignore[func-returns-value]
    request = DoctorRequest(MACHINE, deep=True, wants=Wants(cards=1))
    found = cases.plan_fix(request)
    shallow = replace(request, deep=False)
    assert found == FixPlan(shallow, before, (change,))
    assert seen == [shallow, ((fixable,), before.facts.config, Wants(cards=1))]
    assert found.root == Path(before.facts.config.root)
    before = report(fixable, container=True)
    with refused("doctor.fix.container", ExitCode.MACHINE):
        cases.plan_fix(request)
    # what cannot be repaired is no reason
    before = report(finding("fail", Remedy(WORDS)), finding("fail"), container=True)
    cases.plan_fix(request)


def test_files_of_root_are_named_with_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    mended = Remedy(WORDS, ("one", "two"), ("two", "keep"), fix="a")
    before = report(
        finding("warn", mended),
        finding("fail", replace(mended, commands=("one", "three"), persist=())),
        finding("ok", replace(mended, commands=("not needed",))),
        finding("fail", replace(mended, commands=("other",), fix="b")),
        finding("fail"),
    )
    plan = FixPlan(DoctorRequest(), before, (Change("a", "/x", "1", True),))
    files = ["/1", "/2", "/3"]
    monkeypatch.setattr(remedies, "refused", lambda root, changes: files)
    commands = ["sudo gaudi-launch doctor --fix", "one", "two", "keep", "three"]
    detail = "\n".join(f"  {command}" for command in commands)
    with pytest.raises(LaunchError) as raised:
        cases.check_rights(plan)
    error = raised.value
    assert (error.id, error.exit_code, error.detail) == ("doctor.fix.root", ExitCode.FAILED, detail)
    assert dict(error.text.values) == {"paths": "/1, /2, /3"}
    files += ["/4", "/5"]
    with pytest.raises(LaunchError) as raised:
        cases.check_rights(plan)
    assert raised.value.text.values["paths"] == "/1, /2, /3 (+2)"
    files.clear()
    cases.check_rights(plan)


def test_a_repair_is_checked_again_and_nothing_is_no_repair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, after = report(finding("fail")), report(finding("ok"))
    monkeypatch.setattr(remedies, "apply", lambda root, changes: [outcome("changed")])
    monkeypatch.setattr(cases, "collect", lambda request: after.facts)
    monkeypatch.setattr(cases, "_run", lambda request, facts: after)
    change = Change("a", "/x", "1", True)
    plan = FixPlan(DoctorRequest(), before, (change,))
    assert cases.apply(plan) == FixResult(plan, (outcome("changed"),), after)
    nothing = replace(plan, changes=())
    assert cases.apply(nothing) == FixResult(nothing, (), before)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", "/machine")
    monkeypatch.setattr(remedies, "undo", lambda root: [root])
    found: Any = cases.undo()
    assert found == (Path("/machine"), [Path("/machine")])


# --- the file for support ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "user", "names"),
    [
        ("server7", "alice", ("server7", "alice")),
        ("localhost", "root", ()),
        ("ab", "", ()),
        ("server7", None, ("server7",)),
    ],
)
def test_names_of_people_and_hosts_are_removed(
    host: str,
    user: str | None,
    names: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def getuser() -> str:
        if user is None:
            raise KeyError("no user")
        return user

    seen: list[Any] = []
    monkeypatch.setattr(getpass, "getuser", getuser)
    monkeypatch.setattr(bundle, "Redactor", lambda keep, found: (keep, found))
    monkeypatch.setattr(bundle, "contents", lambda *words: seen.append(words) or {"a": 1, "b": 2})  # type: ignore[func-returns-value]
    monkeypatch.setattr(bundle, "write", lambda path, files: seen.append((path, files)))
    facts = report().facts
    facts = replace(facts, host=replace(facts.host, hostname=host))
    target = tmp_path / "bundle.tar.gz"
    assert cases.write_bundle(facts, {"r": 1}, target, keep_names=False) == 2
    snapshot, config, shown, redactor = seen[0]
    assert (snapshot["host"]["hostname"], config) == (host, host_config.to_json(facts.config))
    assert (shown, redactor, seen[1]) == ({"r": 1}, (False, names), (target, {"a": 1, "b": 2}))
    cases.write_bundle(facts, {}, target, keep_names=True)
    assert seen[2][3] == (True, names)
