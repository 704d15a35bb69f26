"""Same key for the same facts in any order, another key for every single invalidating fact."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.host.hardware import Card, Host
from gaudi_launch.messages import message
from gaudi_launch.planning.plan import Command, EngineIdentity, Placement, Plan, Setting
from gaudi_launch.recipe_cache.key import (
    _INDIFFERENT_VARIABLES,
    KeyDifference,
    KeyParts,
    parts_of,
    parts_of_host,
)
from tests.support.recipes import PARTS


def test_the_key_never_changes_between_releases() -> None:
    # a key that moved would throw away every cache in the field
    assert PARTS.key == "7cec5e2af81db874"


@given(st.permutations(list(PARTS.variables.items())))
def test_the_order_of_variables_does_not_matter(items: list[tuple[str, str]]) -> None:
    assert replace(PARTS, variables=dict(items)).key == PARTS.key


@pytest.mark.parametrize("name", [f.name for f in fields(KeyParts) if f.name != "variables"])
def test_every_fact_changes_the_key(name: str) -> None:
    value: Any = 8 if name == "tensor_parallel" else "other"
    other = replace(PARTS, **{name: value})
    assert other.key != PARTS.key
    assert PARTS.differences(other) == (KeyDifference(name, str(getattr(PARTS, name)), str(value)),)


@pytest.mark.parametrize("name", [*PARTS.variables, "VLLM_SOMETHING_NEW"])
def test_every_variable_changes_the_key(name: str) -> None:
    other = replace(PARTS, variables={**PARTS.variables, name: "other"})
    assert other.key != PARTS.key
    assert PARTS.differences(other) == (
        KeyDifference(name, PARTS.variables.get(name, ""), "other"),
    )


def test_a_variable_that_went_away_is_a_difference() -> None:
    other = replace(PARTS, variables={"--block-size": "128"})
    assert [d.name for d in PARTS.differences(other)] == ["VLLM_CONTIGUOUS_PA", "VLLM_FP32_SOFTMAX"]


def test_parts_survive_json() -> None:
    assert KeyParts.from_json(PARTS.to_json()) == PARTS
    # a ledger of another program may have numbers, other facts, and lack some
    document = {"driver": 1.2, "tensor_parallel": 2, "variables": {"A": 1}, "other": "x"}
    parts = KeyParts(driver="1.2", tensor_parallel=2, variables={"A": "1"})
    assert KeyParts.from_json(document) == parts
    assert KeyParts.from_json({}) == KeyParts()


@pytest.mark.parametrize(
    ("name", "indifferent"),
    [
        ("VLLM_PROMPT_SEQ_BUCKET_MAX", True),
        ("PT_HPU_RECIPE_CACHE_CONFIG", True),
        ("HABANA_VISIBLE_MODULES", True),
        ("VLLM_HOST_IP", True),
        ("PT_HPU_LAZY_MODE", False),
        ("VLLM_PROMPT_USE_FUSEDSDPA", False),
        ("VLLM_DELAYED_SAMPLING", False),
        ("PT_HPU_WEIGHT_SHARING", False),
        ("VLLM_ZERO_PADDING", False),
    ],
)
def test_which_variables_count(name: str, indifferent: bool) -> None:
    assert bool(_INDIFFERENT_VARIABLES.match(name)) is indifferent


HOST = Host(
    cards=(
        Card(0, 0, device_type="GAUDI2C"),
        Card(1, 1, device_type="GAUDI2"),
        Card(2, 2, device_type="GAUDI2"),
        Card(3, 3),
    ),
    product="gaudi2",
    driver_version="1.22.1-6",
)


def plan(facts: dict[str, str], env: dict[str, str], model: dict[str, Any], *settings: Any) -> Any:
    return SimpleNamespace(
        command=SimpleNamespace(env=env),
        settings=settings,
        engine=SimpleNamespace(facts=facts, exact="vllm-fork 1.22"),
        model=model,
        placement=SimpleNamespace(modules=(0, 1)),
    )


def setting(name: str, value: str = "", *, kind: str = "option", sent: bool = True) -> Any:
    return SimpleNamespace(name=name, value=value, kind=kind, sent=sent)


def test_a_plan_fills_the_cache_of_what_its_graphs_depend_on() -> None:
    found = parts_of(
        plan(
            {
                "software": "1.22.0",
                "inner": "vllm-fork inner",
                "commit": "c1",
                "vllm": "v1",
                "extension_commit": "e1",
                "extension": "x1",
            },
            {"PT_HPU_LAZY_MODE": "1", "VLLM_FP32_SOFTMAX": "true", "HF_HOME": "/x"},
            {"name": "m", "config": {"b": 1, "a": 2}},
            setting("--dtype", "bfloat16"),
            setting("--block-size", "128"),
            setting("--enforce-eager"),
            setting("--quantization", "inc", sent=False),
            setting("--kv-cache-dtype", "fp8_inc", kind="env"),
            setting("--max-num-seqs", "64"),
            setting("resources.HPU", "4"),
        ),
        HOST,
        b"scales",
    )
    assert found == KeyParts(
        product="gaudi2",
        stepping="GAUDI2,GAUDI2C",
        driver="1.22",
        software="1.22.0",
        engine="vllm-fork inner",
        engine_commit="c1",
        extension_commit="e1",
        model="m",
        # SHA-256 of {"a":2,"b":1}
        model_config="d3626ac30a87e6f7",
        tensor_parallel=4,
        dtype="bfloat16",
        # SHA-256 of the file
        quantization="6c00c076acc9c2f4",
        mode="lazy",
        variables={
            "PT_HPU_LAZY_MODE": "1",
            "VLLM_FP32_SOFTMAX": "true",
            "--block-size": "128",
            "--enforce-eager": "true",
        },
    )


def test_a_plan_of_which_less_is_known_has_its_weaker_facts() -> None:
    found = parts_of(plan({"vllm": "v1", "extension": "x1"}, {}, {"a": 2, "b": 1}), HOST)
    assert found == KeyParts(
        product="gaudi2",
        stepping="GAUDI2,GAUDI2C",
        driver="1.22",
        engine="vllm-fork 1.22",
        engine_commit="v1",
        extension_commit="x1",
        model_config="d3626ac30a87e6f7",
        tensor_parallel=2,
        mode="compile",
    )


def test_a_machine_without_cards_has_no_facts() -> None:
    assert parts_of_host(Host()) == KeyParts()
    assert parts_of_host(Host(driver_version="unknown")) == KeyParts()


@pytest.mark.parametrize(
    "option",
    ["--block-size", "--kv-cache-dtype", "--quantization", "--enable-expert-parallel",
     "--enforce-eager", "--pipeline-parallel-size", "--num-scheduler-steps",
     "--speculative-config", "--enable-lora"],
)  # fmt: skip
def test_options_that_change_graphs_are_in_the_key(option: str) -> None:
    reason = message("cache.miss_first")
    settings = tuple(
        Setting(name, value, "option", "flag", reason)
        for name, value in ((option, "x"), ("--max-num-seqs", "1"))
    )
    plan = Plan(
        EngineIdentity("e", "1"), {"name": "m"}, Placement((0,)), settings, Command(("e",), {}), ""
    )
    assert parts_of(plan, Host()).variables == {option: "x"}
    switch = replace(plan, settings=(replace(settings[0], value=None),))
    assert parts_of(switch, Host()).variables == {option: "true"}
