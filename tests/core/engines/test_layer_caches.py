"""What each engine version allocates for a model's layers, and the memory that a plan counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines import registry
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.engines.known_versions import version_of
from gaudi_launch.core.engines.layer_caches import compresses
from gaudi_launch.core.engines.support import support_of
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.config import model_from_config
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import CacheRules, kv_bytes_per_token
from gaudi_launch.core.planning.memory import division
from gaudi_launch.core.planning.plan import Setting
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.support_answer import SupportStatus

MLA = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "kimi_k2",
    "num_hidden_layers": 4,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 163840,
    "max_position_embeddings": 131072,
}
KIMI = model_from_config("moonshotai/Kimi-K2-Instruct", MLA)
LATENT = 4 * 576 * 2
HEADS = 4 * 64 * 2 * 192 * 2


def facts(engine: str, version: str) -> Version:
    found = version_of(engine, version)
    assert found is not None
    return found


def test_a_variable_turns_the_latent_off() -> None:
    new = facts("vllm-gaudi", "0.26.0")
    assert not compresses(KIMI, new, {"VLLM_MLA_DISABLE": "1"})
    assert compresses(KIMI, new, {"VLLM_MLA_DISABLE": "0"})
    assert compresses(replace(KIMI, model_type=None, config={}), facts("vllm-fork", "1.21"), {})


def test_a_token_of_mla_without_its_latent_has_keys_and_values_of_every_head() -> None:
    assert kv_bytes_per_token(KIMI) == LATENT
    assert kv_bytes_per_token(KIMI, rules=CacheRules(compressed=False)) == HEADS
    assert kv_bytes_per_token(KIMI, cards=8, rules=CacheRules(compressed=False)) == HEADS // 8
    assert kv_bytes_per_token(replace(KIMI, config={}), rules=CacheRules(compressed=False)) is None


def test_a_version_without_shared_layers_gives_them_a_cache() -> None:
    config = {
        "architectures": ["Gemma3nForConditionalGeneration"],
        "num_hidden_layers": 6,
        "num_kv_shared_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    }
    model = model_from_config("m", config)
    row = 2 * 2 * 16 * 2
    tokens = []
    for version in ("0.14.1", "0.15.1"):
        rules = support_of(model, "vllm-gaudi", version).cache_rules
        tokens.append(kv_bytes_per_token(model, rules=rules))
    assert tokens == [6 * row, 4 * row]


@pytest.mark.parametrize(
    ("variables", "compressed"), [({}, True), ({"VLLM_MLA_DISABLE": "1"}, False)]
)
def test_a_plan_counts_what_the_version_allocates(
    variables: dict[str, str], compressed: bool
) -> None:
    engine = registry.find("vllm-gaudi@0.26.0")
    request = Request("moonshotai/Kimi-K2-Instruct")
    limits = engine.limits(request, Host(), KIMI)
    settings = [
        Setting(name, value, "env", "environment", message("plan.exported"))
        for name, value in variables.items()
    ]
    demand, _ = division(KIMI, limits, settings, engine)
    assert demand.cache == CacheRules(compressed=compressed)


@pytest.mark.parametrize(
    ("name", "version", "status", "reasons"),
    [
        ("JambaForCausalLM", "0.10.0", SupportStatus.NO, ["support.no_state"]),
        ("JambaForCausalLM", "0.13.0", SupportStatus.LIMITED, ["support.no_state"]),
        ("JambaForCausalLM", "0.26.0", SupportStatus.UNKNOWN, ["support.no_operators"]),
        ("NemotronHForCausalLM", "0.26.0", SupportStatus.RUNS, []),
        ("WhisperForConditionalGeneration", "0.26.0", SupportStatus.NO, ["support.no_cross"]),
        ("LlamaForCausalLM", "0.10.0", SupportStatus.RUNS, []),
    ],
)
def test_layers_without_a_cache_are_a_limit_and_refused_ones_do_not_run(
    name: str, version: str, status: SupportStatus, reasons: list[str]
) -> None:
    found = support_of(Model(name, name, architecture=name), "vllm-gaudi", version)
    assert (found.status, [each.id for each in found.reasons], found.refused) == (
        status,
        reasons,
        status is SupportStatus.NO,
    )


def test_a_profile_without_config_json_has_compact_gdn_too() -> None:
    model = Model(
        "m", "m", architecture="Qwen3_5MoeForConditionalGeneration", layers=40, attention_layers=10
    )
    found = support_of(model, "vllm-gaudi", "0.26.0")
    assert [each.id for each in found.reasons] == ["support.compact_gdn"]
