"""The inputs of a plan: demo, secrets, files of options, interpreters, notes and checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app import machine
from gaudi_launch.app import prepare as cases
from gaudi_launch.app.model_needs import Provision
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.prepare import (
    Prepared,
    prepare,
    refuse_simulated,
    set_up_demo,
)
from gaudi_launch.app.report import Silent
from gaudi_launch.engines import detect as detection
from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.install.environment import name_of, versions_of
from gaudi_launch.engines.ray_serve import install as ray_install
from gaudi_launch.engines.registry import find
from gaudi_launch.engines.vllm_cpu import install as cpu_install
from gaudi_launch.errors import ExitCode
from gaudi_launch.host.simulated import make, write_tree
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.models.setup_steps import SetupFacts, SetupStep
from gaudi_launch.paths import engines_dir
from gaudi_launch.planning.request import Request
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

FORK = "vllm-fork@1.21"
HLS2 = make("hls2")
MODEL = Model("/m/x", "x")
REQUEST = Request(model="/m/x", cards=2, engine=FORK, max_num_seqs=8, max_model_len=4096)


def prepared(**changes: Any) -> Prepared:
    return replace(Prepared(REQUEST, HLS2, MODEL, find(FORK), None), **changes)


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "detect", lambda python=None: None)


# --- the plan with its notes ---------------------------------------------------------------------


def test_steps_are_those_of_the_model() -> None:
    step = SetupStep("pull", False, message("prepare.pull", model="x", path="/", size="1"))
    assert prepared().steps == ()
    assert prepared(provision=Provision(SetupFacts("x"), (step,))).steps == (step,)


def test_simulated_cards_run_here_only() -> None:
    refuse_simulated(prepared())
    with refused("simulated.here_only", ExitCode.USAGE):
        refuse_simulated(prepared(engine=find("simulated")))


# --- what is read --------------------------------------------------------------------------------


OPTIONS = LaunchOptions(model="Qwen/Qwen3-8B", engine=FORK, cards="1", machine="simulated:hls2")


def test_libfabric_is_that_of_setup_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaudi_launch.engines.install.install_steps import LIBFABRIC_ROOT

    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    assert cases._libfabric_root() == ""
    library = tmp_path / LIBFABRIC_ROOT.lstrip("/") / "lib" / "libfabric.so"
    library.parent.mkdir(parents=True)
    library.write_text("")
    assert cases._libfabric_root() == LIBFABRIC_ROOT
    monkeypatch.setattr(machine, "load", lambda name=None: HLS2)
    assert prepare(replace(OPTIONS, machine=None)).request.libfabric_root == LIBFABRIC_ROOT


# --- interpreters --------------------------------------------------------------------------------


def test_the_interpreter_is_queried_where_its_answer_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str | None] = []

    def detect(python: str | None = None) -> Installed:
        asked.append(python)
        return Installed(str(python), FORK)

    monkeypatch.setattr(detection, "detect", detect)
    monkeypatch.setattr(cpu_install, "engine_is_ready", lambda: True)
    monkeypatch.setattr(cpu_install, "python_path", lambda: Path("/cpu/python"))
    monkeypatch.setattr(ray_install, "detect", detect)
    monkeypatch.setattr(ray_install, "is_ready", lambda: True)
    monkeypatch.setattr(ray_install, "python_path", lambda: Path("/ray/python"))
    hosts = [replace(HLS2, cards=())]
    monkeypatch.setattr(ray_install, "read_host", lambda root: hosts[0])

    def found(here: bool = True, **words: Any) -> object:
        return cases.installed_for(Request(**{"model": "m", **words}), lambda: FORK, here=here)

    assert found(engine="tgi") is None
    assert found(engine=FORK) == Installed("None", FORK)
    assert found(engine=FORK, here=False) is None
    assert found(engine="auto", here=False) == Installed("None", FORK)
    assert found(engine=FORK, python="/my") == Installed("/my", FORK)
    assert found(engine="cpu") == Installed("/cpu/python", FORK)
    assert found(engine="cpu", python="/my") == Installed("/my", FORK)
    assert found(engine="ray-serve", here=False) is None
    assert asked == [None, None, "/my", "/cpu/python", "/my"]
    # the embedded engine with Ray uses no card
    assert found(engine="ray-serve") == Installed("/ray/python", FORK)
    hosts[0] = HLS2
    assert found(engine="ray-serve") == Installed("None", FORK)
    assert found(engine="ray-serve:vllm-cpu") == Installed("/ray/python", FORK)
    monkeypatch.setattr(cpu_install, "engine_is_ready", lambda: False)
    assert found(engine="cpu") is None


@pytest.mark.parametrize(
    ("words", "engine"),
    [
        ({}, "vllm-gaudi"),
        ({"model": "deepseek-ai/DeepSeek-R1"}, "deepseek_r1"),
        ({"model": "deepseek-ai/DeepSeek-R1", "engine": "vllm-gaudi"}, "vllm-gaudi"),
        ({"model": "deepseek-ai/DeepSeek-R1", "machine": "simulated:gaudi3-oam"}, "vllm-gaudi"),
        ({"tuning": "reference"}, FORK),
        ({"engine": "vllm-fork@1.22"}, "vllm-fork@1.22"),
    ],
)
def test_of_several_environments_the_one_for_the_model_is_taken(
    words: dict[str, Any], engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = ("deepseek_r1", FORK, "vllm-fork@1.22", "vllm-gaudi")
    for name in made:
        python = engines_dir() / f"{name_of(name)}.1/venv/bin/python"
        python.parent.mkdir(parents=True)
        python.touch()
        versions_of(name).link.symlink_to(f"{name_of(name)}.1")

    def detect(python: str | None = None) -> Installed | None:
        found = [each for each in made if f"/{name_of(each)}." in str(python)]
        return Installed(str(python), found[0]) if found else None

    monkeypatch.setattr(detection, "detect", detect)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "tree"))
    write_tree("hls2", tmp_path / "tree")
    options = {"model": "Qwen/Qwen3-8B", "trust_remote_code": True, **words}
    found = prepare(LaunchOptions(**options)).installed
    assert found is not None
    assert found.engine == engine


# --- the demo model ------------------------------------------------------------------------------


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record what is installed for the demo model, of which nothing is there."""
    done: list[str] = []
    monkeypatch.setattr(cpu_install, "demo_dir", lambda: tmp_path / "demo")
    monkeypatch.setattr(cpu_install, "demo_is_ready", lambda: "cpu" in done)
    monkeypatch.setattr(cpu_install, "engine_is_ready", lambda: False)
    monkeypatch.setattr(cpu_install, "check_shared_memory", lambda: done.append("memory"))
    monkeypatch.setattr(cpu_install, "setup", lambda say: done.append("cpu"))
    monkeypatch.setattr(ray_install, "is_ready", lambda: False)
    monkeypatch.setattr(ray_install, "setup", lambda say: done.append("ray"))
    return done


def test_the_demo_for_ray(demo: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    set_up_demo(LaunchOptions(model="demo", engine="ray-serve"), Silent())
    assert demo == ["memory", "ray", "cpu"]
    demo.clear()
    # both are there
    monkeypatch.setattr(cpu_install, "engine_is_ready", lambda: True)
    monkeypatch.setattr(cpu_install, "demo_is_ready", lambda: True)
    set_up_demo(LaunchOptions(model="demo"), Silent())
    assert demo == ["memory"]


# --- files of options ----------------------------------------------------------------------------
