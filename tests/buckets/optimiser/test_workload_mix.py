"""Weights of an expected workload that are spread to neighbouring shapes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gaudi_launch.buckets.optimiser import workload_mix as module
from gaudi_launch.performance.limits import EngineLimits
from gaudi_launch.performance.simulator import Continued, Shapes, Weighted
from tests.support.records import near
from tests.support.traces import limits


def one(batch: int, size: int, weight: float) -> Weighted:
    return Weighted(np.asarray([batch]), np.asarray([size]), np.asarray([weight]))


def by_batch(part: Weighted) -> dict[int, float]:
    found: Counter[int] = Counter()
    for batch, weight in zip(part.batch.tolist(), part.weight.tolist(), strict=True):
        found[batch] += weight
    return dict(found)


def blurred(bounds: EngineLimits, prompt: Weighted) -> Shapes:
    context = Continued(np.asarray([128]), np.asarray([20]), np.asarray([3.0]))
    return module._blur(Shapes(prompt, one(8, 100, 6.0), context), bounds)


@pytest.mark.parametrize(
    ("prompts", "batch", "batches"),
    [
        # half of the weight stays, a quarter goes to each side
        (16, 10, {8: 2.0, 10: 4.0, 12: 2.0}),
        # no more prompts than a step can have
        (10, 10, {8: 2.0, 10: 6.0}),
        # 16 prompts of two blocks have no room
        (32, 14, {11: 2.0, 14: 4.0, 17: 2.0}),
        (32, 16, {13: 2.0, 16: 6.0}),
    ],
)
def test_prompts_of_a_step_are_spread_to_other_numbers(
    prompts: int, batch: int, batches: dict[int, float]
) -> None:
    bounds = limits(
        max_num_prefill_seqs=prompts, max_num_batched_tokens=17 * 256, max_model_len=4096
    )
    found = blurred(bounds, one(batch, 200, 8.0))
    assert by_batch(found.prompt) == near(batches)


def test_one_prompt_a_step_stays_one() -> None:
    found = blurred(limits(), one(1, 1000, 8.0))
    assert by_batch(found.prompt) == near({1: 8.0})
    # up to a tenth more and less, and half of the weight where it was
    assert (int(found.prompt.size.min()), int(found.prompt.size.max())) == (920, 1080)
    kept = found.prompt.weight[found.prompt.size == 1000]
    # the middle of nine steps, whose weights fall to both sides, has a fifth of the other half
    assert kept.tolist() == near([4.0 + 0.2 * 4.0])


def test_no_weight_of_decode_steps_and_contexts_is_lost() -> None:
    found = blurred(limits(), one(1, 1000, 8.0))
    assert by_batch(found.decode) == near({8: 6.0})
    contexts = dict(
        zip(found.continued.context.tolist(), found.continued.weight.tolist(), strict=True)
    )
    # half stays, and a tenth goes to each of 18, 19, 20, 21 and 22 blocks
    assert contexts == near({18: 0.3, 19: 0.3, 20: 1.8, 21: 0.3, 22: 0.3})
    assert set(found.continued.query.tolist()) == {128}
