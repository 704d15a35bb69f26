"""The speed of a plan: its load, and what the step times are asked for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.fp8.quant_config import QuantFile
from gaudi_launch.core.planning import speed
from gaudi_launch.core.planning.engine import Context, Limits
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.speed import load_in, setup_in, static_in, step_time_in
from gaudi_launch.core.predict.balance import TYPICAL_INPUT, TYPICAL_OUTPUT
from gaudi_launch.core.predict.load import from_ranges
from tests.support.vllm_gaudi_plans import HLS2, LLAMA

LIMITS = Limits(1, 8192, 1, 8192, 8192, 4096, 64, 1)
GAUDI = find("vllm-gaudi")
FOUND = QuantFile("/q.json", "calibrated", "auto")


def context(limits: Limits = LIMITS, host: Host = HLS2, cards: int = 2, **words: Any) -> Context:
    placement = Placement(tuple(range(cards)))
    return Context(Request(model="/m", **words), host, LLAMA, placement, limits)


def test_the_load_is_of_typical_lengths_and_as_many_clients_as_are_served() -> None:
    usual = from_ranges((TYPICAL_INPUT, TYPICAL_INPUT), (TYPICAL_OUTPUT, TYPICAL_OUTPUT))
    assert load_in(context()) == usual.of_clients(64)


def test_given_ranges_are_those_of_the_load() -> None:
    limits = replace(LIMITS, input_min=100, input_max=301, output_min=10, output_max=31)
    found = load_in(context(limits, input_range=(100, 301), output_range=(10, 31)))
    assert (found.input_range, found.output_range) == ((100, 301), (10, 31))
    inputs = load_in(context(limits, input_range=(100, 301)))
    assert (inputs.input_range, inputs.output_range) == ((100, 301), (TYPICAL_OUTPUT,) * 2)


@pytest.mark.parametrize(
    ("length", "lengths"), [(300, (44, 256)), (2, (1, 1)), (1500, (1024, 256))]
)
def test_a_short_context_bounds_both_lengths(length: int, lengths: tuple[int, int]) -> None:
    found = load_in(context(replace(LIMITS, max_model_len=length)))
    assert (found.input_range[1], found.output_range[1]) == lengths


def asked(monkeypatch: pytest.MonkeyPatch, given: Context, engine: Any = GAUDI) -> tuple[Any, ...]:
    calls: list[tuple[Any, ...]] = []

    def step_time(*words: Any) -> Any:
        calls.append(words)
        return SimpleNamespace(cost="cost")

    monkeypatch.setattr(speed, "step_time", step_time)
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


def test_a_setup_is_what_the_engine_schedules_and_the_time_of_its_steps() -> None:
    found = setup_in(context(), GAUDI, (), 700)
    assert found is not None
    setup = found.speed.setup
    assert (setup.generation, setup.cards, setup.math, setup.engine) == ("gaudi2", 2, "bf16", "v1")
    assert (setup.weight_bytes, setup.kv_bytes, setup.hosts, found.dtype) == (2, 2, 1, "bfloat16")
    assert found.speed.cost == step_time_in(context(), GAUDI)
    limits = found.limits
    assert (limits.max_num_seqs, limits.num_blocks, limits.mixed_steps) == (64, 700, True)
    assert (limits.max_num_batched_tokens, limits.max_model_len) == (4096, 8192)
    old = setup_in(context(), find("vllm-fork@1.21"), (), 700)
    assert old is not None and (old.speed.setup.engine, old.limits.mixed_steps) == ("v0", False)
    # without chunked prefill a prompt is read in one step
    assert old.limits.max_num_batched_tokens == 8192
    fp8 = setup_in(context(dtype="fp8", quant_file=QuantFile("/q", "flag")), GAUDI, (), 700)
    assert fp8 is not None and fp8.speed.setup.kv_bytes == 1
    assert (fp8.speed.setup.math, fp8.speed.setup.weight_bytes) == ("fp8", 1)
    auto = setup_in(context(dtype="fp8", quant_file=FOUND), GAUDI, (), 700)
    assert auto is not None and auto.speed.setup.kv_bytes == 2


def test_a_batch_without_a_server_has_the_cache_of_its_weights() -> None:
    plain, fp8 = static_in(context(), GAUDI), static_in(context(dtype="fp8"), GAUDI)
    assert plain is not None and fp8 is not None
    assert [each.speed.setup.engine for each in (plain, fp8)] == ["static", "static"]
    assert [each.speed.setup.kv_bytes for each in (plain, fp8)] == [2, 1]


def test_without_cards_products_or_sizes_there_is_no_setup() -> None:
    for given in (
        context(cards=0),
        context(host=Host()),
        replace(context(), model=replace(LLAMA, layers=None)),
        replace(context(), model=replace(LLAMA, architecture="BertModel")),
    ):
        assert setup_in(given, GAUDI, (), 700) is None
        assert static_in(given, GAUDI) is None
