"""Addresses open to the network without a key: every engine's plan warns."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.host.machine import load
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.planning.container import Container
from gaudi_launch.planning.exposure import is_open, open_warning
from gaudi_launch.planning.plan import Command, Plan
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request

MODEL = Model(
    path="/m/Small",
    name="Small",
    source="config.json",
    architecture="LlamaForCausalLM",
    model_type="llama",
    parameters=10**9,
    dtype="bfloat16",
    moe=False,
    layers=4,
    hidden_size=1024,
    heads=8,
    kv_heads=8,
    head_dim=128,
    vocab_size=1000,
    max_position_embeddings=32768,
)
VLLM = ("vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi")
OPEN = {"plan.open_address", "plan.open_keyless"}


def plan(engine: str, **wishes: Any) -> Plan:
    request = Request(model=MODEL.path, engine=engine, **wishes)
    return make_plan(request, load("simulated:hls2"), MODEL, find(engine))


def exposed(made: Plan) -> list[str]:
    return [warning.id for warning in made.warnings if warning.id in OPEN]


@pytest.mark.parametrize("engine", [*VLLM, "ray-serve:vllm-fork@1.21"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5"])
def test_an_open_address_without_a_key_is_reported_once(engine: str, host: str) -> None:
    assert exposed(plan(engine, host=host)) == ["plan.open_address"]


@pytest.mark.parametrize("engine", VLLM)
def test_a_key_silences_the_warning(engine: str) -> None:
    assert exposed(plan(engine, host="0.0.0.0", environment={"VLLM_API_KEY": "k"})) == []


@pytest.mark.parametrize("engine", [*VLLM, "tgi", "ray-serve:vllm-fork@1.21"])
@pytest.mark.parametrize("host", [None, "127.0.0.1", "localhost"])
def test_this_machine_alone_needs_no_key(engine: str, host: str | None) -> None:
    assert exposed(plan(engine, host=host)) == []


@pytest.mark.parametrize("key", ["", "k"])
def test_an_engine_without_a_key_asks_for_a_proxy(key: str) -> None:
    assert exposed(plan("tgi", host="0.0.0.0", environment={"VLLM_API_KEY": key})) == [
        "plan.open_keyless"
    ]


def test_the_reference_of_deepseek_listens_for_all_and_says_so() -> None:
    reference = plan("deepseek_r1", tuning="reference", cards=8)
    assert reference.command.argv[reference.command.argv.index("--host") + 1] == "0.0.0.0"
    assert exposed(reference) == ["plan.open_address"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost", False),
        ("127.0.0.1", False),
        ("127.9.9.9", False),
        ("::1", False),
        ("[::1]", False),
        ("0.0.0.0", True),
        ("", True),
        ("10.0.0.5", True),
        ("node1", True),
    ],
)
def test_only_loopback_addresses_are_closed(address: str, expected: bool) -> None:
    assert is_open(address) is expected


def test_a_container_is_open_by_the_address_of_its_ports_and_has_no_key() -> None:
    argv = ("vllm", "--host", "0.0.0.0")
    plain = Command(argv, {})
    key = {"VLLM_API_KEY": "k"}
    assert open_warning(plain, {}) == message("plan.open_address", address="0.0.0.0")
    assert (open_warning(plain, key), open_warning(Command(("vllm",), {}), {})) == (None, None)
    open_to_all = Command(argv, {}, container=Container("i", (), ports=((80, 8080),)))
    assert open_warning(open_to_all, key) == message("plan.open_keyless", address="0.0.0.0")
    inner = Container("i", (), ports=((80, 8080),), address="127.0.0.1")
    assert open_warning(Command(argv, {}, container=inner), {}) is None
    # the host's network: the engine's own address
    on_host = Command(argv, {}, container=Container("i", ()))
    assert open_warning(on_host, {}) == message("plan.open_keyless", address="0.0.0.0")
