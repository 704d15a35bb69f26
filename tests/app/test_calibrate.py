"""calibrate: options, the engine's scripts, data sets, and the request that the phases get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app import calibrate as cases
from gaudi_launch.app import machine
from gaudi_launch.engines import detect as detection
from gaudi_launch.engines.detect import Installed
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.simulated import make
from gaudi_launch.services import calibration_run
from tests.support.calibration_scripts import write_scripts
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


# --- numbers -------------------------------------------------------------------------------------


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


# --- data sets -----------------------------------------------------------------------------------
