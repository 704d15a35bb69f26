"""Environments that are complete or in use are left alone, by whatever path they are reached."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.paths import engines_dir
from gaudi_launch.core.engines.base import VLLM
from gaudi_launch.core.engines.install import installation
from gaudi_launch.core.engines.install.in_use import check_unused, in_use
from gaudi_launch.core.engines.install.step_runner import InstallStep
from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.services import service
from gaudi_launch.core.services.process.detach import _Lines
from gaudi_launch.core.services.state import registry
from gaudi_launch.core.services.state.job import ServiceJob
from gaudi_launch.extensions.ray.engine import VERSION
from gaudi_launch.extensions.ray.install import RAY
from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED
from tests.support.refusals import failing


@pytest.fixture
def engines(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of engines, reached by a link: two homes have it."""
    real = tmp_path / "disk" / "engines"
    real.mkdir(parents=True)
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path / "home" / "engines"))
    return real


def make(folder: Path, marker: dict[str, str] | None, python: str = sys.executable) -> None:
    """An environment with this marker; None for one that was not finished."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(python)
    (folder / "kept").write_text("", encoding="utf-8")
    if marker is not None:
        (folder / "gaudi-launch.json").write_text(json.dumps(marker), encoding="utf-8")


def refused(id: str, folder: Path) -> None:
    """A setup is refused, and nothing was changed or run."""
    said: list[str] = []
    place = EMBEDDED if folder.name == "cpu" else RAY
    with failing(id, ExitCode.FAILED) as caught:
        place.setup(said.append, demo=False)
    assert str(engines_dir() / folder.name) in str(caught.value)
    assert (folder / "kept").exists()
    assert not [line for line in said if line.startswith("[")]


@dataclass
class Stand:
    """Stands in for the commands of an installation: makes the environment, notes what ran.

    Its interpreter accepts any import.
    """

    python: str = "/bin/true"
    ran: list[str] = field(default_factory=list)

    def run_steps(self, steps: list[InstallStep], say: object, *more: object) -> None:
        self.ran.extend(step.id for step in steps)
        shutil.rmtree(steps[0].argv[-1], ignore_errors=True)
        make(Path(steps[0].argv[-1]), None, self.python)


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    """No package is downloaded."""
    found = Stand()
    monkeypatch.setattr(installation, "run_steps", found.run_steps)
    return found


def test_another_version_of_the_engine_is_installed_beside(engines: Path, stand: Stand) -> None:
    make(engines / "cpu", {"vllm": "0.1.0"})
    assert EMBEDDED.environment() == engines_dir() / "cpu"
    EMBEDDED.setup(lambda line: None, demo=False)
    assert (engines / "cpu" / "kept").exists()
    assert EMBEDDED.environment() == engines_dir() / "cpu+2"
    assert (stand.ran[0], EMBEDDED.is_ready()) == ("serve.setup_venv", True)
    # rolled back on purpose: the old one is used, until a setup is asked for
    assert EMBEDDED.versions().roll_back() == (engines_dir() / "cpu", engines_dir() / "cpu+2")
    assert (EMBEDDED.is_ready(), EMBEDDED.is_newest()) == (True, False)
    before = list(stand.ran)
    EMBEDDED.setup(lambda line: None, demo=False)
    assert (EMBEDDED.environment(), stand.ran) == (engines_dir() / "cpu+2", before)


def test_a_marker_that_cannot_be_read_is_no_leave_to_clear(engines: Path) -> None:
    make(engines / "cpu", None)
    (engines / "cpu" / "gaudi-launch.json").write_text("{", encoding="utf-8")
    refused("setup.complete_other", engines / "cpu")


def test_ray_beside_another_engine_is_left_alone(engines: Path) -> None:
    make(engines / "cpu", {"vllm": VLLM})
    marker = {"ray": VERSION, "vllm": VLLM, "beside": "/container/engines/cpu"}
    make(engines / "ray", marker)
    assert not RAY.is_ready()
    refused("setup.complete_other", engines / "ray")


def test_a_service_keeps_its_environment_as_long_as_it_runs(engines: Path) -> None:
    make(engines / "cpu", None)
    seen: list[str] = []

    class Watcher(_Lines):
        def started(self, pid: int) -> None:
            with pytest.raises(LaunchError) as caught:
                check_unused(engines / "cpu")
            seen.append(caught.value.id)

    command = Command((str(engines_dir() / "cpu/bin/python"), "-c", ""), {})
    job = ServiceJob("a", "m", "/m", "vllm-cpu@1", "http://127.0.0.1:1", command, bind=False)
    with registry.hold("a"):
        service.run(job, Watcher(), os.environ, seen.append)
    assert seen == ["setup.in_use"]
    check_unused(engines / "cpu")


def test_what_is_no_environment_of_ours_needs_no_lock(engines: Path) -> None:
    for program in (sys.executable, "docker", "python3"):
        with in_use(program, engines_dir()):
            assert list(engines.iterdir()) == []
