"""The services that keep running from a version that was replaced."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gaudi_launch.app import setup
from gaudi_launch.engines.install.in_use import in_use
from gaudi_launch.engines.vllm_cpu import install as cpu_install
from gaudi_launch.paths import engines_dir
from gaudi_launch.services.state import registry, store


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
        cpu_install.versions().put_in_force(folder)
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


def test_a_version_that_another_user_runs_is_known_by_its_lock(
    two_versions: tuple[Path, Path],
) -> None:
    second = two_versions[1]
    with in_use(str(second / "bin" / "python"), engines_dir()):
        done = setup.roll_back(None)
    assert (done.replaced.services, done.replaced.used, done.replaced.others) == ((), True, ())


def test_a_dry_run_changes_nothing(two_versions: tuple[Path, Path]) -> None:
    done = setup.roll_back("cpu", dry_run=True)
    assert done.folder == two_versions[0]
    assert cpu_install.environment_dir() == two_versions[1]
