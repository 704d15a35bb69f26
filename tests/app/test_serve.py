"""serve up to the process: refusals, the job, locks, containers. No engine is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import serve
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.report import Silent
from gaudi_launch.app.serve import ServeMode, start
from gaudi_launch.engines import detect as detection
from gaudi_launch.engines import registry as engines
from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.releases import release_of
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.simulated import write_tree
from gaudi_launch.messages import text
from gaudi_launch.planning.container import Container
from gaudi_launch.planning.plan import Plan
from gaudi_launch.render import in_container as placing
from gaudi_launch.services import containers, service
from gaudi_launch.services.log.follow import LaunchProgress
from gaudi_launch.services.process import detach
from gaudi_launch.services.process.supervise import LIMITS, EngineOutcome
from gaudi_launch.services.state import orphans, registry, store
from gaudi_launch.services.state.job import ServiceJob
from tests.support.plans import planned
from tests.support.refusals import failing, refused
from tests.support.reporters import Lines
from tests.support.serve import model
from tests.support.waiting import unused_port

__all__ = ["model"]

pytestmark = pytest.mark.usefixtures("plain_english")

SIMULATED = next(name for name in engines.ENGINES if engines.simulated_machine(name))
OUTCOME = EngineOutcome("stopped", 0, LaunchProgress())


class Screen(Lines):
    """Keeps what is said and shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[tuple[Any, ...]] = []

    def screen(self, plan: Any, log: Path, *, quiet: bool) -> Any:
        self.shown.append(("screen", log.name, quiet))
        return self

    def begin(self) -> None:
        self.shown.append(("begin",))

    def close(self) -> None:
        self.shown.append(("close",))


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


def options(model: Path, **more: Any) -> LaunchOptions:
    port = str(unused_port())
    return LaunchOptions(model=str(model), cards="2", port=port, **more)


DETACHED = ServeMode(name="chat", no_doctor=True, quiet=True, detach=True)


def test_a_detached_service_gets_its_job_its_plan_and_the_locks(
    launcher: Launcher, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    screen = Screen()
    how = replace(DETACHED, phase_timeout="90", restart="on-failure")
    asked = options(model)
    started = start(asked, how, screen)
    [job] = launcher.jobs
    assert (started.name, started.outcome, started.log) == (
        "chat",
        None,
        store.service_dir("chat") / service.LOG,
    )
    assert (job.name, job.engine, job.url, job.modules, job.restart, job.bind, job.container) == (
        "chat",
        started.plan.engine.exact,
        f"http://127.0.0.1:{asked.port}",
        started.plan.placement.modules,
        "on-failure",
        # its cards and CPUs are those of a folder
        False,
        "",
    )
    assert len(job.modules) == 2
    assert job.limits == dict.fromkeys(LIMITS, 90.0)
    assert launcher.plans == [started.plan.to_json()]
    # one lock for the name, two cards, and at least one for the address
    assert launcher.handles[0] >= 4
    assert launcher.environments[0]["VLLM_API_KEY"] == "secret"
    assert screen.shown == [("screen", service.LOG, True), ("begin",)]
    # the locks of this process are released
    with registry.hold("chat"):
        pass


def test_a_service_in_the_foreground_is_recorded_and_watched(
    launcher: Launcher, model: Path
) -> None:
    screen = Screen()
    started = start(options(model), ServeMode(no_doctor=True), screen)
    [job] = launcher.jobs
    assert started.outcome == OUTCOME
    assert started.name == job.name == store.default_name("Small", job.url.rpartition(":")[2])
    assert launcher.plans == [started.plan.to_json()]
    assert job.limits == dict(LIMITS)
    assert launcher.watchers == [Screen]
    assert screen.shown == [("screen", service.LOG, False), ("begin",), ("close",)]


def test_cards_that_another_launch_reserved_are_not_used(
    launcher: Launcher, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, ...]] = []

    def first(job: ServiceJob, *words: Any) -> int:
        taken.append(job.modules)
        if len(taken) == 1:
            start(options(model), replace(DETACHED, name="second"), Silent())
        return 1

    monkeypatch.setattr(detach, "spawn", first)
    start(options(model), DETACHED, Silent())
    assert len({*taken[0], *taken[1]}) == 4


def test_processes_of_an_ended_launcher_are_reported(
    launcher: Launcher, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "orphans", lambda: ["a", "b"])
    screen = Screen()
    start(options(model), DETACHED, screen)
    assert screen.lines == [text("services.orphans_there", count=2)]


def test_a_machine_that_fails_a_check_starts_nothing(
    launcher: Launcher, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    def stop(findings: Any) -> None:
        found.append(findings)
        raise LaunchError("services.drain", ExitCode.MACHINE, found=1)

    monkeypatch.setattr("gaudi_launch.doctor.stop_on_failures", stop)
    with refused("services.drain", ExitCode.MACHINE, found=1):
        start(options(model), replace(DETACHED, no_doctor=False), Silent())
    assert (len(found), launcher.jobs) == (1, [])


def test_a_port_in_use_starts_nothing(launcher: Launcher, model: Path) -> None:
    import socket

    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(LaunchError) as raised:
            start(replace(options(model), port=port), DETACHED, Silent())
    assert raised.value.exit_code is ExitCode.MACHINE
    assert launcher.jobs == []


def test_a_missing_engine_and_incomplete_weights_are_refused(
    launcher: Launcher, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detection, "detect", lambda python=None: Installed("/p", ""))
    with failing("serve.to_do", ExitCode.MACHINE):
        start(options(model), DETACHED, Silent())
    monkeypatch.setattr(detection, "detect", lambda python=None: Installed("/p", "vllm-fork@1.21"))
    (model / "pytorch_model.bin").unlink()
    with pytest.raises(LaunchError) as raised:
        start(options(model), DETACHED, Silent())
    assert raised.value.exit_code is ExitCode.MODEL
    assert launcher.jobs == []


def test_words_are_checked_before_anything_is_read(
    launcher: Launcher, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaudi_launch.app.prepare.prepare", lambda *a, **k: pytest.fail("read"))
    for how in (
        ServeMode(name="no/name"),
        ServeMode(restart="always"),
        ServeMode(phase_timeout="soon"),
        ServeMode(place="jail"),
    ):
        with pytest.raises(LaunchError) as raised:
            start(options(model), how, Silent())
        assert raised.value.exit_code is ExitCode.USAGE


def test_an_engine_on_the_processor_takes_no_card(
    launcher: Launcher, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = Installed("/cpu/python", "cpu")
    monkeypatch.setattr(detection, "detect", lambda python=None: installed)
    asked = replace(options(model, engine="cpu", python="/cpu/python"), cards=None)
    made: list[Any] = []
    monkeypatch.setattr(serve, "_make_ready", lambda plan, reporter: made.append(plan))
    started = start(asked, DETACHED, Silent())
    [job] = launcher.jobs
    assert (job.modules, job.name, started.plan.placement.modules) == ((), "chat", ())
    assert [plan.url for plan in made] == [started.plan.url]


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


@pytest.mark.parametrize(
    ("given", "how"),
    [
        ({}, ServeMode()),
        ({"python": "p"}, ServeMode()),
        ({}, ServeMode(place="docker", image="i")),
        ({"model": "demo"}, ServeMode(place="docker")),
        ({"model": "demo", "engine": "cpu"}, ServeMode(place="podman")),
    ],
)
def test_options_of_a_container_are_taken(given: dict[str, Any], how: ServeMode) -> None:
    serve._check_place(LaunchOptions(**{"model": "m", **given}), how)


def test_a_plan_is_placed_in_the_container_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def in_container(plan: Any, host: Any, environment: Any, place: Any) -> Any:
        asked.append((plan, host, environment, place))
        return "placed"

    monkeypatch.setattr(placing, "in_container", in_container)
    monkeypatch.setattr(containers, "settable_limits", lambda program: f"limits of {program}")
    prepared: Any = SimpleNamespace(host="host", request=SimpleNamespace(environment={"A": "b"}))
    plan: Any = "plan"
    assert serve._housed(prepared, plan, ServeMode()) is plan
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 50)
    how = ServeMode(place="podman", image="i")
    placed: Any = serve._housed(prepared, plan, how)
    place: Any = placing.ContainerPlace("podman", "1000:50", "limits of podman", "i")  # type: ignore[arg-type]
    assert (placed, asked) == ("placed", [("plan", "host", {"A": "b"}, place)])
    monkeypatch.setattr(os, "getuid", lambda: 0)
    serve._housed(prepared, plan, how)
    assert asked[-1][3].user == ""


def contained(plan: Plan, container: Container) -> Plan:
    return replace(plan, command=replace(plan.command, container=container))


def test_an_image_that_setup_builds_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        containers,
        "check_program",
        lambda program, *, needs_cards: asked.append((program, needs_cards)),
    )
    there = {"found": False}
    monkeypatch.setattr(containers, "has_image", lambda image, program: there["found"])
    monkeypatch.setattr(containers, "make_ready", lambda container, say: asked.append("ready"))
    plan, _ = planned("vllm-fork@1.21")
    release = release_of(plan.engine.label, plan.engine.version)
    assert release is not None
    built = Container(release.built_image, (), modules=(0,))
    values = {"image": built.image, "engine": release.engine, "program": "docker"}
    with refused("render.not_built", ExitCode.MACHINE, **values):
        serve._check_built(built, plan)
    with refused("render.cpu_inside", ExitCode.MACHINE, **values):
        serve._check_built(replace(built, confined=True), plan)
    scale_out = replace(built, image=release.scale_out_image, modules=())
    scaled = {**values, "image": scale_out.image, "engine": f"{release.engine} --scale-out"}
    with refused("render.not_built", ExitCode.MACHINE, **scaled):
        serve._check_built(scale_out, plan)
    assert asked == [("docker", True), ("docker", True), ("docker", False)]
    asked.clear()
    # a published image is fetched, not built
    serve._make_ready(contained(plan, Container("org/published", ())), Silent())
    there["found"] = True
    serve._make_ready(contained(plan, built), Silent())
    assert asked == [("docker", False), "ready", ("docker", True), "ready"]
    serve._make_ready(plan, Silent())
    assert len(asked) == 4
