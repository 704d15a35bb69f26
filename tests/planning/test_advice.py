"""Warnings of requests that contradict themselves, the model or the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.host.machine import load
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.planning.plan import Plan
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request

MODEL = Model(
    path="/m/Small",
    name="Small",
    source="config.json",
    architecture="LlamaForCausalLM",
    model_type="llama",
    parameters=10**9,
    dtype="bfloat16",
    moe=False,
    layers=4,
    hidden_size=1024,
    intermediate_size=4096,
    heads=8,
    kv_heads=4,
    head_dim=128,
    vocab_size=1000,
    max_position_embeddings=32768,
)
ENGINES = ("vllm-fork@1.21", "vllm-gaudi")


def plan(
    engine: str = "vllm-fork@1.21", model: Model = MODEL, product: str = "hls2", **wishes: Any
) -> Plan:
    request = Request(model=model.path, engine=engine, **wishes)
    return make_plan(request, load(f"simulated:{product}"), model, find(engine))


def ids(made: Plan) -> list[str]:
    return [warning.id for warning in made.warnings]


@pytest.mark.parametrize("engine", ENGINES)
def test_more_cards_than_key_value_heads_hold_the_cache_several_times(engine: str) -> None:
    replicated = [
        each for each in plan(engine, cards=8).warnings if each.id == "plan.kv_replicated"
    ]
    assert replicated == [message("plan.kv_replicated", heads=4, cards=8, times=2)]
    assert "plan.kv_replicated" not in ids(plan(engine, cards=4))
    assert "plan.kv_replicated" not in ids(plan(engine, replace(MODEL, mla_rank=576), cards=8))


VLLM = ("vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi")
OPEN = {"plan.open_address", "plan.open_keyless"}


def exposed(made: Plan) -> list[str]:
    return [warning.id for warning in made.warnings if warning.id in OPEN]


@pytest.mark.parametrize("engine", VLLM)
def test_a_key_silences_the_warning(engine: str) -> None:
    assert exposed(plan(engine, host="0.0.0.0", environment={"VLLM_API_KEY": "k"})) == []
