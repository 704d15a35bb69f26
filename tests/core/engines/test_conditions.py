"""The table of conditions, as plans, other commands and each row's own facts have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import catalogue, message
from gaudi_launch.core.engines.conditions import Condition, conditions, features_of
from gaudi_launch.core.engines.known_versions import releases, versions
from gaudi_launch.core.engines.launched import Launched, concerning
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.engines.version_facts import names_of
from gaudi_launch.core.host import simulated
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.plan import Plan, variables_of
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.services.diagnosis.signatures import signatures
from tests.support.refusals import failing

QWEN, MOE, GDN = "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3.6-35B-A3B"
NEW = "vllm-gaudi@0.26.0"
SPECULATION = ("--speculative-config", '{"method":"ngram","num_speculative_tokens":3}')
NIXL = ("--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}')
PENALTY = ("--override-generation-config", '{"repetition_penalty": 1.1}')
NO_CACHE = {"PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "true"}
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
    return str(condition.sentence.values.get("why", condition.sentence.render()))


@pytest.mark.parametrize(
    ("name", "wishes", "machine", "expected"),
    [
        (QWEN, {"engine": NEW}, "hls2", []),
        (QWEN, {"engine": "vllm-gaudi@0.21.0"}, "hls2", ["fastapi_routes"]),
        (MOE, {"engine": NEW}, "hls2", ["moe_single_stream"]),
        (MOE, {"engine": NEW}, "gaudi3-oam", []),
        (QWEN, {"engine": NEW, "extra": PENALTY}, "hls2", ["async_penalties"]),
        (QWEN, {"engine": NEW, "extra": ("--no-async-scheduling",)}, "hls2", []),
        (
            QWEN,
            {"engine": NEW, "max_model_len": 40960, "max_num_batched_tokens": 40960},
            "hls2",
            ["wide_mask"],
        ),
        (
            GDN,
            {"engine": NEW, "max_prefill_seqs": 4},
            "gaudi3-oam",
            ["gdn_graph_compile", "gdn_warmup_memory", "joined_hybrid_prompts"],
        ),
        (
            GDN,
            {"engine": "vllm-gaudi@0.19.1", "max_prefill_seqs": 4},
            "gaudi3-oam",
            [
                *("fastapi_routes", "gdn_padding", "gdn_masking"),
                *(f"noted_{number}" for number in (1122, 1449, 1462, 1486, 1500)),
            ],
        ),
        (QWEN, {"engine": NEW, "extra": SPECULATION}, "hls2", ["compile_speculation"]),
        (QWEN, {"engine": NEW, "extra": NIXL}, "hls2", ["other_cards_layout"]),
        (QWEN, {"engine": NEW, "environment": NO_CACHE}, "hls2", ["tensor_cache"]),
        (
            "openai/gpt-oss-120b",
            {"engine": "vllm-gaudi@0.19.0", "cards": 2, "force": True},
            "hls2",
            ["mxfp4_expanded", "fastapi_routes", "gptoss_experts", "noted_1122", "noted_1578"],
        ),
        (QWEN, {"engine": "vllm-fork@1.22"}, "hls2", []),
        (
            QWEN,
            {
                "engine": "vllm-fork@1.22",
                "environment": NO_CACHE,
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
    assert labels or condition.id == "vision_outside" or "deepseek_r1" in condition.versions
    branches = {"vllm-fork@deepseek_r1"}
    wanted = {f"{condition.engine}@{each}" for each in condition.versions}
    assert wanted - branches <= set(labels)
    makers = "HabanaAI" if condition.engine == "vllm-fork" else "vllm-project"
    assert condition.url.startswith(f"https://github.com/{makers}/vllm")
    assert condition.state in ("open", "closed", "document", "code")
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


@pytest.mark.parametrize(
    ("stored", "settings", "expected"),
    [
        ('{"repetition_penalty": 1.05}', {}, True),
        ('{"repetition_penalty": 1.05}', {"--generation-config": "vllm"}, False),
        ('{"repetition_penalty": 1.0}', {}, False),
        ('{"temperature": 0.7}', {}, False),
        ("[", {}, False),
    ],
)
def test_a_penalty_of_the_models_folder_counts(
    stored: str, settings: dict[str, str], expected: bool, tmp_path: Path
) -> None:
    (tmp_path / "generation_config.json").write_text(stored, encoding="utf-8")
    launched = Launched(Model(str(tmp_path), "m"), "gaudi2", settings)
    assert launched.holds("has:penalty") is expected


def warned(engine: str, *extra: str, force: bool = False, **exported: str) -> list[str]:
    request = Request(QWEN, extra=extra, environment=exported, force=force)
    plan = make_plan(request, simulated.make("hls2"), known_model(QWEN, False), find(engine))
    return [each.id for each in plan.warnings if each.id.startswith("features.")]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("vllm-gaudi@0.26.0", "slnllllsslnn"),
        ("vllm-gaudi@0.15.1", "slnlnllnslnn"),
        ("vllm-gaudi@0.10.0", "uuuuuuununun"),
        ("vllm-gaudi@main", "slnllllsslnn"),
        ("vllm-fork@1.21", "slunuuunsnul"),
        ("vllm-fork@1.22", "sluluuunsnul"),
        ("vllm-fork@deepseek_r1", "sluuuuunnnun"),
    ],
)
def test_each_version_answers(label: str, expected: str) -> None:
    """Compare the first letters: supported, limited, no, unknown."""
    assert "".join(each.status[0] for each in features_of(label)) == expected


def test_an_answer_names_the_engine_also_where_nothing_is_known() -> None:
    for each in features_of("vllm-gaudi@0.10.0"):
        id = "features.unknown"
        if each.status != "unknown":
            id = f"features.{each.feature}_{each.status}"
        assert each.answer("vllm-gaudi@0.10.0") == message(id, engine="vllm-gaudi@0.10.0")


def test_every_answer_has_a_sentence_and_a_source() -> None:
    for version in versions():
        for each in features_of(version.label):
            assert each.answer(version.label).id in catalogue("en")
            assert bool(each.thread) is (each.status != "unknown")
    written = [each for each in catalogue("en") if each.startswith("features.")]
    rows = {f"features.{row.id}" for row in conditions() if row.feature}
    assert rows == {each for each in written if each.endswith(("_supported", "_limited", "_no"))}


def test_a_plan_says_how_a_feature_is_limited_and_nothing_of_a_supported_one() -> None:
    assert warned("vllm-gaudi@0.26", "--enable-lora") == []
    speculative = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')
    assert warned("vllm-gaudi@0.26", *speculative) == ["features.speculative_limited"]
    assert warned("vllm-gaudi@0.16", VLLM_ROW_PARALLEL_CHUNKS="8") == ["features.row_parallel_no"]
    assert warned("vllm-gaudi@0.26", VLLM_ROW_PARALLEL_CHUNKS="8") == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("NixlConnector", ["features.disaggregated_limited"]),
        ("OffloadingConnector", ["features.offloading_limited"]),
        ("LMCacheConnectorV1", ["features.other_connector_limited"]),
    ],
)
def test_the_sentence_about_an_option_follows_its_value(value: str, expected: list[str]) -> None:
    connector = ("--kv-transfer-config", f'{{"kv_connector": "{value}", "kv_role": "kv_both"}}')
    assert warned("vllm-gaudi@0.26", *connector) == expected


def test_an_option_whose_feature_is_missing_is_refused_and_forced() -> None:
    with failing("features.refused", ExitCode.USAGE):
        warned("vllm-fork@1.21", "--kv-transfer-config", "{}")
    forced = warned("vllm-fork@1.21", "--kv-transfer-config", "{}", force=True)
    assert forced == ["features.disaggregated_no"]


@pytest.mark.parametrize("name", [GDN, "ibm-granite/granite-4.0-h-small"])
def test_no_release_speculates_with_states(name: str) -> None:
    for engine in [each.label for each in releases("vllm-gaudi") if each.executed]:
        wishes: dict[str, Any] = {"engine": engine, "cards": 4, "force": True}
        forced = planned(name, "hls2", extra=SPECULATION, **wishes)
        assert "features.state_speculation_no" in [each.id for each in forced.warnings]
        with failing("features.refused", ExitCode.USAGE):
            make_plan(
                Request(name, extra=SPECULATION, engine=engine, cards=4),
                simulated.make("hls2"),
                known_model(name, False),
                find(engine),
            )
