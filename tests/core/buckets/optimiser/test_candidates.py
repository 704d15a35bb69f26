"""The optimiser: near the true optimum on tiny engines, never a hole on any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.buckets.coverage import uncovered
from gaudi_launch.core.buckets.lookup import BucketTable
from gaudi_launch.core.buckets.optimiser.bucket_planner import BucketGoal, plan
from gaudi_launch.core.buckets.optimiser.candidates import OptimiserPhase, corners, plan_phase
from gaudi_launch.core.buckets.optimiser.padding_cost import score
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import Weighted, serve
from gaudi_launch.core.predict.step_time import ONE_CARD_8B
from tests.support.refusals import failing
from tests.support.traces import limits, made_up


@contextmanager
def refused(id: str) -> Iterator[None]:
    with failing(id, ExitCode.USAGE):
        yield


def cost_of(
    pairs: list[tuple[int, int]], shapes: Weighted, phase: OptimiserPhase, price: float
) -> float:
    """Padded time and price of a list, looked up one shape at a time."""
    total = price * len(pairs)
    for batch, size, weight in zip(shapes.batch, shapes.size, shapes.weight, strict=True):
        first = next((p for p in sorted(pairs) if p[0] >= batch and p[1] >= size), None)
        if first is None:
            return float("inf")
        total += float(weight * phase.time(*first))
    return total


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("price", [0.5, 3.0, 12.0])
def test_near_brute_force(seed: int, price: float) -> None:
    chance = np.random.default_rng(seed)
    rows, tops = 3, 4
    number = chance.integers(3, 9)
    batch, size = chance.integers(1, rows + 1, number), chance.integers(1, tops + 1, number)
    shapes = Weighted(batch, size, chance.random(number) + 0.1)
    phase = OptimiserPhase(rows, lambda _: tops, (rows,), 1, lambda b, s: 1.0 + 2 * b + 3 * s)
    found = plan_phase(shapes, phase, price)
    every = [
        (b, s) for b in range(1, rows + 1) for s in range(1, tops + 1) if (b, s) != (rows, tops)
    ]
    best = min(
        cost_of([*some, (rows, tops)], shapes, phase, price)
        for count in range(6)
        for some in combinations(every, count)
    )
    assert cost_of(found, shapes, phase, price) <= best * 1.03 + 1e-9


def engines() -> st.SearchStrategy[EngineLimits]:
    return st.builds(
        lambda seqs, prompts, budget, length, blocks, block, contiguous: EngineLimits(
            max_num_seqs=seqs,
            max_num_prefill_seqs=prompts,
            max_num_batched_tokens=budget,
            max_model_len=length,
            num_blocks=max(blocks, seqs),
            input_min=1,
            input_max=length,
            output_min=1,
            output_max=min(200, length),
            block_size=block,
            contiguous_pa=contiguous,
        ),
        st.integers(1, 70),
        st.integers(1, 70),
        st.integers(100, 9000),
        st.integers(2, 9000),
        st.integers(1, 900),
        st.sampled_from([16, 128]),
        st.booleans(),
    )


@given(engines(), st.sampled_from([None, 1e-2, 3e-4]))
@settings(max_examples=40, deadline=None)
def test_every_shape_the_engine_forms_has_a_bucket(
    bounds: EngineLimits, price: float | None
) -> None:
    found = plan(bounds, None, BucketGoal(price=price)).buckets
    assert found.prompt == sorted(found.prompt) and found.decode == sorted(found.decode)
    assert all(batch * query <= bounds.max_num_batched_tokens for batch, query, _ in found.prompt)
    block = bounds.block_size
    table = BucketTable(found.prompt)
    longest = -(-bounds.max_model_len // block) * block
    for batch in range(1, min(bounds.max_num_prefill_seqs, bounds.max_num_seqs) + 1):
        reach = min(longest, bounds.max_num_batched_tokens // batch // block * block)
        for query in {reach, reach - block, reach // 2 // block * block, block} - {0}:
            if block <= query <= reach:
                assert table.find(batch, query, 0) is not None, (batch, query)
    table = BucketTable(found.decode)
    for batch in range(1, bounds.max_num_seqs + 1):
        top = bounds.num_blocks
        for blocks in {batch, (batch + top) // 2, top}:
            if batch <= blocks <= top:
                assert table.find(batch, 1, blocks) is not None, (batch, blocks)
    assert uncovered(found, bounds).shapes == 0


def test_holes_are_found() -> None:
    found = plan(limits(), None).buckets
    assert uncovered(type(found)(found.prompt[:-1], found.decode), limits()).prompt > 0
    assert uncovered(type(found)(found.prompt, found.decode[:-1]), limits()).decode > 0


def test_corners_are_the_maximal_rectangles() -> None:
    bounds = limits(
        max_num_seqs=128,
        max_num_prefill_seqs=128,
        max_num_batched_tokens=16384,
        max_model_len=16384,
    )
    assert len(corners(bounds)) == 21
    assert corners(limits()) == (1,)


@pytest.mark.parametrize("prompts", [1, 64])
def test_later_traffic_is_served_better_than_by_ranges(prompts: int) -> None:
    requests = made_up(1600)
    bounds = limits(max_num_prefill_seqs=prompts)
    seen, later = requests[:900], [(t - requests[900][0], i, o) for t, i, o in requests[900:]]
    shapes = serve(later, bounds, ONE_CARD_8B)[0]
    price = 4e-4
    traced = score(plan(bounds, seen, BucketGoal(price=price)).buckets, shapes, ONE_CARD_8B)
    ranged = score(plan(bounds, None, BucketGoal(price=price)).buckets, shapes, ONE_CARD_8B)
    assert traced.outside == ranged.outside == 0
    assert traced.overhead < ranged.overhead


def test_ways_to_ask() -> None:
    requests = made_up()
    few = plan(limits(), requests, BucketGoal(graphs=20))
    assert few.buckets.graphs <= 20
    close = plan(limits(), requests, BucketGoal(overhead=0.05))
    assert close.score.overhead <= 0.05
    assert plan(limits(), requests, BucketGoal(overhead=0.10)).buckets.graphs < close.buckets.graphs
    with refused("warmup.too_few_graphs"):
        plan(limits(), requests, BucketGoal(graphs=1))
    with refused("warmup.overhead_too_low"):
        plan(limits(), requests, BucketGoal(overhead=0.0001))
    with refused("warmup.bad_price"):
        plan(limits(), requests, BucketGoal(price=-1))


def test_the_hot_part_is_tight_and_the_rest_is_covered() -> None:
    bounds = limits(num_blocks=4096)
    hot = plan(bounds, None, BucketGoal(price=1e-3, reduce=(8, 1000)))
    assert uncovered(hot.buckets, bounds).shapes == 0
    short = serve([(i * 3.0, 300 + 7 * (i % 90), 50) for i in range(300)], bounds, ONE_CARD_8B)[0]
    plain = plan(bounds, None, BucketGoal(graphs=hot.buckets.graphs))
    assert (
        score(hot.buckets, short, ONE_CARD_8B).overhead
        < score(plain.buckets, short, ONE_CARD_8B).overhead
    )
