"""calibrate: the model that is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.extensions.fp8 import case as cases
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "hidden_size": 256,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "Qwen3-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


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
