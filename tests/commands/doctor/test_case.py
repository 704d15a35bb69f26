"""doctor: what is read of a machine, repairs and their rights, the file for support."""

from __future__ import annotations

import getpass
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.commands.doctor import case as cases
from gaudi_launch.commands.doctor import remedies
from gaudi_launch.commands.doctor.case import DoctorReport, DoctorRequest, FixPlan, FixResult
from gaudi_launch.commands.doctor.remedies import Change, RemedyOutcome
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.findings import DoctorFacts, EngineFacts, Finding, Remedy
from gaudi_launch.core.host.host_config import load_config
from gaudi_launch.core.host.simulated import make
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

MACHINE = "simulated:hls2"
WORDS = message("services.drain", found=1)


def finding(status: str, remedy: Remedy | None = None) -> Finding:
    return Finding(status, WORDS, remedy=remedy, id="host.x", title=WORDS, why=WORDS, source="")


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


def test_an_interpreter_that_cannot_be_read_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python3"
    broken.symlink_to("/bin/false")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    values = {"path": str(broken), "why": "exit status 1"}
    problem = message("engines.python_bad", **values).render()
    assert cases.collect(DoctorRequest(python=str(broken))).engine == EngineFacts(
        str(broken), problem=problem
    )
    assert cases.collect(DoctorRequest()).engine is None
    with refused("engines.no_python", ExitCode.USAGE, path="/gone"):
        cases.collect(DoctorRequest(python="/gone"))


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
    ("host", "user", "kept"),
    [
        ("server7", "alice", ""),
        ("localhost", "root", "localhost root"),
        ("ab", "", "ab"),
        ("server7", None, ""),
    ],
)
def test_names_of_people_and_hosts_are_removed(
    host: str, user: str | None, kept: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def getuser() -> str:
        if user is None:
            raise KeyError("no user")
        return user

    monkeypatch.setattr(getpass, "getuser", getuser)
    facts = report().facts
    facts = replace(facts, host=replace(facts.host, hostname=host))
    said = [name for name in (host, user) if name]
    for keep_names, left in ((False, kept.split()), (True, said)):
        target = tmp_path / f"{keep_names}.tar.gz"
        count = cases.write_bundle(facts, {"said": said}, target, keep_names=keep_names)
        with tarfile.open(target) as archive:
            files = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
        assert count == len(files)
        [shown] = [
            json.loads(text) for name, text in files.items() if name.endswith("findings.json")
        ]
        assert [name for name in shown["said"] if "[" not in name] == left
