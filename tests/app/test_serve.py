"""serve up to the process: refusals, the job, locks, containers. No engine is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app import serve
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.serve import ServeMode
from gaudi_launch.engines import detect as detection
from gaudi_launch.engines import registry as engines
from gaudi_launch.engines.detect import Installed
from gaudi_launch.errors import ExitCode
from gaudi_launch.host.simulated import write_tree
from gaudi_launch.services import service
from gaudi_launch.services.log.follow import LaunchProgress
from gaudi_launch.services.process import detach
from gaudi_launch.services.process.supervise import EngineOutcome
from gaudi_launch.services.state import orphans, store
from gaudi_launch.services.state.job import ServiceJob
from tests.support.refusals import refused
from tests.support.serve import model

__all__ = ["model"]

pytestmark = pytest.mark.usefixtures("plain_english")

SIMULATED = next(name for name in engines.ENGINES if engines.simulated_machine(name))
OUTCOME = EngineOutcome("stopped", 0, LaunchProgress())


class Launcher:
    """Takes the place of the engine's launcher, detached or not."""

    def __init__(self) -> None:
        self.jobs: list[ServiceJob] = []
        self.plans: list[Mapping[str, Any]] = []
        self.environments: list[Mapping[str, str]] = []
        self.handles: list[int] = []
        self.watchers: list[type] = []

    def spawn(
        self, job: ServiceJob, plan: Mapping[str, Any], environment: Mapping[str, str], held: Any
    ) -> int:
        # the name's lock, one of each card and one of the port are open
        for handle in held:
            os.fstat(handle)
        self.jobs.append(job)
        self.plans.append(plan)
        self.environments.append(environment)
        self.handles.append(len(held))
        return 1

    def run(
        self, job: ServiceJob, watcher: Any, environment: Mapping[str, str], say: Any
    ) -> EngineOutcome:
        folder = store.service_dir(job.name)
        assert ServiceJob.from_json(store.read(folder, "job.json"), folder) == job
        self.plans.append(store.read(folder, "plan.json") or {})
        self.jobs.append(job)
        self.environments.append(environment)
        self.watchers.append(type(watcher))
        return OUTCOME


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a machine, whose cards no test keeps."""
    folder = tmp_path_factory.mktemp("machine")
    write_tree("hls2", folder)
    return folder


@pytest.fixture
def launcher(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """Use a machine with eight cards and an installed engine, of which nothing is started."""
    made = Launcher()
    installed = Installed("/engine/python", "vllm-fork@1.21")
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(machine))
    monkeypatch.setenv("PATH", f"{machine / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.setattr(detection, "detect", lambda python=None: installed)
    monkeypatch.setattr(detach, "spawn", made.spawn)
    monkeypatch.setattr(service, "run", made.run)
    monkeypatch.setattr(orphans, "orphans", list)
    return made


# --- containers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "how", "id", "values"),
    [
        ({}, ServeMode(place="jail"), "render.place", {"found": "jail", "known": "docker, podman"}),
        ({}, ServeMode(image="i"), "render.image_alone", {}),
        ({"python": "p"}, ServeMode(place="docker"), "render.python_inside", {}),
        (
            {"engine": SIMULATED},
            ServeMode(place="docker"),
            "simulated.here_only",
            {},
        ),
        (
            {"model": "demo", "engine": "vllm-fork"},
            ServeMode(place="podman"),
            "render.demo_inside",
            {},
        ),
    ],
)
def test_options_that_exclude_a_container_are_refused(
    given: dict[str, Any], how: ServeMode, id: str, values: dict[str, str]
) -> None:
    with refused(id, ExitCode.USAGE, **values):
        serve._check_place(LaunchOptions(**{"model": "m", **given}), how)
