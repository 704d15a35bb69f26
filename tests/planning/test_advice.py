"""Warnings of requests that contradict themselves, the model or the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.errors import LaunchError
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
def test_inputs_and_outputs_together_stay_within_the_length(engine: str) -> None:
    wishes: dict[str, Any] = {"input_range": (800, 7000), "output_range": (400, 2000)}
    assert ids(plan(engine, **wishes, max_model_len=8192)).count("plan.length_rule") == 1
    assert "plan.length_rule" not in ids(plan(engine, **wishes, max_model_len=9088))
    equal = {**wishes, "input_range": (800, 6992), "output_range": (400, 1200)}
    assert "plan.length_rule" not in ids(plan(engine, **equal, max_model_len=8192))
    assert "plan.length_rule" not in ids(plan(engine, input_range=(800, 7000), max_model_len=8192))


@pytest.mark.parametrize("engine", ENGINES)
def test_more_cards_than_key_value_heads_hold_the_cache_several_times(engine: str) -> None:
    replicated = [
        each for each in plan(engine, cards=8).warnings if each.id == "plan.kv_replicated"
    ]
    assert replicated == [message("plan.kv_replicated", heads=4, cards=8, times=2)]
    assert "plan.kv_replicated" not in ids(plan(engine, cards=4))
    assert "plan.kv_replicated" not in ids(plan(engine, replace(MODEL, mla_rank=576), cards=8))


@pytest.mark.parametrize("reduce", [(64, 1024), (8, 50000)])
def test_a_hot_part_beyond_the_limits_is_named(reduce: tuple[int, int]) -> None:
    assert "plan.reduce_beyond" in ids(plan(reduce=reduce, max_num_seqs=24, max_model_len=16384))
    assert "plan.reduce_beyond" not in ids(
        plan(reduce=(8, 1024), max_num_seqs=24, max_model_len=16384)
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_memory_that_was_not_checked_is_reported(engine: str) -> None:
    assert (
        ids(plan(engine, replace(MODEL, kv_heads=None, heads=None))).count("plan.memory_unchecked")
        == 1
    )
    assert "plan.memory_unchecked" not in ids(plan(engine))


def test_the_scripts_length_beyond_the_model_is_reported() -> None:
    short = replace(MODEL, max_position_embeddings=4096)
    assert "plan.reference_too_long" in ids(plan(model=short, tuning="reference"))
    assert "plan.reference_too_long" not in ids(
        plan(model=short, tuning="reference", max_model_len=4096)
    )
    # 1.22's script switches the engine's check off
    assert "plan.reference_too_long" not in ids(plan("vllm-fork@1.22", short, tuning="reference"))
    auto = plan(model=short)
    reason = next(setting.reason for setting in auto.settings if setting.name == "--max-model-len")
    assert (auto.command.argv[auto.command.argv.index("--max-model-len") + 1], reason.id) == (
        "4096",
        "plan.length_of_model",
    )


def test_a_remedy_is_never_a_plan_that_is_too_tight() -> None:
    # weights of 119 GiB a card: a shorter context starts, and has no room to work
    huge = replace(
        MODEL, heads=64, kv_heads=8, parameters=510 * 10**9, weight_bytes=1020 * 10**9, layers=512
    )
    with pytest.raises(LaunchError) as caught:
        plan("vllm-fork@1.22", huge, "gaudi3-oam", cards=8, dtype="bfloat16", max_model_len=32768)
    assert caught.value.id == "fit.plan_refused"
    assert "-l " not in caught.value.text.values["would"]


def test_an_option_that_does_not_apply_is_not_blamed_on_the_tuning() -> None:
    experts = replace(MODEL, moe=True, experts=8)
    for tuning, helps in (("auto", False), ("reference", True)):
        with pytest.raises(LaunchError) as caught:
            plan("deepseek_r1", experts, input_range=(1, 512), tuning=tuning)
        assert caught.value.id == "plan.no_such_option"
        assert ("--tuning auto" in str(caught.value)) is helps
