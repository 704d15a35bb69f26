"""Loads made of steps whose times are round numbers."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.predict.loads import (
    Lengths,
    LoadTimes,
    closed_loop,
    prompts_together,
    static_batch,
)
from gaudi_launch.core.predict.step_model import Parts


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
    assert (found.parts.total, found.batch) == (pytest.approx(total), 4)


def test_prompts_that_share_a_step_are_fewer_steps() -> None:
    found = closed_loop(prefill, decode, Lengths(100, 200, together=2.0), 4)
    total = 2 * 0.2 + 199 * 0.016
    assert (found.ttft, found.parts.total) == pytest.approx((0.2 * 3 / 2, total))


def test_the_prompts_of_a_step_are_limited_by_budget_and_number() -> None:
    loads = ((2048, 256, 4), (2048, 256, 16), (100, 256, 16), (0, 256, 16))
    assert [prompts_together(*load) for load in loads] == [4.0, 8.0, 1.0, 1.0]
