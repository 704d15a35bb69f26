"""The task of a model by its class, against the groups of the engines' registries."""

from __future__ import annotations

import json
from functools import cache

import pytest

from gaudi_launch.core.base import paths
from gaudi_launch.core.engines.upstream_tasks import (
    CHAT,
    EMBED,
    POOL,
    RERANK,
    by_name_only,
    pooling_options,
    sees_by_name,
    task_of,
)
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine_args import engine_args


@cache
def writing_classes() -> frozenset[str]:
    """Return the classes that write text, and do not pool, in every version that lists them."""
    file = paths.profiles_dir() / "engines" / "support" / "index.json"
    kinds = json.loads(file.read_text(encoding="utf-8"))["kinds"]
    return frozenset(name for name, kind in kinds.items() if "generate" in kind)


def task(architecture: str) -> str:
    return task_of(Model("m", "m", architecture=architecture))


def test_every_class_that_writes_text_is_served_for_it() -> None:
    assert {name for name in writing_classes() if task(name) != CHAT} == set()


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("BertModel", EMBED),
        ("MistralModel", EMBED),
        ("XLMRobertaForSequenceClassification", RERANK),
        ("ChatGLMModel", CHAT),
        ("Qwen2_5OmniModel", CHAT),
    ],
)
def test_the_end_of_a_class_decides(architecture: str, expected: str) -> None:
    assert task(architecture) == expected


def of(words: str, architecture: str = "LlamaForCausalLM") -> str:
    return task_of(
        Model("m", "m", architecture=architecture), engine_args(user=tuple(words.split()))
    )


def test_the_users_options_decide_before_the_class() -> None:
    assert {
        words: of(words)
        for words in ("--runner pooling", "--convert embed", "--convert classify", "--runner auto")
    } == {
        "--runner pooling": POOL,
        "--convert embed": EMBED,
        "--convert classify": RERANK,
        "--runner auto": CHAT,
    }
    assert of("--runner generate --convert embed", "BertModel") == CHAT
    assert of("--runner pooling", "BertModel") == EMBED


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bge-m3", EMBED),
        ("my_e5.large", EMBED),
        ("Qwen3-Embedding-8B", EMBED),
        ("bge-reranker", RERANK),
        ("embedded", CHAT),
        ("x", CHAT),
    ],
)
def test_a_name_decides_for_language_models(name: str, expected: str) -> None:
    for architecture in (None, "Qwen3ForCausalLM"):
        model = Model("m", name, architecture=architecture)
        assert (task_of(model), by_name_only(model)) == (expected, expected != CHAT)
    sees = Model("m", name, architecture="Qwen2VLForConditionalGeneration", multimodal=("vision",))
    assert (task_of(sees), by_name_only(sees)) == (CHAT, False)


def test_a_class_is_more_than_a_name() -> None:
    assert not by_name_only(Model("m", "bge-m3", architecture="XLMRobertaModel"))
    assert of("", "Qwen2ForRewardModel") == POOL


def test_only_a_name_says_that_a_model_sees() -> None:
    assert sees_by_name(Model("m", "m", "name", multimodal=("vision",)))
    assert not sees_by_name(Model("m", "m", "config.json", multimodal=("vision",)))
    assert not sees_by_name(Model("m", "m", "name", model_type="x", multimodal=("vision",)))
    assert not sees_by_name(Model("m", "m", "name"))


def test_a_pooling_model_gets_the_options_of_its_task() -> None:
    qwen = Model("m", "m", architecture="Qwen3ForCausalLM", model_type="qwen3")
    named = Model("m", "Qwen3-Reranker-8B")
    llama = Model("m", "m", architecture="LlamaForCausalLM", model_type="llama")
    bert = Model("m", "m", architecture="BertModel")
    overrides = (
        "--hf-overrides",
        '{"architectures":["Qwen3ForSequenceClassification"],'
        '"classifier_from_token":["no","yes"],"is_original_qwen3_reranker":true}',
    )
    pooling = ("--runner", "pooling")
    assert [pooling_options(qwen, EMBED), pooling_options(bert, EMBED)] == [
        [pooling, ("--convert", "embed")],
        [pooling],
    ]
    assert [pooling_options(each, RERANK) for each in (qwen, named, llama, bert)] == [
        [pooling, overrides],
        [pooling, overrides],
        [pooling, ("--convert", "classify")],
        [pooling],
    ]
    assert pooling_options(llama, POOL) == [pooling]
    gpt = Model("m", "m", architecture="GPT2LMHeadModel", model_type="gpt2")
    assert pooling_options(gpt, RERANK) == [pooling, ("--convert", "classify")]
