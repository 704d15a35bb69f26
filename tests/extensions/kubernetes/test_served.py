"""A plan as one model of a cluster: names, requests, the key of its compiled graphs."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.planning.container import Container
from gaudi_launch.extensions.kubernetes.chart_values import Name
from gaudi_launch.extensions.kubernetes.objects.needs import PodResources
from gaudi_launch.extensions.kubernetes.served import dns_name, keys_of, release_name, served_of
from gaudi_launch.extensions.kubernetes.target import ServedModel
from tests.support.plans import odd
from tests.support.refusals import failing
from tests.support.served_models import NEEDS

PLAN = odd(("python",), {})


def made(container: Container, needs: PodResources = NEEDS) -> ServedModel:
    plan = replace(PLAN, cache={"key": "abc"})
    return served_of(plan, container, needs, "key", Name("chat"))


def test_a_plan_with_compiled_graphs() -> None:
    container = Container(
        "registry/vllm:1",
        ("--max-num-seqs", "32"),
        {"PT_HPU_RECIPE_CACHE_CONFIG": "/cache,false,4096"},
    )
    assert made(container) == ServedModel(
        key="key",
        name=Name("chat"),
        model="/models/m",
        container=container,
        needs=NEEDS,
        requests=32,
        recipe_mib=4096,
        recipe_key=hashlib.sha256(b"abc registry/vllm:1").hexdigest()[:16],
        metrics=("vllm:num_requests_running", "vllm:num_requests_waiting"),
        options=PLAN.engine.options,
        ray_amount=2,
    )


def test_a_pod_without_cards_is_one_of_rays_units() -> None:
    assert made(Container("a", ()), replace(NEEDS, cards=0)).ray_amount == 1


def test_any_text_becomes_a_dns_label() -> None:
    assert dns_name("Qwen/Qwen2.5-72B_Instruct") == "qwen-qwen2-5-72b-instruct"
    assert dns_name("模型") == "model"
    assert dns_name("a" * 44 + "-b") == "a" * 44
    assert dns_name("Abc-def", 4) == "abc"


@pytest.mark.parametrize("name", ["Upper", "7b", "a_b", "-a", "a" * 34])
def test_a_name_that_kubernetes_refuses_is_refused(name: str) -> None:
    with failing("kubernetes.name", ExitCode.USAGE) as caught:
        release_name(name, "m")
    assert caught.value.text.values == {"found": name, "longest": 33}


def test_models_of_one_name_are_numbered() -> None:
    names = ["org/Model", "/other/Model/", "Model", "b" * 30, "c/" + "b" * 30]
    assert keys_of(names) == ["model", "model-2", "model-3", "b" * 24, "b" * 21 + "-2"]
