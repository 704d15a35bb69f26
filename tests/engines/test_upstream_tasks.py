"""The task of a model by its class, against the groups of the engines' registries."""

from __future__ import annotations

import json
from functools import cache

import pytest

from gaudi_launch import paths
from gaudi_launch.engines.upstream_tasks import CHAT, EMBED, RERANK, task_of
from gaudi_launch.models.model import Model


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
