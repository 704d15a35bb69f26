"""Profiles: each is good, has its sources, and is the one of its models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.commands.inspect.fit import ServedLengths, request_for
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.profiles_check import problems, schema
from gaudi_launch.core.engines import registry
from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.models.card_memory import divide_card
from gaudi_launch.core.models.config import model_from_config
from gaudi_launch.core.models.model import Model, Published
from gaudi_launch.core.models.sizing import divides, kv_bytes_per_token
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.fit import divided
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.memory import type_on_card
from tests.support.places import TESTS
from tests.support.refusals import failing, raising, refused

SHIPPED = sorted(profiles.shipped_dir().glob("*.yaml"))
ENGINES = sorted((profiles.shipped_dir().parent / "engines").glob("*.yaml"))
# every model that the public guides start, by the words of their command lines and tables
GUIDES = {
    "/models/Qwen2-72B-Instruct": "qwen2-72b",
    "/models/QwQ-32B": "qwq-32b",
    "/data/hf_models/DeepSeek-R1-0528-G2": "deepseek-r1",
    "/data/hf_models/DeepSeek-R1-0528": "deepseek-r1",
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
    "/data/hf_models/DeepSeek-R1-Distill-Llama-70B": "deepseek-r1-distill-llama-70b",
    "/data/hf_models/DeepSeek-R1-Distill-Qwen-32B": "deepseek-r1-distill-qwen-32b",
    "/data/hf_models/DeepSeek-R1-Distill-Llama-8B": "deepseek-r1-distill-llama-8b",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": "deepseek-r1-distill-qwen-7b",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": "deepseek-r1-distill-qwen-14b",
    "meta-llama/Llama-2-7b": "llama-2-7b",
    "meta-llama/Llama-2-7b-chat-hf": "llama-2-7b",
    "meta-llama/Llama-2-13b-chat-hf": "llama-2-13b",
    "NousResearch/Llama-2-13b-chat-hf": "llama-2-13b",
    "meta-llama/Llama-2-70b": "llama-2-70b",
    "meta-llama/Llama-2-70b-chat-hf": "llama-2-70b",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral-7b",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b",
    "meta-llama/Meta-Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "meta-llama/Meta-Llama-3.1-70B-Instruct": "llama-3.1-70b",
    "llava-hf/llava-v1.6-mistral-7b-hf": "llava-next",
    "Qwen/Qwen2-7B-Instruct": "qwen2-7b",
    "Qwen/Qwen2.5-72B-Instruct": "qwen2-72b",
    "Qwen/Qwen3-8B": "qwen3-8b",
    "Qwen/Qwen3-14B": "qwen3-14b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "Qwen/Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen/Qwen3-235B-A22B": "qwen3-235b-a22b",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "llama-4-scout",
    "zai-org/GLM-4.5": "glm-4.5",
}


def named(path: str) -> Model:
    return Model(path, path.rsplit("/", 1)[-1])


def name_of(profile: profiles.Profile | None) -> str | None:
    return profile.name if profile else None


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_profile_is_good(path: Path) -> None:
    import jsonschema

    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    jsonschema.validate(document, dict(schema("model")))
    assert [problem.render() for problem in problems(document)] == []
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=../schema/model.json"
    assert (path.parent / "../schema/model.json").is_file()
    assert document["name"] == path.stem
    optional = {"lengths", "parsers"} & set(document) | {"fp8_kv_cache", "expert_parallel"} & set(
        document["serving"]
    )
    assert optional <= set(document["sources"]), "every value has a source"
    says_assumed = any("assumed" in text for text in document["sources"].values())
    assert says_assumed == bool(document.get("assumed"))


@pytest.mark.parametrize("path", ENGINES, ids=lambda path: path.stem)
def test_shipped_engine_facts_are_good(path: Path) -> None:
    import jsonschema

    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    jsonschema.validate(document, dict(schema("engine")))
    assert [problem.render() for problem in problems(document, "engine")] == []
    assert path.read_text(encoding="utf-8").startswith(
        "# yaml-language-server: $schema=../schema/engine.json\n"
    )


@pytest.mark.parametrize(("path", "profile"), GUIDES.items())
def test_every_model_of_the_guides_has_its_profile(path: str, profile: str) -> None:
    assert name_of(profiles.match(named(path))) == profile


@pytest.mark.parametrize("profile", profiles.profiles(), ids=lambda profile: profile.name)
def test_each_id_of_a_profile_finds_it_again(profile: profiles.Profile) -> None:
    assert {name_of(profiles.match(named(model))) for model in profile.models} == {profile.name}


OTHERS = "DeepSeek-R1-Distill-Qwen-1.5B CodeLlama-2-7b Qwen3-8 my-llama-3.1-8b [ GLM-4.5-Air QwQ"


@pytest.mark.parametrize("name", ["", *OTHERS.split()])
def test_other_names_have_none(name: str) -> None:
    assert profiles.match(Model(name, name)) is None


def test_config_goes_before_the_name() -> None:
    qwen: dict[str, Any] = {"model_type": "qwen2", "num_hidden_layers": 64, "hidden_size": 5120}
    mixtral = {"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096}
    mixtral["num_key_value_heads"] = 8
    for name, config, expected in (
        ("my-model", mixtral, "mixtral-8x7b"),
        ("QwQ-32B", qwen, "qwq-32b"),
        ("DeepSeek-R1-Distill-Qwen-32B", qwen, "deepseek-r1-distill-qwen-32b"),
        ("Mixtral-8x7B-tiny", {**mixtral, "num_hidden_layers": 2}, None),
    ):
        assert name_of(profiles.match(Model("/m/" + name, name, config=config))) == expected


def test_config_of_the_text_part_counts() -> None:
    text = {"num_hidden_layers": 48, "hidden_size": 5120, "num_local_experts": 16}
    config = {"model_type": "llama4", "text_config": {"model_type": "llama4_text", **text}}
    assert name_of(profiles.match(Model("m", "m", config=config))) == "llama-4-scout"


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("Qwen/QwQ-32B", True),
        ("QwQ-32B", True),
        ("/models/QwQ-32B/", True),
        # as `convert` names its folder
        ("/models/DeepSeek-R1-0528-G2", True),
        # another owner's weights, another size or revision, another spelling
        ("me/QwQ-32B", False),
        ("/models/QwQ-32B-Preview", False),
        ("Qwen/Qwen2.5-14B-Instruct-1M", False),
        ("mistralai/Mistral-7B-v0.1", False),
        ("qwq-32b", False),
        ("nobody/nothing", False),
    ],
)
def test_a_profile_has_sizes_of_what_it_lists_only(name: str, listed: bool) -> None:
    found = known_model(name, must_exist=False)
    sizes = (found.layers, found.vocab_size, found.max_position_embeddings, found.parameters)
    assert (found.source == "profile", None not in sizes, any(sizes)) == (listed, listed, listed)


_STORED = json.loads((TESTS / "data" / "models" / "published.json").read_text(encoding="utf-8"))
# of the unverified ones no config.json was read: their facts are the profile's
PUBLISHED, UNVERIFIED = _STORED["configs"], _STORED["unverified"]


@pytest.mark.parametrize("hub_id", PUBLISHED)
def test_a_listed_model_has_the_facts_of_its_config(hub_id: str) -> None:
    found = known_model(hub_id)
    read = model_from_config(hub_id, PUBLISHED[hub_id])
    stated = {name: getattr(read, name) for name in profiles.FACTS}
    # some files have no type, or no count of attention layers by kind
    stated = {name: value for name, value in stated.items() if value not in (None, {})}
    assert {name: getattr(found, name) for name in stated} == stated


def test_each_listed_model_is_compared_or_marked_as_unverified() -> None:
    listed = [hub_id for profile in profiles.profiles() for hub_id in profile.models]
    assert sorted(listed) == sorted([*PUBLISHED, *UNVERIFIED])


@pytest.mark.parametrize("changes", [{}, {"intermediate_size": 28672}, {"num_hidden_layers": 16}])
@pytest.mark.parametrize("path", ["me/Llama-3.1-8B", "/models/Llama-3.1-8B"])
def test_only_a_listed_model_has_the_parameters_of_its_profile(
    path: str, changes: dict[str, int]
) -> None:
    """A config.json without weights that differs from the profile's is another model."""
    config = {**PUBLISHED["meta-llama/Meta-Llama-3.1-8B"], **changes}
    found = profiles.with_parameters(model_from_config(path, config))
    is_listed = path.startswith("/models") and not changes
    assert found.parameters == (8_030_261_248 if is_listed else None)


def test_checkpoints_that_differ_are_listed() -> None:
    differing = {
        hub_id: set(facts) for profile in profiles.profiles()
        for hub_id, facts in profile.checkpoints.items()
    }  # fmt: skip
    listed = {hub_id for profile in profiles.profiles() for hub_id in profile.models}
    assert set(differing) <= listed
    long = known_model("Qwen/Qwen3-235B-A22B-Instruct-2507")
    short = known_model("Qwen/Qwen3-235B-A22B")
    assert (long.max_position_embeddings, short.max_position_embeddings) == (262144, 40960)
    assert replace(long, max_position_embeddings=40960, path=short.path, name=short.name) == short


def own_profile(folders: Path, name: str, text: str) -> Path:
    path = folders / "config/gaudi-launch" / "profiles" / name
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", None),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "awq"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "gptq"),
        # 8 bits a weight, where gptq is counted with 4
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", None),
        ("zai-org/GLM-4.5-FP8", "fp8"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "fp8"),
        ("deepseek-ai/DeepSeek-R1-0528", "fp8"),
    ],
)
def test_a_copy_in_other_weights_is_known_by_its_name(name: str, quantization: str | None) -> None:
    assert known_model(name, must_exist=False).quantization == quantization


def test_own_profile_wins(own_folders: Path) -> None:
    text = (profiles.shipped_dir() / "qwq-32b.yaml").read_text(encoding="utf-8")
    path = own_profile(own_folders, "mine.yaml", text.replace("cards: 8", "cards: 2"))
    found = profiles.match(named("Qwen/QwQ-32B"))
    assert found is not None
    assert (found.cards, found.own, found.file) == (2, True, path)
    assert len(profiles.profiles()) == len(SHIPPED)


def test_an_own_profile_that_goes_by_the_name_alone_is_found_for_a_folder_too(
    own_folders: Path,
) -> None:
    document = yaml.safe_load((profiles.shipped_dir() / "qwq-32b.yaml").read_text(encoding="utf-8"))
    document |= {"name": "mine", "match": {"names": ["our-chat*"]}}
    own_profile(own_folders, "mine.yml", json.dumps(document))
    config = {"model_type": "qwen2", "num_hidden_layers": 2}
    assert name_of(profiles.match(Model("m", "our-chat-v2", config=config))) == "mine"
    assert name_of(profiles.match(Model("m", "their-chat", config=config))) is None


@pytest.mark.parametrize(
    "text", ["", "[", "- a", "schema: 2", "a: &a [*a]", "\x00", "name: 5\nschema: 1"]
)
def test_bad_own_profile_is_a_sentence(own_folders: Path, text: str) -> None:
    path = own_profile(own_folders, "bad.yaml", text)
    with raising("profiles.bad") as caught:
        profiles.profiles()
    assert str(path) in str(caught.value)


GOOD = yaml.safe_load(SHIPPED[0].read_text(encoding="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.sampled_from([*GOOD, "more"]), JSON)
def test_our_check_says_what_the_schema_library_says(name: str, value: Any) -> None:
    import jsonschema

    document = {**GOOD, name: value}
    real = jsonschema.Draft202012Validator(dict(schema("model"))).is_valid(document)
    assert (not list(problems(document))) == real, json.dumps(document)


# cards and lengths of the TGI and the 1.16 guides' command lines and tables; the manual's are held
# to whole plans (tests/core/planning/test_memory.py)
@pytest.mark.parametrize(
    ("model", "cards", "lengths"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", {1}, ()),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", {8}, ([1, 1024], 2048, 4096, 256)),
        ("llava-hf/llava-v1.6-mistral-7b-hf", {1}, ([2048, 4096], 8192, 16384, 4)),
        ("meta-llama/Llama-2-7b", {1, 2, 8}, ()),
        ("meta-llama/Llama-2-70b-chat-hf", {8}, ()),
        ("mistralai/Mistral-7B-Instruct-v0.3", {1, 2}, ()),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", {2}, ()),
    ],
)
def test_values_of_the_other_guides(
    model: str, cards: set[int], lengths: tuple[object, ...]
) -> None:
    names = ("input", "max_model_len", "max_num_batched_tokens", "max_num_seqs")
    profile = profiles.find(model)
    assert cards <= set(profile.tried)
    assert profile.cards in profile.tried
    assert dict(profile.lengths) == dict(zip(names, lengths, strict=False))


VALIDATED = json.loads(
    (ENGINES[0].parent / "support" / "vllm-gaudi-0.26.0.json").read_text(encoding="utf-8")
)["validated"]


@pytest.mark.parametrize("entry", VALIDATED, ids=lambda entry: entry["model"])
def test_each_validated_model_has_its_size_without_the_hub(entry: dict[str, Any]) -> None:
    model = known_model(entry["model"], must_exist=False)
    known = bool(model.parameters and kv_bytes_per_token(model) and model.max_position_embeddings)
    assert known


# counted from public configurations by the classes themselves; the cache of one token in bytes, in
# bfloat16
@pytest.mark.parametrize(
    ("model", "parameters", "cache"),
    [
        ("deepseek-ai/DeepSeek-OCR", 3_336_106_240, 12 * 2 * 10 * 128 * 2),
        ("google/gemma-4-E4B-it", 7_941_100_832, (20 * 2 * 2 * 256 + 4 * 2 * 2 * 512) * 2),
        ("ibm-granite/granite-20b-code-instruct-8k", 20_066_993_152, 52 * 2 * 128 * 2),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512", 675_991_013_888, 61 * (512 + 64) * 2),
        ("speakleash/Bielik-4.5B-v3.0-Instruct", 4_757_260_288, 60 * 2 * 2 * 128 * 2),
        ("tencent/Hunyuan-A13B-Instruct", 80_393_183_232, 32 * 2 * 8 * 128 * 2),
    ],
)
def test_sizes_of_validated_models(model: str, parameters: int, cache: int) -> None:
    known = known_model(model, must_exist=False)
    assert (known.parameters, kv_bytes_per_token(known)) == (parameters, cache)


def test_parsers_of_profiles_are_names_that_the_engine_registers() -> None:
    path = ENGINES[0].parent / "options" / "vllm-upstream.json"
    options = json.loads(path.read_text(encoding="utf-8"))["options"]
    known = {
        "tool": set(options["--tool-call-parser"]["registered"]),
        "reasoning": set(options["--reasoning-parser"]["registered"]),
    }
    for entry in VALIDATED:
        profile = profiles.match(named(entry["model"]))
        assert profile is not None, entry["model"]
        assert {profile.parsers.tool} - {None} <= known["tool"], entry["model"]
        assert {profile.parsers.reasoning} - {None} <= known["reasoning"], entry["model"]


@pytest.mark.parametrize(
    ("model", "tool", "reasoning"),
    [
        ("tencent/Hunyuan-A13B-Instruct", "hunyuan_a13b", "hunyuan_a13b"),
        ("ibm-granite/granite-3.1-8b-instruct", "granite", None),
        ("ibm-granite/granite-3.1-8b-base", None, None),
        ("openai/gpt-oss-20b", "openai", None),
        ("Qwen/Qwen2.5-32B-Instruct", "hermes", None),
        ("google/gemma-4-E4B-it", "gemma4", "gemma4"),
        ("google/gemma-4-E4B", None, None),
        ("MiniMaxAI/MiniMax-M2", "minimax_m2", "minimax_m2"),
        ("baidu/ERNIE-4.5-VL-28B-A3B-PT", None, "ernie45"),
        ("lmsys/gpt-oss-20b-bf16", "openai", None),
        ("Qwen/Qwen3.5-35B-A3B", "qwen3_coder", "qwen3"),
        ("Qwen/Qwen3-VL-32B-Instruct", "hermes", None),
        ("meta-llama/Llama-3.1-405B-Instruct", "llama3_json", None),
        ("meta-llama/Llama-3.1-405B", None, None),
    ],
)
def test_parsers_of_validated_models(model: str, tool: str | None, reasoning: str | None) -> None:
    profile = profiles.match(named(model))
    assert profile is not None
    found = profiles.parsers_for(profile, named(model).name)
    assert (found.tool, found.reasoning) == (tool, reasoning)


@pytest.mark.parametrize("entry", VALIDATED, ids=lambda entry: entry["model"])
def test_a_plan_of_each_validated_model_knows_its_memory_without_the_hub(
    entry: dict[str, Any],
) -> None:
    model = known_model(entry["model"], must_exist=False)
    product = accelerators()["gaudi3"]
    engine = registry.find("vllm-gaudi@0.26.0")
    dtype = type_on_card(model, (), engine)
    cards = next(count for count in (8, 4, 2, 1) if divides(model, count))
    # sizes do not depend on lengths; short ones have few buckets to plan
    request = request_for(model, ServedLengths("2048", "8", "512", "64"))
    demand, rules = divided(engine, request, product, model, cards, dtype)
    found = divide_card(model, cards, dtype, product.memory_total_mib << 20, demand, rules)
    assert found is not None
    assert found.weights > 0
    assert found.block > 0


FULL = """
schema: 1
name: mine
title: Mine
models: [me/mine, me/mine-fp8]
match: {names: ["mine*", "our-*"], config: {model_type: mine, num_hidden_layers: 2}}
architecture: {architecture: A, model_type: mine, parameters: 5, layers: 2, hidden_size: 8,
  heads: 2, vocab_size: 9, max_position_embeddings: 64, dtype: bfloat16, moe: true, experts: 4,
  attention_layers: 1}
serving: {cards: 2, tried: [1, 2], accelerator: gaudi3, engine: vllm-gaudi, dtype: fp8,
  fp8_kv_cache: auto, expert_parallel: false, disk_gb: 12}
lengths: {input: [1, 32], max_model_len: 64}
parsers: {reasoning: r, tool: t, reasoning_names: ["mine-r*"], tool_names: ["mine-t*"]}
settings:
- {kind: env, name: A, value: "1", engines: ["1.21", "1.22"], only: fp8, source: manual}
- {kind: option, name: --b, engines: ["1.21"], source: guide}
measurements:
- {names: ["mine*"], repo: me/measured, cards: 2, generation: g3, stem: inc,
  quantisation: {mode: QUANTIZE}}
sources: {architecture: a, serving: b, lengths: c, parsers: d, fp8_kv_cache: e, expert_parallel: f}
assumed: [serving]
notes: [one, two]
"""
LEAST = """
schema: 1
name: least
title: Least
models: [me/least]
match: {names: ["least"]}
architecture: {architecture: A, model_type: x, parameters: 5, layers: 2, hidden_size: 8, heads: 2,
  vocab_size: 9, max_position_embeddings: 64, dtype: bfloat16, moe: true}
serving: {cards: 1}
sources: {architecture: a, serving: b}
"""


def test_every_entry_of_a_profile_is_read(own_folders: Path) -> None:
    path = own_profile(own_folders, "mine.yaml", FULL)
    document = yaml.safe_load(FULL)
    published = Published("me/measured", 2, "inc", {"mode": "QUANTIZE"}, ("mine*",), "g3")
    assert profiles.find("mine") == profiles.Profile(
        name="mine",
        title="Mine",
        models=("me/mine", "me/mine-fp8"),
        names=("mine*", "our-*"),
        config={"model_type": "mine", "num_hidden_layers": 2},
        facts=document["architecture"],
        cards=2,
        dtype="fp8",
        tried=(1, 2),
        accelerator="gaudi3",
        lengths={"input": [1, 32], "max_model_len": 64},
        fp8_kv="auto",
        expert_parallel=False,
        parsers=profiles.Parsers("r", "t", ("mine-r*",), ("mine-t*",)),
        settings=(
            profiles.ProfileSetting("env", "A", ("1.21", "1.22"), "manual", "1", "fp8"),
            profiles.ProfileSetting("option", "--b", ("1.21",), "guide"),
        ),
        sources=document["sources"],
        assumed=("serving",),
        notes=("one", "two"),
        disk_gb=12,
        engine="vllm-gaudi",
        measurements=(published,),
        file=path,
        own=True,
    )


def test_what_a_profile_does_not_state_has_its_default(own_folders: Path) -> None:
    path = own_profile(own_folders, "least.yml", LEAST)
    document = yaml.safe_load(LEAST)
    assert profiles.find("me/least") == profiles.Profile(
        name="least",
        title="Least",
        models=("me/least",),
        names=("least",),
        config={},
        facts=document["architecture"],
        cards=1,
        dtype="bfloat16",
        tried=(),
        accelerator="gaudi2",
        lengths={},
        fp8_kv="fp8_inc",
        # a mixture of experts
        expert_parallel=True,
        parsers=profiles.Parsers(),
        settings=(),
        sources={"architecture": "a", "serving": "b"},
        assumed=(),
        file=path,
        own=True,
    )


def test_settings_and_parsers_are_those_of_the_name_the_version_and_the_type(
    own_folders: Path,
) -> None:
    own_profile(own_folders, "mine.yaml", FULL)
    mine = profiles.find("mine")
    reason = message("profiles.setting", profile="mine")
    assert profiles.profile_settings(mine, "1.21", "fp8") == [
        ("env", "A", "1", reason, "manual"),
        ("option", "--b", None, reason, "guide"),
    ]
    assert profiles.profile_settings(mine, "1.22", "bfloat16") == []
    found = {name: profiles.parsers_for(mine, name) for name in ("mine-t1", "Mine-R1", "mine", "x")}
    assert found == {
        "mine-t1": profiles.Parsers(tool="t"),
        "Mine-R1": profiles.Parsers(reasoning="r"),
        "mine": profiles.Parsers(),
        "x": profiles.Parsers(),
    }


def test_published_measurements_are_for_a_name_a_generation_and_a_number_of_cards(
    own_folders: Path,
) -> None:
    own_profile(own_folders, "mine.yaml", FULL)
    mine = profiles.find("mine")
    assert profiles.published_for(mine, "Mine-Chat", "g3", 2) is not None
    for other in (("mine", "g2", 2), ("mine", "g3", 1), ("other", "g3", 2)):
        assert profiles.published_for(mine, *other) is None
    assert profiles.published_for(None, "mine", "g3", 2) is None


def test_facts_of_a_profile_fill_what_a_folder_lacks(own_folders: Path, tmp_path: Path) -> None:
    own_profile(own_folders, "mine.yaml", FULL)
    config = {"model_type": "mine", "num_hidden_layers": 2}
    # the last part of an ID that the profile lists
    folder = tmp_path / "mine"
    folder.mkdir()
    # config.json is complete: only the number of weights may be unknown
    for more, parameters in (({}, 5), ({"vocab_size": 10}, None)):
        (folder / "config.json").write_text(json.dumps(config | more))
        found = known_model(str(folder))
        assert (found.parameters, found.layers, found.heads) == (parameters, 2, None)
    facts = yaml.safe_load(FULL)["architecture"]
    listed = Model("me/mine", "mine", source="profile", **facts)
    assert known_model("me/mine") == listed
    by_name = known_model("me/mine-GPTQ", must_exist=False)
    assert by_name.unread is not None and by_name.unread.id == "models.offline"
    assert replace(by_name, unread=None) == Model("me/mine-GPTQ", "mine-GPTQ", quantization="gptq")


def test_an_unknown_profile_is_answered_with_those_that_exist() -> None:
    with pytest.raises(LaunchError) as caught:
        profiles.find("mine")
    known = ", ".join(profile.name for profile in profiles.profiles())
    assert caught.value.text == message("profiles.unknown", found="mine", known=known)
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"x: ]", "node content"), (b"#" * ((1 << 20) + 1), "larger than 1024 KiB")],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(
    content: bytes, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with failing("profiles.bad", ExitCode.USAGE) as caught:
        profiles.read_document(path)
    assert caught.value.text.values["path"] == str(path)
    found = caught.value.text.values["why"]
    assert why in found and "\n" not in found


def test_a_file_that_is_missing_is_refused_with_the_systems_reason(tmp_path: Path) -> None:
    values = {"path": str(tmp_path / "none.yaml"), "why": "No such file or directory"}
    with refused("profiles.bad", ExitCode.USAGE, **values):
        profiles.read_document(tmp_path / "none.yaml")


def test_a_file_of_exactly_a_mebibyte_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\n#".ljust(1 << 20, "x"), encoding="utf-8")
    assert profiles.read_document(path) == {"a": 1}


def test_a_model_must_exist_unless_its_name_is_enough(own_folders: Path, tmp_path: Path) -> None:
    own_profile(own_folders, "least.yml", LEAST.replace(", moe: true", ""))
    with pytest.raises(LaunchError) as caught:
        known_model(str(tmp_path / "least"))
    assert caught.value.exit_code is ExitCode.MODEL
    by_name = known_model("me/least", must_exist=False)
    # a profile that does not say so is of a dense model, with attention in each layer
    assert (by_name.moe, by_name.layers, by_name.attention_layers) == (False, 2, 2)
