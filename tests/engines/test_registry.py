"""Which engine a plan is for where none is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.cli.app import run
from gaudi_launch.engines import registry
from gaudi_launch.engines.detect import Installed
from gaudi_launch.models.records import Model
from gaudi_launch.profiles import known_model, profiles

MLA = Model("m", "DeepSeek-V3.1-G2", mla_rank=576)


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek_r1"),
        ("/data/hf_models/DeepSeek-R1-0528-G2", "deepseek_r1"),
        # 1.21 has no Glm4MoeForCausalLM
        ("zai-org/GLM-4.5", "vllm-fork@1.22"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", registry.DEFAULT),
        ("nobody/knows", registry.DEFAULT),
    ],
)
def test_the_model_asks_for_its_engine(model: str, engine: str) -> None:
    assert registry.assumed_for(known_model(model, must_exist=False)) == engine


def test_an_installed_or_a_named_engine_is_taken() -> None:
    here = Installed("/usr/bin/python3", "vllm-fork@1.21", {}, {})
    nothing = Installed("/usr/bin/python3", "", {}, {})
    assert registry.name_for("auto", here, MLA) == "auto"
    assert registry.name_for("vllm-gaudi", None, MLA) == "vllm-gaudi"
    assert registry.name_for("auto", None, MLA) == registry.name_for("auto", nothing, MLA) == "deepseek_r1"


def test_profiles_name_engines_that_there_are() -> None:
    assert {profile.engine for profile in profiles()} - {""} <= set(registry.ENGINES)


@pytest.mark.parametrize("command", [("plan", "--machine", "simulated:hls2", "-n", "8", "-w"), ("fit",)])
def test_plan_and_fit_take_the_same(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run([*command, "deepseek-ai/DeepSeek-R1-0528", "--json"]) == 0
    engine = json.loads(capsys.readouterr().out)["engine"]
    found = engine if isinstance(engine, str) else engine["version"]
    assert found == "deepseek_r1"
