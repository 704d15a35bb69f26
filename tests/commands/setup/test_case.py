"""The services that keep running from a version that was replaced."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from gaudi_launch.commands.setup import case as setup
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.paths import engines_dir
from gaudi_launch.core.services.state import registry, store
from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED
from tests.support.refusals import refused


@pytest.fixture
def two_versions(
    own_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """The embedded engine in two versions, the second one in force."""
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path / "engines"))
    folders = tmp_path / "engines" / "cpu", tmp_path / "engines" / "cpu+2"
    for folder in folders:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "gaudi-launch.json").write_text(
            json.dumps({"vllm": folder.name}), encoding="utf-8"
        )
        EMBEDDED.versions().put_in_force(folder)
    return folders


def record(name: str, python: Path) -> None:
    """Write the plan of a service."""
    folder = store.service_dir(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(
        json.dumps({"engine": {"python": str(python)}}), encoding="utf-8"
    )
    (folder / "state.json").write_text(
        json.dumps({"schema": 1, "phase": "ready"}), encoding="utf-8"
    )


def test_only_running_services_of_the_replaced_version_are_named(
    two_versions: tuple[Path, Path],
) -> None:
    first, second = two_versions
    record("old", first / "bin" / "python")
    record("new", second / "bin" / "python")
    record("ended", second / "bin" / "python")
    with registry.hold("old"), registry.hold("new"):
        done = setup.roll_back("cpu")
    assert (done.folder, done.replaced.old, done.replaced.services) == (first, second, ("new",))
    assert done.python == engines_dir() / "cpu.current" / "bin" / "python"


# --- the version before --------------------------------------------------------------------------


def test_without_an_earlier_version_nothing_is_rolled_back(
    two_versions: tuple[Path, Path],
) -> None:
    first, second = two_versions
    with refused("setup.no_version_before", ExitCode.USAGE, engine="ray"):
        setup.roll_back("ray")
    (first / "bin" / "python").unlink()
    broken = {"path": str(first), "python": str(first / "bin/python"), "engine": "cpu"}
    with refused("setup.version_broken", ExitCode.FAILED, **broken):
        setup.roll_back("cpu")
    assert EMBEDDED.environment() == second


def test_a_link_that_cannot_be_changed_is_an_error(two_versions: tuple[Path, Path]) -> None:
    link = EMBEDDED.versions().link
    # the place of the new link
    link.with_name(f".{link.name}.new").mkdir()
    why = os.strerror(errno.EISDIR)
    with refused("setup.switch_failed", ExitCode.FAILED, path=str(link), why=why):
        setup.roll_back("cpu")
    assert EMBEDDED.environment() == two_versions[1]
