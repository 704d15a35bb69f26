"""The phases of a calibration: their order, files, resumption and failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines.vllm_gaudi.calibration import CALIBRATION
from gaudi_launch.core.models.fp8.measurements import calibrated_folder
from gaudi_launch.core.services.process.step import StepProgress
from gaudi_launch.extensions.fp8 import calibration_run
from gaudi_launch.extensions.fp8.calibration_run import CalibrationTools, calibrate
from gaudi_launch.extensions.fp8.phases import CalibrationRequest, Scripts
from tests.support.refusals import failing, refused

OPTIONS = {2: ("--auto-process-dataset",), 3: (), 4: (), 5: (), 6: ()}
SCRIPTS = Scripts("/scripts", "step-3.py", OPTIONS, whole_experts=True)
REQUEST = CalibrationRequest("/m", "Model", 2, "g2", "/data.pkl", experts=True)
TOOLS = CalibrationTools(SCRIPTS, CALIBRATION, "/e/python", {"HABANA_VISIBLE_MODULES": "0,1"}, 60.4)


@dataclass
class Steps:
    """Stands for the processes: leaves what each one leaves, and keeps its call."""

    out: Path
    fails: Mapping[str, int | None] = field(default_factory=dict)
    leaves_nothing: str = ""
    error: OSError | None = None
    ran: list[str] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        log: Path,
        say: Callable[[StepProgress], None],
        quiet: float,
    ) -> int | None:
        if self.error is not None:
            raise self.error
        name = log.stem
        self.ran.append(name)
        self.calls.append((argv[0], dict(env), cwd, log, quiet))
        say(StepProgress(name, 1, 2))
        assert cwd.is_dir()
        if name != "measure":
            assert (self.out / "g2").is_dir()
        log.parent.mkdir(exist_ok=True)
        log.write_text(f"output of {name}\n")
        if name != self.leaves_nothing:
            self._leave(name)
        return self.fails.get(name, 0)

    def _leave(self, name: str) -> None:
        work = self.out / "work"
        if name == "dataset":
            (work / "model-calibration-dataset.pkl").touch()
        made = {
            "measure": self.out / "g2",
            "postprocess": work / "fixed",
            "unify": work / "unified",
            "expand": work / "expanded",
        }
        if name in made:
            made[name].mkdir(exist_ok=True)
            for rank in range(2):
                (made[name] / f"inc_output_hooks_maxabs_{rank}_2.npz").write_text(name)


class Watcher:
    """Keeps the events."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int, int]] = []
        self.steps: list[StepProgress] = []

    def phase(self, name: str, state: str, number: int, count: int) -> None:
        self.seen.append((name, state, number, count))

    def progress(self, progress: StepProgress) -> None:
        self.steps.append(progress)


@pytest.fixture
def steps(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps(calibrated_folder("Model", "g2", 2, "vllm-gaudi"))
    monkeypatch.setattr(calibration_run, "run_step", made.run)
    return made


@pytest.mark.parametrize(
    ("status", "id", "values"),
    [(7, "calibrate.failed", {"status": 7}), (None, "calibrate.stuck", {"seconds": 60})],
)
def test_a_phase_that_fails_is_named_and_continued_from(
    steps: Steps, status: int | None, id: str, values: dict[str, object]
) -> None:
    steps.fails = {"unify": status}
    with pytest.raises(LaunchError) as caught:
        calibrate(REQUEST, TOOLS, Watcher())
    error = caught.value
    log = str(steps.out / "logs" / "unify.log")
    assert (error.id, error.exit_code, error.detail) == (id, ExitCode.ENGINE, "output of unify")
    assert error.text.values == {"phase": "unify", "log": log, **values}
    # nothing that -d fp8 would read
    assert not (steps.out / "maxabs_quant_g2.json").exists()
    steps.fails, watcher = {}, Watcher()
    steps.ran.clear()
    calibrate(REQUEST, TOOLS, watcher)
    assert steps.ran == ["unify", "expand", "quantise"]
    assert watcher.seen[:3] == [
        ("dataset", "skip", 1, 6),
        ("measure", "skip", 2, 6),
        ("postprocess", "skip", 3, 6),
    ]


@pytest.mark.parametrize("name", ["dataset", "measure", "postprocess", "unify", "expand"])
def test_a_phase_that_leaves_nothing_has_failed(steps: Steps, name: str) -> None:
    out = steps.out
    steps.leaves_nothing = name
    missing = {
        "dataset": out / "work" / "model-calibration-dataset.pkl",
        "measure": out / "g2" / "inc_output_hooks_maxabs_0_2.npz",
        "postprocess": out / "work" / "fixed",
        "unify": out / "work" / "unified",
        "expand": out / "work" / "expanded",
    }
    with failing("calibrate.no_output", ExitCode.ENGINE) as caught:
        calibrate(REQUEST, TOOLS, Watcher())
    assert caught.value.detail == f"output of {name}"
    assert caught.value.text.values == {
        "phase": name,
        "path": str(missing[name]),
        "log": str(out / "logs" / f"{name}.log"),
    }
    assert steps.ran[-1] == name


def test_an_interpreter_that_does_not_start_is_named(steps: Steps) -> None:
    steps.error = FileNotFoundError(2, "No such file or directory")
    with refused(
        "calibrate.not_started",
        ExitCode.ENGINE,
        python="/e/python",
        why="No such file or directory",
    ):
        calibrate(REQUEST, TOOLS, Watcher())
