"""Loads made of steps whose times are round numbers."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.performance.loads import (
    Lengths,
    LoadTimes,
    arrivals,
    closed_loop,
    prompts_together,
    static_batch,
)
from gaudi_launch.performance.step_model import Parts


def prefill(batch: Any, tokens: Any) -> Parts:
    """Return a step of 1 ms for each prompt token, all of it arithmetic."""
    return Parts(0.0, 0.0, batch * tokens / 1000, 0.0, 0.0)


def decode(batch: Any, context: Any) -> Parts:
    """Return a step of 10 ms, 1 ms for each sequence and 1 ms for each 100 tokens of context."""
    return Parts(0.01, 0.001 * context / 100, 0.001 * batch, 0.0, 0.0)


def test_a_static_batch_is_one_prefill_and_a_step_for_each_further_token() -> None:
    assert Lengths(100, 200).context == 200
    found = static_batch(prefill, decode, Lengths(100, 200), 4)
    step = 0.01 + 0.002 + 0.004
    total = 0.4 + 199 * step
    parts = Parts(0.01 * 199, 0.002 * 199, 0.4 + 0.004 * 199, 0.0, 0.0)
    assert found == LoadTimes(
        ttft=0.4,
        tpot=pytest.approx(step),
        step=pytest.approx(step),
        throughput=pytest.approx(4 * 200 / total),
        parts=Parts(*map(pytest.approx, vars(parts).values())),
        batch=4,
    )


def test_prompts_of_a_closed_loop_wait_for_half_of_the_others() -> None:
    found = closed_loop(prefill, decode, Lengths(100, 200), 4)
    step, total = 0.016, 4 * 0.1 + 199 * 0.016
    ttft = 0.1 * 5 / 2
    assert (found.ttft, found.tpot) == pytest.approx((ttft, (total - ttft) / 199))
    assert (found.step, found.throughput) == pytest.approx((step, 800 / total))
    assert (found.parts.total, found.batch, found.saturated) == (pytest.approx(total), 4, False)


def test_prompts_that_share_a_step_are_fewer_steps() -> None:
    found = closed_loop(prefill, decode, Lengths(100, 200, together=2.0), 4)
    total = 2 * 0.2 + 199 * 0.016
    assert (found.ttft, found.parts.total) == pytest.approx((0.2 * 3 / 2, total))


def test_prompts_that_join_a_step_wait_for_it_and_the_one_before() -> None:
    alone = closed_loop(prefill, decode, Lengths(100, 200, joined=1.0), 4)
    assert alone.ttft == pytest.approx(0.1 + 2 * 0.016 * 3 / 4)
    several = closed_loop(prefill, decode, Lengths(100, 200, 1.0, 2.0), 4)
    assert several.ttft == pytest.approx(0.2 + 2 * 0.016 / 2)
    fewer = closed_loop(prefill, decode, Lengths(100, 200, 2.0, 1.0), 4)
    assert fewer.ttft == pytest.approx(0.2 + 2 * 0.016 / 2)


def test_a_rate_is_served_by_the_batch_that_keeps_it() -> None:
    lengths = Lengths(100, 201)
    found = arrivals(prefill, decode, lengths, rate=2.0, most=64)
    free = 0.8
    # batch x free = rate x 200 x (10 + batch + 2.005 ms)
    batch = 2 * 200 * 0.012005 / (free - 2 * 200 * 0.001)
    step = 0.012005 + 0.001 * batch
    assert found.batch == pytest.approx(batch)
    assert (found.step, found.tpot) == pytest.approx((step, step / free))
    assert found.ttft == pytest.approx(0.1 + 0.2 / (2 * free) * 0.1 + step / 2)
    assert (found.throughput, found.saturated) == (402.0, False)
    assert found.parts.arithmetic == pytest.approx(0.2 + 0.001 * batch * free / step)
    assert found.parts.weights == pytest.approx(0.01 * free / step)


@pytest.mark.parametrize(("rate", "most"), [(10.0, 64), (3.0, 4)])
def test_a_rate_above_what_is_served_is_a_closed_loop(rate: float, most: float) -> None:
    lengths = Lengths(100, 201)
    found = arrivals(prefill, decode, lengths, rate=rate, most=most)
    closed = closed_loop(prefill, decode, lengths, most)
    assert found.saturated
    assert {**vars(found), "saturated": False} == vars(closed)


def test_the_prompts_of_a_step_are_limited_by_budget_and_number() -> None:
    loads = ((2048, 256, 4), (2048, 256, 16), (100, 256, 16), (0, 256, 16))
    assert [prompts_together(*load) for load in loads] == [4.0, 8.0, 1.0, 1.0]
