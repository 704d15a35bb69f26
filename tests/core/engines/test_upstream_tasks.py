"""The task of a model by its class, against the groups of the engines' registries."""

from __future__ import annotations

import json
from functools import cache

from gaudi_launch.core.base import paths
from gaudi_launch.core.engines.upstream_tasks import (
    CHAT,
    EMBED,
    POOL,
    RERANK,
    pooling_options,
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
