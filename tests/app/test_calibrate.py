"""calibrate: options, the engine's scripts, data sets, and the request that the phases get."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import calibrate as cases
from gaudi_launch.app import machine, model_needs, model_setup
from gaudi_launch.app.calibrate import CalibrateOptions, CalibrationResult, calibrate
from gaudi_launch.app.model_setup import Wanted
from gaudi_launch.app.report import Silent
from gaudi_launch.engines import detect as detection
from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.registry import find
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.simulated import make
from gaudi_launch.models.calibration.phases import CalibrationRequest, Scripts, read_scripts
from gaudi_launch.models.hub import local
from gaudi_launch.services import calibration_run
from gaudi_launch.services.state import reservation
from tests.support.calibration_scripts import DEEPSEEK, write_scripts
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "hidden_size": 256,
}
PLUGIN = Installed("/engine/python", "vllm-gaudi")
OLD_SCRIPTS = Scripts("/scripts", "step-3", {2: ("--dataset",)})
NEW_SCRIPTS = Scripts("/scripts", "step-3", {2: ("--auto-process-dataset",)})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "Qwen3-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


class Phases:
    """The request and the tools that the phases would get."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def calibrate(self, request: Any, tools: Any, watcher: Any, *, again: bool) -> str:
        self.calls.append((request, tools, again))
        return "file"


@pytest.fixture
def phases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Phases:
    """Use eight cards and an installed plugin with scripts, of which nothing runs."""
    made = Phases()
    monkeypatch.setattr(machine, "load", lambda name=None: make("hls2+busy=0"))
    monkeypatch.setattr(detection, "detect", lambda python=None: PLUGIN)
    monkeypatch.setattr(calibration_run, "calibrate", made.calibrate)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "machine"))
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)
    return made


def scripts(tmp_path: Path, release: str = "vllm-gaudi") -> Path:
    return write_scripts(tmp_path / "scripts", release)


def test_the_phases_get_model_cards_and_data_set(
    phases: Phases, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = tmp_path / "set.pkl"
    dataset.write_bytes(b"set")
    options = CalibrateOptions(
        str(model),
        cards="2",
        dataset=str(dataset),
        samples="5",
        eager=True,
        scripts=scripts(tmp_path),
        again=True,
    )
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "0,1,2,3")
    done = calibrate(options, Silent())  # type: ignore[arg-type]
    [(request, tools, again)] = phases.calls
    assert request == CalibrationRequest(
        str(model),
        "Qwen3-8B",
        2,
        "g2",
        str(dataset),
        # a pickle has its own batches
        batch=32,
        samples=5,
        experts=False,
        eager=True,
    )
    calibration = find("vllm-gaudi").calibration
    assert calibration is not None
    assert done == CalibrationResult("file", request, calibration.serve_with)  # type: ignore[arg-type]
    assert (tools.calibration, tools.python, again) == (calibration, "/engine/python", True)
    assert tools.scripts == read_scripts(tmp_path / "scripts", calibration)
    # card 0 is in use
    assert tools.visible == {"HABANA_VISIBLE_MODULES": "2,3"}


def test_cards_that_are_busy_are_refused_before_anything_is_fetched(
    phases: Phases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_setup, "fetch", lambda *words: pytest.fail("fetched"))
    options = CalibrateOptions("Qwen/Qwen3-8B", modules="0", scripts=scripts(tmp_path))
    with pytest.raises(LaunchError) as raised:
        calibrate(options, Silent())  # type: ignore[arg-type]
    assert raised.value.exit_code is ExitCode.MACHINE
    assert phases.calls == []


def test_one_script_for_everything_gets_the_converted_weights(
    phases: Phases, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def converted(*words: Any) -> str:
        asked.append(words)
        return "/converted"

    installed = Installed("/engine/python", "deepseek_r1")
    config = {**CONFIG, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}
    (model / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(detection, "detect", lambda python=None: installed)
    monkeypatch.setattr(cases, "_converted", converted)
    options = CalibrateOptions(str(model), cards="2", scripts=scripts(tmp_path, DEEPSEEK))
    reporter: Any = Silent()
    calibrate(options, reporter)
    [(request, _, again)] = phases.calls
    assert (request.model, request.dataset, request.batch, again) == (
        "/converted",
        "NeelNanda/pile-10k",
        1,
        False,
    )
    assert asked == [(options, 2, make("hls2+busy=0"), installed, reporter)]


# --- numbers -------------------------------------------------------------------------------------


def test_cards_are_given_by_number_or_by_module() -> None:
    options = CalibrateOptions("m")
    assert cases._numbers(options) == cases._Numbers(None, 1, None, None)
    assert cases._numbers(replace(options, modules="3,4")) == cases._Numbers((3, 4), 2, None, None)
    full = replace(options, cards="8", batch="4", samples="9")
    assert cases._numbers(full) == cases._Numbers(None, 8, 4, 9)
    home = "https://github.com/vllm-project/vllm-gaudi"
    with refused("calibrate.many_cards", ExitCode.USAGE, cards=9, most=8, home=home):
        cases._numbers(replace(options, cards="9"))


@pytest.mark.parametrize(
    ("installed", "found", "python"),
    [
        (None, "-", "PATH"),
        (Installed("/p", ""), "-", "/p"),
        (Installed("/p", "unknown"), "unknown", "/p"),
        (Installed("/p", "cpu"), "cpu", "/p"),
    ],
)
def test_an_engine_without_calibration_is_named(
    installed: Installed | None, found: str, python: str
) -> None:
    with refused("calibrate.engine", ExitCode.MACHINE, python=python, found=found):
        cases._calibration(installed)


# --- models --------------------------------------------------------------------------------------


def test_code_of_a_model_needs_consent(model: Path) -> None:
    path = str(model)
    assert cases._known(path, False).name == "Qwen3-8B"
    (model / "config.json").write_text(json.dumps({**CONFIG, "auto_map": {"AutoConfig": "a.B"}}))
    with refused("plan.remote_code", ExitCode.MODEL, model="Qwen3-8B"):
        cases._known(path, False)
    assert cases._known(path, True).remote_code
    with pytest.raises(LaunchError) as raised:
        cases._known(str(model.parent / "gone"), True)
    assert raised.value.exit_code is ExitCode.MODEL
    assert cases._known("Qwen/Qwen3-8B", False).source == "profile"


Fetches = list[Wanted]


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fetches:
    """Fetch everything into the same folder; record what is fetched."""
    found: Fetches = []

    def fetch(wanted: Wanted, reporter: object) -> Any:
        found.append(wanted)
        return SimpleNamespace(folder=tmp_path / "Qwen3-8B")

    monkeypatch.setattr(model_setup, "fetch", fetch)
    return found


def test_weights_are_fetched_only_where_they_are_not_here(
    fetched: Fetches, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter = Silent()
    hub = CalibrateOptions("Qwen/Qwen3-8B", trust_remote_code=True)
    monkeypatch.setattr(local, "find_local", lambda repo, code=False: None)
    assert cases._fetched(hub, reporter) == str(model)
    assert fetched == [Wanted("Qwen/Qwen3-8B", code=True)]
    monkeypatch.setattr(local, "find_local", lambda repo, code=False: model if code else None)
    assert cases._fetched(hub, reporter) == str(model)
    monkeypatch.chdir(model.parent)
    assert cases._fetched(CalibrateOptions("./Qwen3-8B"), reporter) == str(model)
    assert len(fetched) == 1


def test_a_converted_model_is_the_one_that_serve_gives_its_engine(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[Any, ...]] = []
    finals: list[Path | None] = [None, model]

    def look(request: Any, *words: Any) -> Any:
        done.append(("look", request.model, request.cards, request.engine, *words))
        return SimpleNamespace(facts=SimpleNamespace(final=finals[0]))

    monkeypatch.setattr(model_needs, "look", look)
    monkeypatch.setattr(
        model_setup, "bring", lambda request, found, reporter: done.append(("bring", request.model))
    )
    host, installed, reporter = make("hls2"), Installed("/p", "deepseek_r1"), Silent()
    options = CalibrateOptions(str(model))
    assert cases._converted(options, 8, host, installed, reporter) == str(model)
    engine = done[0][5]
    first = ("look", str(model), 8, "deepseek_r1", host, engine, installed)
    assert done == [first, ("bring", str(model)), first]
    finals.pop(0)
    other = CalibrateOptions("Qwen/Qwen3-8B")
    assert cases._converted(other, 8, host, installed, reporter) == str(model)


# --- data sets -----------------------------------------------------------------------------------


def test_a_data_set_is_a_file_or_an_id_of_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "set.pkl").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    known = cases._dataset
    assert known("", NEW_SCRIPTS) == "NeelNanda/pile-10k"
    assert known("org/set", NEW_SCRIPTS) == "org/set"
    assert known("set.pkl", NEW_SCRIPTS) == known("set.pkl", OLD_SCRIPTS)
    assert known("set.pkl", OLD_SCRIPTS) == str(tmp_path / "set.pkl")
    wrong: list[tuple[str, Scripts, str, str]] = [
        ("", OLD_SCRIPTS, "calibrate.dataset_pkl", "-"),
        ("org/set", OLD_SCRIPTS, "calibrate.dataset_pkl", "org/set"),
    ]
    for given, scripts, id, found in wrong:
        with refused(id, ExitCode.USAGE, found=found, path="/scripts"):
            known(given, scripts)
    for gone in ("gone.pkl", "./gone", "org/gone.pkl"):
        with refused("calibrate.dataset_missing", ExitCode.USAGE, found=gone):
            known(gone, NEW_SCRIPTS)


def test_scripts_with_a_fixed_data_set_take_no_other() -> None:
    fixed: Any = SimpleNamespace(one_step=True, release="deepseek_r1")
    free: Any = SimpleNamespace(one_step=False)
    options = CalibrateOptions("m")
    chosen: Callable[..., str] = cases._dataset_of
    assert chosen(options, fixed, OLD_SCRIPTS) == "NeelNanda/pile-10k"
    assert chosen(replace(options, dataset="a/b"), free, NEW_SCRIPTS) == "a/b"
    for field in ("dataset", "batch"):
        with refused(
            "calibrate.fixed",
            ExitCode.USAGE,
            option=f"--{field}",
            engine="deepseek_r1",
            dataset="NeelNanda/pile-10k",
        ):
            chosen(replace(options, **{field: "1"}), fixed, OLD_SCRIPTS)  # type: ignore[arg-type]


def test_a_data_set_of_a_hub_is_fetched_completely(
    fetched: Fetches, tmp_path: Path, model: Path
) -> None:
    assert cases._fetched_dataset("/sets/a.pkl", Silent()) == "/sets/a.pkl"
    assert cases._fetched_dataset("org/set", Silent()) == str(model)
    assert fetched == [Wanted("org/set", repo_type="dataset", everything=True)]


def test_a_pickle_has_batches_of_its_own() -> None:
    assert (cases._default_batch("a.pkl"), cases._default_batch("org/set")) == (32, 1)


def test_the_cards_are_reserved_while_it_runs(
    phases: Phases, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def calibrating(request: Any, tools: Any, watcher: Any, *, again: bool) -> str:
        modules = tuple(map(int, tools.visible["HABANA_VISIBLE_MODULES"].split(",")))
        with (
            pytest.raises(LaunchError) as raised,
            reservation.reserve(modules, tmp_path / "machine"),
        ):
            pass
        taken.append(raised.value.id)
        return "file"

    monkeypatch.setattr(calibration_run, "calibrate", calibrating)
    options = CalibrateOptions(
        str(model), cards="2", dataset="org/set", batch="3", scripts=scripts(tmp_path)
    )
    monkeypatch.setattr(cases, "_fetched_dataset", lambda dataset, reporter: f"/fetched/{dataset}")
    done = calibrate(options, Silent())  # type: ignore[arg-type]
    assert taken == ["placement.reserved"]
    assert (done.request.dataset, done.request.batch) == ("/fetched/org/set", 3)
    assert os.environ.get("HABANA_VISIBLE_MODULES") is None
