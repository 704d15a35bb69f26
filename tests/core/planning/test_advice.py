"""Warnings of requests that contradict themselves, the model or the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.machine import load
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.advice import open_warning
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.planning.plan import Command, Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from tests.support.refusals import raising

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
    intermediate_size=4096,
    heads=8,
    kv_heads=4,
    head_dim=128,
    vocab_size=1000,
    max_position_embeddings=32768,
)
ENGINES = ("vllm-fork@1.21", "vllm-gaudi")


def plan(
    engine: str = "vllm-fork@1.21", model: Model = MODEL, product: str = "hls2", **wishes: Any
) -> Plan:
    request = Request(model=model.path, engine=engine, **wishes)
    return make_plan(request, load(f"simulated:{product}"), model, find(engine))


def ids(made: Plan) -> list[str]:
    return [warning.id for warning in made.warnings]


@pytest.mark.parametrize("engine", ENGINES)
def test_inputs_and_outputs_together_stay_within_the_length(engine: str) -> None:
    wishes: dict[str, Any] = {"input_range": (800, 7000), "output_range": (400, 2000)}
    assert ids(plan(engine, **wishes, max_model_len=8192)).count("plan.length_rule") == 1
    assert "plan.length_rule" not in ids(plan(engine, **wishes, max_model_len=9088))
    equal = {**wishes, "input_range": (800, 6992), "output_range": (400, 1200)}
    assert "plan.length_rule" not in ids(plan(engine, **equal, max_model_len=8192))
    assert "plan.length_rule" not in ids(plan(engine, input_range=(800, 7000), max_model_len=8192))


@pytest.mark.parametrize("engine", ENGINES)
def test_more_cards_than_key_value_heads_hold_the_cache_several_times(engine: str) -> None:
    replicated = [
        each for each in plan(engine, cards=8).warnings if each.id == "plan.kv_replicated"
    ]
    assert replicated == [message("plan.kv_replicated", heads=4, cards=8, times=2)]
    assert "plan.kv_replicated" not in ids(plan(engine, cards=4))
    assert "plan.kv_replicated" not in ids(plan(engine, replace(MODEL, mla_rank=576), cards=8))


@pytest.mark.parametrize(
    ("reduce", "within", "beyond", "uncovered"),
    [
        ((64, 1024), "24,1024", True, True),
        ((8, 50000), "8,16384", True, True),
        ((64, 50000), "24,16384", True, False),
        ((8, 1024), "8,1024", False, True),
        ((24, 16384), "24,16384", False, False),
    ],
)
@pytest.mark.parametrize("tuning", ["auto", "reference"])
def test_a_hot_part_ends_at_the_limits_and_the_script_compiles_no_more(
    tuning: str, reduce: tuple[int, int], within: str, beyond: bool, uncovered: bool
) -> None:
    made = plan(reduce=reduce, max_num_seqs=24, max_model_len=16384, tuning=tuning)
    hot = [each for each in made.warnings if each.id.startswith("plan.reduce_")]
    expected = {"plan.reduce_beyond": beyond, "plan.reduce_uncovered": uncovered}
    if tuning == "auto":
        expected["plan.reduce_uncovered"] = False
    assert {each.id for each in hot} == {id for id, wanted in expected.items() if wanted}
    assert [each.values["within"] for each in hot if "within" in each.values] == [within] * beyond


@pytest.mark.parametrize("engine", ENGINES)
def test_memory_that_was_not_checked_is_reported(engine: str) -> None:
    assert (
        ids(plan(engine, replace(MODEL, kv_heads=None, heads=None))).count("plan.memory_unchecked")
        == 1
    )
    assert "plan.memory_unchecked" not in ids(plan(engine))


def test_the_scripts_length_beyond_the_model_is_reported() -> None:
    short = replace(MODEL, max_position_embeddings=4096)
    assert "plan.reference_too_long" in ids(plan(model=short, tuning="reference"))
    assert "plan.reference_too_long" not in ids(
        plan(model=short, tuning="reference", max_model_len=4096)
    )
    # 1.22's script switches the engine's check off
    assert "plan.reference_too_long" not in ids(plan("vllm-fork@1.22", short, tuning="reference"))
    auto = plan(model=short)
    reason = next(setting.reason for setting in auto.settings if setting.name == "--max-model-len")
    assert (auto.command.argv[auto.command.argv.index("--max-model-len") + 1], reason.id) == (
        "4096",
        "plan.length_of_model",
    )


def test_a_remedy_is_never_a_plan_that_is_too_tight() -> None:
    # weights of 119 GiB a card: a shorter context starts, and has no room to work
    huge = replace(
        MODEL, heads=64, kv_heads=8, parameters=510 * 10**9, weight_bytes=1020 * 10**9, layers=512
    )
    with raising("fit.plan_refused") as caught:
        plan("vllm-fork@1.22", huge, "gaudi3-oam", cards=8, dtype="bfloat16", max_model_len=32768)
    assert "-l " not in caught.value.text.values["would"]


def test_an_option_that_does_not_apply_is_not_blamed_on_the_tuning() -> None:
    experts = replace(MODEL, moe=True, experts=8)
    for tuning, helps in (("auto", False), ("reference", True)):
        with raising("plan.no_such_option") as caught:
            plan("deepseek_r1", experts, input_range=(1, 512), tuning=tuning)
        assert ("--tuning auto" in str(caught.value)) is helps


VLLM = ("vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi")
OPEN = {"plan.open_address", "plan.open_keyless"}


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


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("size", "more", "is_slow"),
    [
        ("16", {}, True),
        ("64", {"dtype": "bfloat16"}, True),
        ("128", {}, False),
        ("16", {"dtype": "float16"}, False),
    ],
)
def test_small_blocks_are_slow_with_bf16(
    engine: str, size: str, more: dict[str, Any], is_slow: bool
) -> None:
    made = plan(engine, extra=("--block-size", size), **more)
    assert ("plan.small_blocks" in ids(made)) == is_slow
    assert "plan.small_blocks" not in ids(plan(engine, **more))
