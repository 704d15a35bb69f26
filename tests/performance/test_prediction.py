"""What physics demands of every prediction: properties, over drawn models and loads.

Not demanded, because published figures say otherwise: fewer milliseconds per step at batch 1 than
at batch 16 (the all-reduce of small batches is slower), and more speed from more cards for small
models or batches (optimum-habana's references: Gemma-2-9B on 8 cards is slower than on one).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.models.model import Model
from gaudi_launch.performance import prediction
from gaudi_launch.performance.constants import values
from gaudi_launch.performance.evidence import Band
from gaudi_launch.performance.learned import LearnedConstants
from gaudi_launch.performance.prediction import (
    Load,
    Prediction,
    SpeedKnowledge,
    StepModel,
    knowledge_of,
    predict,
)
from gaudi_launch.performance.shape import Shape, shape_of
from gaudi_launch.performance.step_model import Generation, Parts, Setup
from gaudi_launch.profiles import known_model
from tests.support.records import near

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


@cache
def known(generation: Generation) -> SpeedKnowledge:
    return knowledge_of(generation)


def static(setup: Setup, name: str, batch: int, prompt: int) -> Prediction:
    load = Load("static", prompt, 128, batch)
    return predict(setup, shape(name), load, known(setup.generation))


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
    assert long.ttft.expected >= NEARLY * short.ttft.expected
    assert long.tpot.expected >= NEARLY * short.tpot.expected
    assert NEARLY * long.throughput.expected <= short.throughput.expected


@settings(max_examples=150, deadline=None)
@given(setups(), st.sampled_from(ALL), BATCHES, BATCHES, st.integers(1, 4096))
def test_a_larger_batch_has_no_less_throughput(
    setup: Setup, name: str, one: int, other: int, prompt: int
) -> None:
    small = static(setup, name, min(one, other), prompt)
    large = static(setup, name, max(one, other), prompt)
    assert large.throughput.expected >= 0.99 * small.throughput.expected


@settings(max_examples=150, deadline=None)
@given(setups(), st.sampled_from(LARGE), st.integers(16, 256), st.integers(128, 8192))
def test_more_cards_are_not_slower_for_a_large_model(
    setup: Setup, name: str, batch: int, prompt: int
) -> None:
    few = static(replace(setup, cards=2), name, batch, prompt)
    many = static(replace(setup, cards=8), name, batch, prompt)
    assert many.throughput.expected >= few.throughput.expected


@settings(max_examples=150, deadline=None)
@given(setups(), st.sampled_from(ALL), BATCHES, PROMPTS)
def test_a_range_holds_its_expected_value(setup: Setup, name: str, batch: int, prompt: int) -> None:
    found = static(setup, name, batch, prompt)
    for band in (found.ttft, found.tpot, found.per_user, found.throughput):
        assert 0 < band.low <= band.expected <= band.high


@settings(max_examples=100, deadline=None)
@given(setups(), st.sampled_from(ALL), st.integers(1, 512), st.integers(1, 8192))
def test_fp8_is_not_slower_than_bf16(setup: Setup, name: str, batch: int, prompt: int) -> None:
    wide = replace(setup, math="bf16", weight_bytes=2.0, kv_bytes=2.0)
    narrow = replace(setup, math="fp8", weight_bytes=1.0, kv_bytes=1.0)
    before = static(wide, name, batch, prompt)
    after = static(narrow, name, batch, prompt)
    assert after.throughput.expected >= NEARLY * before.throughput.expected


ROUND = SpeedKnowledge(
    {
        "software.old": 1.5,
        "band.dense_served.points": 9.0,
        "band.dense_served.typical": 1.2,
        "band.dense_served.low": 0.5,
        "band.dense_served.high": 2.0,
    },
    (),
)
"""Constants of a class; those of steps are replaced."""


@pytest.fixture
def round_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a prompt's prefill 0.1 s, and a decode step 10 ms and 1 ms for each sequence."""

    def made(setup: Setup, shape: Shape, constants: object, slower: float = 1.0) -> StepModel:
        def prefill(batch: Any, tokens: Any) -> Parts:
            return Parts(0.0, 0.0, 0.1 * batch * slower, 0.0, 0.0)

        def decode(batch: Any, context: Any) -> Parts:
            return Parts(0.01 * slower, 0.0, 0.001 * batch * slower, 0.0, 0.0)

        return StepModel(prefill, decode)

    monkeypatch.setattr(prediction, "steps", made)


SERVED = Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v1")
# far from every figure: the band is wider
LOW, HIGH = 0.5**1.6, 2.0**1.6


def predicted(load: Load, setup: Setup = SERVED, **options: bool) -> Prediction:
    return predict(setup, shape(LARGE[0]), load, ROUND, **options)


@pytest.mark.usefixtures("round_steps")
def test_a_closed_loop_is_predicted_with_its_range() -> None:
    found = predicted(Load("concurrency", 100, 201, 10))
    step, total = 0.02, 1.0 + 200 * 0.02
    ttft = 0.1 * 11 / 2
    tpot = (total - ttft) / 200
    assert found.ttft == Band(*(near(ttft * each) for each in (1 / HIGH, 1.0, 1 / LOW)))
    assert found.tpot.expected == pytest.approx(tpot)
    assert found.per_user == Band(
        *(near(each / tpot) for each in (LOW, 1.0, HIGH)),
    )
    assert found.throughput.expected == pytest.approx(2010 / total)
    assert (found.prefill.total, found.decode.total) == pytest.approx((0.1, step))
    assert found.share == pytest.approx(
        {"weights": 2 / 5, "kv": 0.0, "arithmetic": 3 / 5, "links": 0.0, "host": 0.0}
    )
    assert (found.bound, found.batch, found.saturated) == ("arithmetic", 10, False)
    assert (found.evidence.points, found.evidence.neighbours) == (9, ())


@pytest.mark.usefixtures("round_steps")
def test_clients_beyond_the_cache_wait_for_one_that_ends() -> None:
    all_run = predicted(Load("concurrency", 100, 201, 5))
    some_wait = predicted(Load("concurrency", 100, 201, 8, room=5))
    waiting = 3 * 201 / all_run.throughput.expected
    assert some_wait.ttft.expected == pytest.approx(all_run.ttft.expected + waiting)
    assert some_wait.throughput == all_run.throughput
    assert [Load("static", 1, 1, 8, room=room).inside for room in (0, 5, 9)] == [8, 5, 8]


@pytest.mark.usefixtures("round_steps")
def test_an_old_release_is_slower() -> None:
    load = Load("static", 100, 11, 4)
    new, old = predicted(load), predicted(load, old=True)
    assert new.ttft.expected == pytest.approx(0.4)
    assert new.prefill.total == pytest.approx(0.4)
    assert old.ttft.expected == pytest.approx(0.6)
    assert old.throughput.expected == pytest.approx(new.throughput.expected / 1.5)


@pytest.mark.usefixtures("round_steps")
def test_the_prompts_of_a_step_change_the_time_to_the_first_token() -> None:
    load = Load("concurrency", 100, 201, 4)
    together = predicted(load, replace(SERVED, prompt_tokens=200))
    joined = predicted(load, replace(SERVED, step_tokens=200))
    assert together.ttft.expected == pytest.approx(0.2 * 3 / 2)
    assert joined.ttft.expected == pytest.approx(0.2 + 2 * 0.014 / 2)


@pytest.mark.usefixtures("round_steps")
def test_a_rate_is_kept_unless_the_engine_may_be_too_slow() -> None:
    slow = predicted(Load("rate", 100, 11, 8, rate=1.0))
    most = 8 * 11 / (0.8 + 10 * 0.018)
    assert slow.throughput == Band(11.0, 11.0, 11.0)
    fast = predicted(Load("rate", 100, 11, 8, rate=5.0))
    assert fast.throughput == Band(near(most * LOW), 55.0, 55.0)
    assert (slow.saturated, fast.saturated, slow.decode.total) == (False, False, 0.011)
    above = predicted(Load("rate", 100, 11, 8, rate=20.0))
    assert (above.saturated, above.throughput.expected) == (True, near(most))


@pytest.mark.usefixtures("round_steps")
def test_measurements_of_this_host_are_part_of_the_evidence() -> None:
    learned = LearnedConstants(4, 0.0, {}, 1.1, 1.2, 0, ())
    found = predict(
        SERVED, shape(LARGE[0]), Load("static", 1, 2, 1), replace(ROUND, learned=learned)
    )
    assert found.evidence.learned == 4


def test_a_slower_step_is_slower_in_every_part() -> None:
    plain = prediction.steps(SERVED, shape(LARGE[0]), values())
    slow = prediction.steps(SERVED, shape(LARGE[0]), values(), 2.0)
    for step in ("prefill", "decode"):
        once, twice = getattr(plain, step)(2, 100), getattr(slow, step)(2, 100)
        assert twice == once.times(2.0)
