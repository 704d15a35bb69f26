"""The speed of a plan: its load, and what the step times are asked for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.host.hardware import Host
from gaudi_launch.models.fp8.quant_config import QuantFile
from gaudi_launch.performance import scaling
from gaudi_launch.performance.balance import TYPICAL_INPUT, TYPICAL_OUTPUT
from gaudi_launch.performance.prediction import Load
from gaudi_launch.planning.engine import Context, Limits
from gaudi_launch.planning.plan import Placement
from gaudi_launch.planning.request import Request
from gaudi_launch.planning.speed import load_in, setup_in, step_time_in
from tests.support.vllm_gaudi_plans import HLS2, LLAMA

LIMITS = Limits(1, 8192, 1, 8192, 8192, 4096, 64, 1)
GAUDI = find("vllm-gaudi")
FOUND = QuantFile("/q.json", "calibrated", "auto")


def context(limits: Limits = LIMITS, host: Host = HLS2, cards: int = 2, **words: Any) -> Context:
    placement = Placement(tuple(range(cards)))
    return Context(Request(model="/m", **words), host, LLAMA, placement, limits)


def test_the_load_is_of_typical_lengths_and_as_many_clients_as_are_served() -> None:
    assert load_in(context(), None) == Load(
        "concurrency", TYPICAL_INPUT, TYPICAL_OUTPUT, 64, room=0
    )


def test_given_ranges_are_met_in_their_middle() -> None:
    limits = replace(LIMITS, input_min=100, input_max=301, output_min=10, output_max=31)
    found = load_in(context(limits, input_range=(100, 301), output_range=(10, 31)), None)
    assert (found.input, found.output) == (200, 20)
    inputs = load_in(context(limits, input_range=(100, 301)), None)
    assert (inputs.input, inputs.output) == (200, TYPICAL_OUTPUT)


def test_a_short_context_bounds_both_lengths() -> None:
    for length, expected in (
        (300, (300 - min(TYPICAL_OUTPUT, 299), min(TYPICAL_OUTPUT, 299))),
        (2, (1, 2)),
    ):
        found = load_in(context(replace(LIMITS, max_model_len=length)), None)
        assert (found.input, found.output) == (max(1, expected[0]), expected[1])


def test_requests_without_room_in_the_cache_wait() -> None:
    limits = replace(LIMITS, input_min=1000, input_max=1000, output_min=24, output_max=24)
    words: dict[str, Any] = {"input_range": (1000, 1000), "output_range": (24, 24)}
    rooms = {
        blocks: load_in(context(limits, **words), blocks).room for blocks in (7, 8, 80, 511, 512)
    }
    # 1024 tokens are eight blocks
    assert rooms == {7: 1, 8: 1, 80: 10, 511: 63, 512: 0}
    waiting = load_in(context(limits, **words), 80)
    assert waiting == Load("concurrency", 1000, 24, 64, room=10)
    # a block that is begun counts
    longer = replace(limits, output_min=25, output_max=25)
    assert load_in(context(longer, **words), 80).room == 80 // 9


def asked(monkeypatch: pytest.MonkeyPatch, given: Context, engine: Any = GAUDI) -> tuple[Any, ...]:
    calls: list[tuple[Any, ...]] = []

    def step_time(*words: Any) -> Any:
        calls.append(words)
        return SimpleNamespace(cost="cost")

    monkeypatch.setattr(scaling, "step_time", step_time)
    found: Any = step_time_in(given, engine)
    assert found == "cost"
    return calls[0]


def test_step_times_are_those_of_the_weights_the_cards_and_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gaudi2 = accelerators()["gaudi2"]
    assert asked(monkeypatch, context()) == (LLAMA, 2, "bfloat16", gaudi2, "auto", "v1")
    fp8 = asked(monkeypatch, context(dtype="fp8", quant_file=QuantFile("/q", "flag")))
    assert fp8[2:5] == ("fp8", gaudi2, "fp8_inc")
    assert asked(monkeypatch, context(dtype="fp8", quant_file=FOUND))[4] == "auto"
    assert asked(monkeypatch, context(dtype="fp8"))[4] == "auto"
    # of no known card and none chosen: one Gaudi2
    assert asked(monkeypatch, context(host=Host(), cards=0))[1:4] == (1, "bfloat16", gaudi2)
    assert asked(monkeypatch, context(), find("vllm-fork@1.21"))[5] == "v0"


def test_a_setup_has_the_generation_the_bytes_and_the_tokens_of_a_step() -> None:
    found = setup_in(context(), GAUDI, ())
    assert found is not None
    setup = found.setup
    assert (setup.generation, setup.cards, setup.math, setup.engine) == ("gaudi2", 2, "bf16", "v1")
    assert (setup.weight_bytes, setup.kv_bytes, setup.step_tokens, setup.hosts) == (2, 2, 4096, 1)
    assert (found.dtype, found.accelerator.id) == ("bfloat16", "gaudi2")
    old = setup_in(context(), find("vllm-fork@1.21"), ())
    assert old is not None and (old.setup.engine, old.setup.step_tokens) == ("v0", 0)
    fp8 = setup_in(context(dtype="fp8", quant_file=QuantFile("/q", "flag")), GAUDI, ())
    assert fp8 is not None
    assert (fp8.setup.math, fp8.setup.weight_bytes, fp8.setup.kv_bytes) == ("fp8", 1, 1)
    auto = setup_in(context(dtype="fp8", quant_file=FOUND), GAUDI, ())
    assert auto is not None and auto.setup.kv_bytes == 2


def test_without_cards_products_or_sizes_there_is_no_setup() -> None:
    assert setup_in(context(cards=0), GAUDI, ()) is None
    assert setup_in(context(host=Host()), GAUDI, ()) is None
    unknown = replace(context(), model=replace(LLAMA, layers=None))
    assert setup_in(unknown, GAUDI, ()) is None
    pools = replace(context(), model=replace(LLAMA, architecture="BertModel"))
    assert setup_in(pools, GAUDI, ()) is None
