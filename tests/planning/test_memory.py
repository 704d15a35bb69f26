"""A card's memory in plans: what is shown, what is refused, and that every model of the guides
fits its cards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.errors import LaunchError
from gaudi_launch.host.machine import load
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.planning.engine import Limits
from gaudi_launch.planning.engine_args import engine_args
from gaudi_launch.planning.memory import (
    CardSet,
    ChosenSettings,
    MemoryPlan,
    memory_for,
)
from gaudi_launch.planning.plan import Plan, Setting
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model

LLAMA = Model(
    "m", "m", parameters=8_030_261_248, dtype="bfloat16", layers=32, attention_layers=32,
    hidden_size=4096, intermediate_size=14336, heads=32, kv_heads=8, head_dim=128,
    max_position_embeddings=131072,
)  # fmt: skip
LIMITS = Limits(
    1, 1024, 1, 1024, 2048, max_num_batched_tokens=4096, max_num_seqs=4, max_num_prefill_seqs=4
)


def setting(name: str, value: str | None) -> Setting:
    kind: Any = "option" if name.startswith("--") else "env"
    return Setting(name, value, kind, "computed", message("plan.script"))


def planned(
    *pairs: tuple[str, str | None],
    model: Model = LLAMA,
    cards: int = 1,
    product: str | None = "HL-225",
    version: str = "1.22",
    extra: tuple[str, ...] = (),
) -> MemoryPlan:
    chosen = [setting(name, value) for name, value in pairs]
    settings = ChosenSettings(chosen, engine_args(user=extra))
    return memory_for(
        model, LIMITS, CardSet(cards, product), find(f"vllm-fork@{version}"), settings
    )


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ((("--gpu_memory_utilization", "0.5"),), (("--gpu-memory-utilization", "0.5"),)),
        ((("--gpu-memory-utilization", "x"),), ()),
        ((("VLLM_GRAPH_RESERVED_MEM", "-1"),), ()),
        ((("VLLM_GRAPH_RESERVED_MEM", ""),), ()),
    ],
)
def test_spellings_and_nonsense(words: Any, same: Any) -> None:
    assert planned(*words) == planned(*same)


def plan(
    model: str, engine: str = "vllm-fork@1.21", machine: str = "simulated:hls2", **asked: Any
) -> Plan:
    request = Request(model=model, engine=engine, **asked)
    return make_plan(request, load(machine), known_model(model, must_exist=False), find(engine))


@pytest.mark.parametrize(
    ("model", "machine", "would"),
    [
        # half a box has no eight cards
        ("Qwen/Qwen3-235B-A22B", "simulated:gaudi2e-4", "-n 4 -d fp8"),
        ("Qwen/Qwen3-235B-A22B", "simulated:hls2", "-n 8"),
        # at 1.22, the first fork that has its class
        ("zai-org/GLM-4.5", "simulated:hls2", "-n 8"),
        ("zai-org/GLM-4.5", "simulated:gaudi2e-4", "a machine with more or larger cards"),
    ],
)
def test_what_would_fit_is_on_this_machine_and_fits(model: str, machine: str, would: str) -> None:
    with pytest.raises(LaunchError) as caught:
        plan(model, _fork_for(model), machine, cards=1)
    assert caught.value.text.values["would"] == would
    if would.startswith("-n"):
        dtype = "fp8" if would.endswith("fp8") else None
        made = plan(model, _fork_for(model), machine, cards=int(would.split()[1]), dtype=dtype)
        assert "fit.tight" not in [warning.id for warning in made.warnings]


def _fork_for(model: str) -> str:
    """Return the first fork that has the model's class: Glm4MoeForCausalLM is in 1.22 only."""
    return "vllm-fork@1.22" if "GLM" in model else "vllm-fork@1.21"


def test_blocks_that_the_user_fixed_fit_where_the_weights_do() -> None:
    fixed = planned(("--num-gpu-blocks-override", "77"))
    assert (fixed.fits, fixed.num_blocks, fixed.lost_blocks) == (True, 77, 0)
    assert fixed.message == message("fit.blocks_fixed", blocks=77)
    large = replace(LLAMA, parameters=60_000_000_000)
    refused = planned(("--num-gpu-blocks-override", "77"), model=large)
    assert (refused.fits, refused.num_blocks, refused.tight) == (False, None, None)


def test_a_plan_of_an_unknown_size_is_empty() -> None:
    assert MemoryPlan() == MemoryPlan(
        gib={},
        num_blocks=None,
        lost_blocks=0,
        blocks_step=128,
        block_bytes=0,
        fits=None,
        message=None,
        tight=None,
        remedies=(),
    )


def test_a_number_of_cards_that_does_not_divide_the_heads_is_no_remedy() -> None:
    # 120 GB of weights fit on two cards, and three heads are not divided by two
    odd = replace(LLAMA, parameters=60_000_000_000, heads=3, kv_heads=3)
    assert planned(model=odd).remedies == (message("fit.would_dtype"),)
