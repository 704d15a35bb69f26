"""Models and plans of the plugin on an 8-card Gaudi2 server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host import simulated
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.plan import Plan, Setting
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request

HLS2 = simulated.make("hls2")


LLAMA = Model(
    "/m/Llama-3.1-8B",
    "Llama-3.1-8B",
    "config.json",
    "LlamaForCausalLM",
    "llama",
    parameters=8_030_261_248,
    dtype="bfloat16",
    moe=False,
    layers=32,
    hidden_size=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    max_position_embeddings=131072,
    remote_code=False,
)


HYBRID = replace(LLAMA, name="hybrid", attention_layers=8)


def plan(model: Model = LLAMA, environment: Mapping[str, str] | None = None, **wishes: Any) -> Plan:
    request = Request(
        model=model.path, environment=environment or {}, files_dir="/cache/buckets", **wishes
    )
    return make_plan(request, HLS2, model, find("vllm-gaudi"))


def setting(made: Plan, name: str) -> Setting | None:
    return next((s for s in made.settings if s.name == name), None)


def value(made: Plan, name: str) -> str | None:
    found = setting(made, name)
    return found.value if found is not None and found.sent else None


def refused(
    model: Model = LLAMA, environment: Mapping[str, str] | None = None, **wishes: Any
) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        plan(model, environment, **wishes)
    assert str(caught.value) and "{" not in str(caught.value)
    return caught.value


def warnings(made: Plan) -> list[str]:
    return [warning.id for warning in made.warnings]
