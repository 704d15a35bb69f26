"""What physics demands of every prediction: properties, over drawn models and loads.

Not demanded, because published figures say otherwise: fewer milliseconds per step at batch 1 than
at batch 16 (the all-reduce of small batches is slower), and more speed from more cards for small
models or batches (optimum-habana's references: Gemma-2-9B on 8 cards is slower than on one).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.predict.load import Load
from gaudi_launch.core.predict.scaling import speed_of
from gaudi_launch.core.predict.shape import Shape, shape_of
from gaudi_launch.core.predict.simulate import Outcome, ServedSetup, simulate
from gaudi_launch.core.predict.step_model import Generation, Setup
from tests.support.traces import limits

LARGE = (
    "meta-llama/Llama-3.1-70B-Instruct",
    "meta-llama/Llama-3.1-405B-Instruct",
    "mistralai/Mistral-Large-Instruct-2407",
)
ALL = (
    *LARGE,
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-235B-A22B",
    "deepseek-ai/DeepSeek-R1",
)
# a fit has no smaller steps than this
NEARLY = 0.999


@cache
def shape(name: str) -> Shape:
    model: Model = known_model(name, must_exist=False)
    found = shape_of(model)
    assert found is not None
    return found


def static(setup: Setup, name: str, batch: int, prompt: int) -> Outcome:
    load = Load(((0.0, prompt, 128),), batch=batch)
    found = simulate(ServedSetup(limits(), speed_of(setup, shape(name))), load)
    assert found is not None
    return found


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    generations: tuple[Generation, ...] = ("gaudi2", "gaudi3")
    is_fp8 = draw(st.booleans())
    width = 1.0 if is_fp8 else 2.0
    return Setup(
        draw(st.sampled_from(generations)), draw(st.sampled_from((1, 2, 4, 8))),
        "fp8" if is_fp8 else "bf16", width, width, "static",
    )  # fmt: skip


BATCHES = st.integers(1, 4096)
PROMPTS = st.integers(1, 1_000_000)


@settings(max_examples=150, deadline=None)
@given(setups(), st.sampled_from(ALL), BATCHES, PROMPTS, PROMPTS)
def test_a_longer_prompt_is_never_faster(
    setup: Setup, name: str, batch: int, one: int, other: int
) -> None:
    short = static(setup, name, batch, min(one, other))
    long = static(setup, name, batch, max(one, other))
    assert long.ttft.mean >= NEARLY * short.ttft.mean
    assert long.tpot.mean >= NEARLY * short.tpot.mean
    assert NEARLY * long.tokens <= short.tokens


@settings(max_examples=150, deadline=None)
@given(setups(), st.sampled_from(ALL), BATCHES, BATCHES, st.integers(1, 4096))
def test_a_larger_batch_has_no_less_throughput(
    setup: Setup, name: str, one: int, other: int, prompt: int
) -> None:
    small = static(setup, name, min(one, other), prompt)
    large = static(setup, name, max(one, other), prompt)
    assert large.tokens >= 0.99 * small.tokens


@settings(max_examples=150, deadline=None)
@given(setups(), st.sampled_from(LARGE), st.integers(16, 256), st.integers(128, 8192))
def test_more_cards_are_not_slower_for_a_large_model(
    setup: Setup, name: str, batch: int, prompt: int
) -> None:
    few = static(replace(setup, cards=2), name, batch, prompt)
    many = static(replace(setup, cards=8), name, batch, prompt)
    assert many.tokens >= few.tokens


@settings(max_examples=150, deadline=None)
@given(setups(), st.sampled_from(ALL), BATCHES, PROMPTS)
def test_a_range_holds_its_expected_value(setup: Setup, name: str, batch: int, prompt: int) -> None:
    found = static(setup, name, batch, prompt)
    for band in (found.time(found.ttft), found.time(found.tpot, 95), found.throughput):
        assert 0 < band.low <= band.expected <= band.high


@settings(max_examples=100, deadline=None)
@given(setups(), st.sampled_from(ALL), st.integers(1, 512), st.integers(1, 8192))
def test_fp8_is_not_slower_than_bf16(setup: Setup, name: str, batch: int, prompt: int) -> None:
    wide = replace(setup, math="bf16", weight_bytes=2.0, kv_bytes=2.0)
    narrow = replace(setup, math="fp8", weight_bytes=1.0, kv_bytes=1.0)
    before = static(wide, name, batch, prompt)
    after = static(narrow, name, batch, prompt)
    assert after.tokens >= NEARLY * before.tokens
