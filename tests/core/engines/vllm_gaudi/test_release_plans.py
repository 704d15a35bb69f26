"""Plans for every release have only what that release reads, and the buckets that its code makes.

``scripts/acceptance/releases.py --record`` executed the releases' own bucket modules.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.buckets.engine_buckets import engine_buckets
from gaudi_launch.core.buckets.families import ladder_name
from gaudi_launch.core.buckets.ladder_rules import rules_of
from gaudi_launch.core.engines.known_versions import releases, version_of
from gaudi_launch.core.engines.vllm_gaudi.engine import create
from gaudi_launch.core.engines.vllm_gaudi.rules import state_blocks
from gaudi_launch.core.host import simulated
from gaudi_launch.core.models.config import model_from_config
from gaudi_launch.core.models.recurrent_state import gated_delta_bytes, mamba2_bytes, page_of
from gaudi_launch.core.models.sizing import GIB, CacheRules
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from tests.support.places import TOP
from tests.support.release_plans import KINDS, digest_of, planned, unread

EXECUTED = [each.version for each in releases("vllm-gaudi") if each.executed]
RECORDED = TOP / "tests" / "data" / "releases.json.gz"


def recorded() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return found


def test_every_release_that_is_offered_was_executed() -> None:
    assert {*recorded()} == {*EXECUTED}
    assert all(len(cases) >= 30 for cases in recorded().values())


@pytest.mark.parametrize("release", EXECUTED)
def test_the_buckets_are_those_that_the_code_of_the_release_made(release: str) -> None:
    facts = version_of("vllm-gaudi", release)
    assert facts is not None
    family = ladder_name(rules_of(facts.buckets))
    for case in recorded()[release]:
        found = engine_buckets(family, case["algorithm"], case["env"], case["args"])
        ours = [len(found.prompt), len(found.decode), digest_of(found.prompt, found.decode)]
        assert ours == [*case["graphs"], case["lists"]], case["kind"]


@pytest.mark.parametrize("release", EXECUTED)
def test_a_state_decides_the_blocks_that_buckets_count(release: str) -> None:
    facts = version_of("vllm-gaudi", release)
    assert facts is not None
    expected: list[tuple[int, int | None]] = [(128, None)] * 2
    if facts.state_blocks:
        expected = [(528, None), (768, None)]
    if release == "0.21.0":
        # its runner counts decode buckets in such blocks, prompts in those of 128
        expected = [(128, 528), (128, 768)]
    by_kind = {case["kind"]: case["args"] for case in recorded()[release]}
    found = [
        (by_kind[kind]["block_size"], by_kind[kind].get("decode_block_size"))
        for kind in ("mamba", "mamba-prefix")
    ]
    assert found == expected
    for kind in ("mamba", "mamba-prefix"):
        plan = planned(f"vllm-gaudi@{release}", KINDS[kind])
        assert not isinstance(plan, str) and plan.question is not None
        assert dict(plan.question.arguments) == by_kind[kind]


# what their published config.json states (Nemotron and Qwen3.5: ai-dynamo/aiconfigurator@095f58a5:
# aic-core/src/aiconfigurator_core/model_configs), and the tokens of a block without and with prefix
# caching, executed: AsyncEngineArgs, check_and_update_config and update_block_size_for_backend of
# each release (mamba_page_size_padded by the bytes of a token's keys), on 1 and 2 cards
_MAMBA = {"mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_chunk_size": 256}
_NEMOTRON = {
    "model_type": "nemotron_h",
    "architectures": ["NemotronHForCausalLM"],
    "n_groups": 8,
    "conv_kernel": 4,
    "mamba_head_dim": 64,
    "chunk_size": 128,
}
_GDN = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
HYBRIDS: dict[str, dict[str, Any]] = {
    "Bamba-9B": {
        **_MAMBA,
        "model_type": "bamba",
        "architectures": ["BambaForCausalLM"],
        "num_hidden_layers": 32,
        "attn_layer_indices": [9, 18, 27],
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "mamba_n_heads": 128,
        "mamba_d_state": 128,
    },
    "Falcon-H1-1.5B": {
        **_MAMBA,
        "model_type": "falcon_h1",
        "architectures": ["FalconH1ForCausalLM"],
        "num_hidden_layers": 24,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "hidden_size": 2048,
        "mamba_n_heads": 48,
        "mamba_d_state": 256,
    },
    # its states are float32 although config.json says nothing of them
    "Nemotron-H-56B": {
        **_NEMOTRON,
        "num_hidden_layers": 118,
        "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "attention_head_dim": 128,
        "hidden_size": 8192,
        "mamba_num_heads": 256,
        "ssm_state_size": 256,
    },
    "Nemotron-3-Nano-30B": {
        **_NEMOTRON,
        "num_hidden_layers": 52,
        "hybrid_override_pattern": "MEMEM*" + "EMEMEM*" * 4 + "EMEMEMEM*EMEMEMEME",
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "hidden_size": 2688,
        "mamba_num_heads": 64,
        "ssm_state_size": 128,
        "mamba_ssm_cache_dtype": "float32",
    },
    # without num_hidden_layers
    "Nemotron-3-Ultra-550B": {
        **_NEMOTRON,
        "layers_block_type": [*["mamba", "moe"] * 3, "mamba", "attention", "moe"] * 12,
        "num_attention_heads": 64,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "hidden_size": 8192,
        "mamba_num_heads": 256,
        "ssm_state_size": 128,
        "mamba_ssm_cache_dtype": "float32",
    },
    **{
        name: {
            "model_type": kind,
            "architectures": [f"Qwen3_5{moe}ForConditionalGeneration"],
            "text_config": {
                **_GDN,
                "model_type": f"{kind}_text",
                "num_hidden_layers": layers,
                "full_attention_interval": 4,
                "linear_num_value_heads": values,
                "num_attention_heads": heads,
                "num_key_value_heads": keys,
                "head_dim": 256,
                "hidden_size": width,
                "mamba_ssm_dtype": "float32",
            },
        }
        for name, kind, moe, layers, values, heads, keys, width in (
            ("Qwen3.5-27B", "qwen3_5", "", 64, 48, 24, 4, 5120),
            ("Qwen3.5-35B-A3B", "qwen3_5_moe", "Moe", 40, 32, 16, 2, 2048),
            ("Qwen3.5-122B-A10B", "qwen3_5_moe", "Moe", 48, 64, 32, 2, 3072),
            ("Qwen3.6-27B", "qwen3_5", "", 64, 48, 24, 4, 5120),
        )
    },
    "Qwen3-Next-80B-A3B": {
        **_GDN,
        "model_type": "qwen3_next",
        "architectures": ["Qwen3NextForCausalLM"],
        "num_hidden_layers": 48,
        "full_attention_interval": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "hidden_size": 2048,
    },
}
_SINCE_0_21 = {
    "Bamba-9B": (640, 640),
    "Falcon-H1-1.5B": (1664, 1664),
    "Nemotron-H-56B": (4224, 4224),
    "Nemotron-3-Nano-30B": (2176, 2176),
    "Nemotron-3-Ultra-550B": (8320, 8320),
    "Qwen3.5-27B": (896, 896),
    "Qwen3.5-35B-A3B": (1152, 1152),
    "Qwen3.5-122B-A10B": (2176, 2176),
    "Qwen3.6-27B": (896, 896),
    "Qwen3-Next-80B-A3B": (640, 640),
}
BLOCKS = {
    "0.19.0": {**_SINCE_0_21, "Bamba-9B": (640, 768), "Falcon-H1-1.5B": (1664, 1792)},
    "0.21.0": _SINCE_0_21,
    "0.24.0": _SINCE_0_21,
    "0.26.0": _SINCE_0_21,
}


@pytest.mark.parametrize("cards", [1, 2])
@pytest.mark.parametrize("release", [*BLOCKS])
def test_the_block_of_a_hybrid_is_that_of_the_release(release: str, cards: int) -> None:
    facts = version_of("vllm-gaudi", release)
    assert facts is not None
    found = {}
    for name, config in HYBRIDS.items():
        model = model_from_config(name, {**config, "dtype": "bfloat16"})
        pages = [
            page_of(model, cards, 2, CacheRules(state_blocks=blocks))
            for caches in (False, True)
            for blocks in [state_blocks(model, facts, compact=False, caches=caches)]
        ]
        found[name] = tuple(page.tokens for page in pages if page is not None)
    assert found == BLOCKS[release]


# the bytes of a layer's state on 1 and 8 cards, executed: get_mamba_state_shape_from_config and
# get_mamba_state_dtype_from_config of each model's class in vLLM 0.11.2 to 0.26.0; and the layers
# with keys, and with states
STATES = {
    "Bamba-9B": (2147840, 269824, 3, 29),
    "Falcon-H1-1.5B": (1594368, 201984, 24, 24),
    "Nemotron-H-56B": (16900096, 2112512, 10, 54),
    "Nemotron-3-Nano-30B": (2134016, 266752, 6, 23),
    "Nemotron-3-Ultra-550B": (8499200, 1062400, 12, 48),
    "Qwen3.5-27B": (3207168, 400896, 16, 48),
    "Qwen3.5-35B-A3B": (2146304, 268288, 10, 30),
    "Qwen3.5-122B-A10B": (4268032, 533504, 12, 36),
    "Qwen3.6-27B": (3207168, 400896, 16, 48),
    "Qwen3-Next-80B-A3B": (1097728, 137216, 12, 36),
}


@pytest.mark.parametrize("release", [*BLOCKS])
@pytest.mark.parametrize("name", [*HYBRIDS])
def test_the_memory_of_a_plan_has_the_states(release: str, name: str) -> None:
    one, eight, keys, states = STATES[name]
    model = model_from_config(name, {**HYBRIDS[name], "dtype": "bfloat16"})
    both = [gated_delta_bytes(model, each) or mamba2_bytes(model, each) for each in (1, 8)]
    assert both == [one, eight]
    # the default length and step hold a block, or linear ladders fail at startup
    linear = {"VLLM_EXPONENTIAL_BUCKETING": "false"}
    request = Request(name, cards=1, max_num_seqs=16, force=True, environment=linear)
    sized = replace(model, parameters=8_000_000_000, moe=False)
    engine = create(f"vllm-gaudi@{release}", None, {})
    plan = make_plan(request, simulated.make("hls2"), sized, engine)
    group = keys if states > 1.5 * keys else states
    held = 16 * -(-states // group) * group
    # a block has room for the keys of its tokens and a state, which compact GDN has in slots apart,
    # with two more for each tensor
    token = 4 * (model.kv_heads or 0) * (model.head_dim or 0)
    slots = held + 2 * group if name.startswith("Qwen") else held
    expected = held * BLOCKS[release][name][0] * token + slots * one
    assert plan.memory["states"] == round(expected / GIB, 2)


@pytest.mark.parametrize("release", EXECUTED)
def test_a_release_that_leaves_prefix_caching_off_for_states_is_planned_so(release: str) -> None:
    request = Request("m")
    engine = create(f"vllm-gaudi@{release}", None, {})
    model = model_from_config("m", {**HYBRIDS["Bamba-9B"], "dtype": "bfloat16"})
    assert not engine.caches_prefixes(request, model)
    assert engine.caches_prefixes(request, model_from_config("m", {"num_hidden_layers": 2}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("release", EXECUTED)
def test_a_plan_has_only_what_the_release_reads(release: str, kind: str) -> None:
    plan = planned(f"vllm-gaudi@{release}", KINDS[kind])
    assert isinstance(plan, str) or unread(plan, release) == []
