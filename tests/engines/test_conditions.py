"""The table of conditions, as plans, other commands and each row's own facts have it."""

from __future__ import annotations

import json

import pytest

from gaudi_launch.engines.conditions import Condition, Launched, concerning, conditions
from gaudi_launch.engines.registry import find
from gaudi_launch.engines.support import versions
from gaudi_launch.engines.version_facts import names_of
from gaudi_launch.host import simulated
from gaudi_launch.models.model import Model
from gaudi_launch.planning.plan import Plan, variables_of
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from gaudi_launch.services.diagnosis.signatures import signatures

QWEN, MOE, GDN = "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3.6-35B-A3B"
NEW = "vllm-gaudi@0.26.0"
SPECULATION = ("--speculative-config", '{"method":"ngram","num_speculative_tokens":3}')
NIXL = ("--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}')
NO_PREFIX = ("--no-enable-prefix-caching",)


def planned(name: str, machine: str, **wishes: object) -> Plan:
    request = Request(name, **wishes)  # type: ignore[arg-type]
    model = known_model(name, False)
    return make_plan(request, simulated.make(machine), model, find(request.engine))


def known(made: Plan) -> list[str]:
    """Return the IDs of the conditions that a plan warns of."""
    texts = [each.render() for each in made.warnings]
    return [each.id for each in conditions() if any(_why(each) in text for text in texts)]


def _why(condition: Condition) -> str:
    return str(condition.sentence.values["why"])


@pytest.mark.parametrize(
    ("name", "wishes", "machine", "expected"),
    [
        (QWEN, {"engine": NEW}, "hls2", ["async_penalties"]),
        (
            QWEN,
            {"engine": "vllm-gaudi@0.21.0"},
            "hls2",
            ["fastapi_routes", "async_penalties"],
        ),
        (MOE, {"engine": NEW}, "hls2", ["moe_single_stream", "async_penalties"]),
        (MOE, {"engine": NEW}, "gaudi3-oam", ["async_penalties"]),
        (QWEN, {"engine": NEW, "extra": ("--no-async-scheduling",)}, "hls2", []),
        (
            QWEN,
            {"engine": NEW, "max_model_len": 40960, "max_num_batched_tokens": 40960},
            "hls2",
            ["async_penalties", "wide_mask"],
        ),
        (
            GDN,
            {"engine": NEW, "max_prefill_seqs": 4},
            "gaudi3-oam",
            [
                "gdn_graph_compile",
                "gdn_warmup_memory",
                "async_penalties",
                "joined_hybrid_prompts",
            ],
        ),
        (
            GDN,
            {"engine": "vllm-gaudi@0.19.1", "max_prefill_seqs": 4},
            "gaudi3-oam",
            ["fastapi_routes", "async_penalties", "gdn_padding", "gdn_masking"],
        ),
        (QWEN, {"engine": NEW, "extra": SPECULATION}, "hls2", ["compile_speculation"]),
        (
            QWEN,
            {"engine": NEW, "extra": NIXL},
            "hls2",
            ["async_penalties", "other_cards_layout"],
        ),
        (
            QWEN,
            {"engine": NEW, "environment": {"PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "true"}},
            "hls2",
            ["async_penalties", "tensor_cache"],
        ),
        (
            "openai/gpt-oss-120b",
            {"engine": "vllm-gaudi@0.19.0", "cards": 2, "force": True},
            "hls2",
            ["mxfp4_expanded", "fastapi_routes", "async_penalties", "gptoss_experts"],
        ),
        (QWEN, {"engine": "vllm-fork@1.22"}, "hls2", []),
        (
            QWEN,
            {
                "engine": "vllm-fork@1.22",
                "environment": {"PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "true"},
                "extra": ("--quantization", "inc", "--split-qkv", "--enable-chunked-prefill"),
            },
            "hls2",
            ["fork_tensor_cache", "fork_split_fp8", "fork_chunked_prefill"],
        ),
        (
            QWEN,
            {"engine": "vllm-fork@1.21", "extra": ("--enable-chunked-prefill",)},
            "hls2",
            ["fork_chunked_prefill"],
        ),
    ],
)
def test_a_plan_warns_of_what_is_known_of_it(
    name: str, wishes: dict[str, object], machine: str, expected: list[str]
) -> None:
    assert known(planned(name, machine, **wishes)) == expected


def test_a_condition_sets_or_leaves_off_what_the_user_did_not_give() -> None:
    old = "vllm-gaudi@0.19.0"
    gpt = planned("openai/gpt-oss-120b", "hls2", engine=old, cards=4)
    assert "--enable-expert-parallel" not in gpt.command.argv
    (left_off,) = (each for each in gpt.warnings if each.id == "engines.left_off")
    assert left_off.values["name"] == "--enable-expert-parallel"
    own = planned(
        "openai/gpt-oss-120b", "hls2", engine=old, cards=4, extra=("--enable-expert-parallel",)
    )
    assert "--enable-expert-parallel" in own.command.argv
    assert "gptoss_experts" in known(own)
    fixed = planned("openai/gpt-oss-120b", "hls2", engine=NEW, cards=4)
    assert "--enable-expert-parallel" in fixed.command.argv

    def contiguous(engine: str, **wishes: object) -> tuple[str | None, bool]:
        made = planned(QWEN, "hls2", engine=engine, extra=NO_PREFIX, **wishes)
        return variables_of(made.settings).get("VLLM_CONTIGUOUS_PA"), "contiguous_context" in known(
            made
        )

    assert contiguous(NEW) == ("true", False)
    assert contiguous("vllm-gaudi@0.21.0") == ("false", False)
    exported = {"VLLM_CONTIGUOUS_PA": "true"}
    assert contiguous("vllm-gaudi@0.21.0", environment=exported) == ("true", True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("class:Qwen3*", True),
        ("class:Llama*|class:Qwen3*", True),
        ("card:gaudi3*", False),
        ("has:int8", True),
        ("--max-model-len>32768", True),
        ("--max-model-len>65536", False),
        ("--quantization", True),
        ("--quantization=fp8", False),
        ("fastapi>=0.137", False),
        ("transformers>=5", True),
        ("torch>=9", True),
    ],
)
def test_the_words_of_a_condition(words: str, expected: bool) -> None:
    weights = {"weights": {"type": "int", "num_bits": 8}, "input_activations": {"num_bits": 8}}
    model = Model(
        "m",
        "m",
        architecture="Qwen3ForCausalLM",
        config={"quantization_config": {"config_groups": {"group_0": weights}}},
    )
    settings = {"--max-model-len": "65536", "--quantization": "inc"}
    packages = {"fastapi": "0.136.9", "transformers": "5.0.1"}
    assert Launched(model, "gaudi2", settings, packages).holds(words) is expected


@pytest.mark.parametrize("condition", conditions(), ids=lambda each: each.id)
def test_a_row_names_what_there_is(condition: Condition) -> None:
    labels = [each.label for each in versions() if condition.has(each.label)]
    # one of a release that no shipped facts are of yet
    assert labels or condition.id == "vision_outside"
    assert all(f"{condition.engine}@{each}" in labels for each in condition.versions)
    makers = "HabanaAI" if condition.engine == "vllm-fork" else "vllm-project"
    assert condition.url.startswith(f"https://github.com/{makers}/vllm")
    assert condition.state in ("open", "closed", "document")
    launched = Launched(Model("", ""), "gaudi2", {"--max-model-len": "many"})
    assert all(launched.holds(words) in (True, False) for words in condition.when)
    names = [names_of(each) for each in versions() if each.label in labels]
    for name in condition.setting:
        assert all(each.option(name) or name in each.variables for each in names)
    ids = {each.id for each in signatures()} | {"device_oom_graphs", "expanded size of the tensor"}
    assert not condition.cause or condition.cause in ids


def test_a_range_ends_before_the_fixed_release() -> None:
    (found,) = (each for each in conditions() if each.id == "gdn_padding")
    having = ["0.19.0", "0.19.0.post1", "0.19.1", "0.19.1.post1", "0.21.0"]
    every = [each.version for each in versions() if found.has(each.label)]
    assert every == having
    others = ("main", "0.18", "0.24.0", "0.23.1", "0.22.0")
    assert [found.has(f"vllm-gaudi@{each}") for each in others] == [0, 0, 0, 1, 1]
    assert not found.has("vllm-fork@0.21.0")


def test_a_document_and_a_thread_have_their_address() -> None:
    urls = {each.id: each.url for each in conditions()}
    at = "https://github.com/vllm-project"
    assert urls["gdn_eager"] == f"{at}/vllm-gaudi/issues/1735"
    assert (
        urls["compile_fp8"] == f"{at}/vllm-gaudi/blob/v0.26.0/docs/features/supported_features.md"
    )


def test_int8_weights_on_gaudi2_are_known_to_be_garbage_before_the_fix() -> None:
    stored = '{"config_groups": {"g": {"weights": {"type": "int", "num_bits": 8},'
    stored += '"input_activations": {"num_bits": 8}}}}'
    model = Model("m", "m", config={"quantization_config": json.loads(stored)})
    for label, card, expected in (
        ("vllm-gaudi@0.24.0", "gaudi2", True),
        ("vllm-gaudi@0.24.0", "gaudi3", False),
        ("vllm-gaudi@0.26.0", "gaudi2", False),
    ):
        found = {each.id for each in concerning(label, Launched(model, card))}
        assert ("int8_gaudi2" in found) is expected
