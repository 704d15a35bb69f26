"""The steps that install an engine's code: compared as one with their recorded commands."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from gaudi_launch.core.base.mirrors import Mirrors
from gaudi_launch.core.engines.install.install_steps import SetupExtras, code_steps, dockerfile
from gaudi_launch.core.engines.install.step_runner import InstallStep
from gaudi_launch.core.engines.needed_release import needed_release
from tests.support.cli import golden

ALL = SetupExtras(
    mirrors=Mirrors(pip="https://mirror/simple", registry="registry:5000", git="https://git/hub"),
    vision=True,
    scale_out=True,
    constraints="/c/pins.txt",
)


def shown(steps: Sequence[InstallStep]) -> list[list[str]]:
    return [[step.id, *step.argv] for step in steps]


@pytest.mark.parametrize(
    "engine", ["deepseek_r1", "vllm-fork@1.21", "vllm-gaudi", "vllm-gaudi@0.24"]
)
def test_the_commands_of_an_engine_are_those_recorded(engine: str) -> None:
    release = needed_release(engine)
    document = {
        "plain": shown(code_steps(release, "python3", "/src", SetupExtras())),
        "all": shown(code_steps(release, "/venv/python", "/src", ALL)),
        "image": dockerfile(release, SetupExtras(unpinned=True)).splitlines(),
    }
    text = json.dumps(document, indent=1) + "\n"
    golden(f"install/{engine.replace('@', '-')}.json", text)


def test_an_image_is_built_with_its_pins_mirrors_and_libraries() -> None:
    release = needed_release("vllm-fork@1.22")
    pinned = dockerfile(release, ALL).splitlines()
    golden("install/vllm-fork-1.22.dockerfile", "\n".join(pinned) + "\n")
    assert not any(line.startswith("#") for line in pinned)
