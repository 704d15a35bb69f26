"""doctor: what is read of a machine, repairs and their rights, the file for support."""

from __future__ import annotations

import getpass
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app import doctor as cases
from gaudi_launch.app.doctor import DoctorReport, DoctorRequest, FixPlan, FixResult
from gaudi_launch.doctor import bundle, remedies
from gaudi_launch.doctor.findings import (
    DoctorFacts,
    EngineFacts,
    Finding,
    Remedy,
)
from gaudi_launch.doctor.remedies import Change, RemedyOutcome
from gaudi_launch.engines import detect as detection
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host import host_config
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


# --- facts ---------------------------------------------------------------------------------------


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


# --- repairs -------------------------------------------------------------------------------------


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
