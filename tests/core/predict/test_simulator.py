"""The simulation against a slow one that follows every sequence by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import Weighted, serve
from gaudi_launch.core.predict.step_time import ONE_CARD_8B
from tests.support.traces import limits

Counts = dict[tuple[int, int], float]


def counted(part: Weighted) -> Counts:
    return {
        (int(b), int(s)): float(w)
        for b, s, w in zip(part.batch, part.size, part.weight, strict=True)
    }


def by_hand(requests: list[tuple[float, int, int]], bounds: EngineLimits) -> tuple[Counts, Counts]:
    """Prefill first, one step at a time; every sequence is [tokens in cache, output tokens
    left]."""
    prefills: Counter[tuple[int, int]] = Counter()
    decodes: Counter[tuple[int, int]] = Counter()
    block = bounds.block_size
    waiting: list[tuple[int, int]] = []
    running: list[list[int]] = []
    arrivals = list(requests)
    now = 0.0

    def held() -> int:
        return sum(-(-sequence[0] // block) for sequence in running)

    while arrivals or waiting or running:
        while arrivals and arrivals[0][0] <= now:
            waiting.append(arrivals.pop(0)[1:])
        batch: list[tuple[int, int]] = []
        free = bounds.num_blocks - held()
        while (
            waiting
            and len(batch) < bounds.max_num_prefill_seqs
            and len(running) + len(batch) < bounds.max_num_seqs
        ):
            longest = max([waiting[0][0], *(tokens for tokens, _ in batch)])
            area = -(-longest // block) * block * (len(batch) + 1)
            if (batch and area > bounds.max_num_batched_tokens) or waiting[0][
                0
            ] // block + 1 > free:
                break
            free -= waiting[0][0] // block + 1
            batch.append(waiting.pop(0))
        if batch:
            shape = (len(batch), max(tokens for tokens, _ in batch))
            prefills[shape] += 1
            now += ONE_CARD_8B.prefill(*shape) / 1000
            running += [[tokens + 1, output - 1] for tokens, output in batch if output > 1]
        elif running:
            while held() > bounds.num_blocks:
                tokens, left = running.pop()
                waiting.insert(0, (tokens, left))
            decodes[len(running), held()] += 1
            now += ONE_CARD_8B.decode(len(running), held()) / 1000
            for sequence in running:
                sequence[0] += 1
                sequence[1] -= 1
            running = [sequence for sequence in running if sequence[1]]
        elif arrivals:
            now = arrivals[0][0]
    return dict(prefills), dict(decodes)


REQUESTS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.3, 1.0, 2.5]), st.integers(1, 700), st.integers(1, 300)),
    max_size=12,
)


@given(REQUESTS, st.integers(1, 4), st.integers(1, 6), st.sampled_from([14, 20, 400]))
@settings(max_examples=60, deadline=None)
def test_same_as_by_hand(
    requests: list[tuple[float, int, int]], prompts: int, seqs: int, blocks: int
) -> None:
    bounds = limits(
        max_num_prefill_seqs=prompts,
        max_num_seqs=seqs,
        num_blocks=blocks,
        max_num_batched_tokens=2048,
        max_model_len=2048,
        input_max=1024,
    )
    ordered = sorted(requests)
    shapes = serve(ordered, bounds, ONE_CARD_8B)[0]
    assert (counted(shapes.prompt), counted(shapes.decode)) == by_hand(ordered, bounds)


def test_the_times_of_a_closed_loop_with_and_without_mixed_steps() -> None:
    requests = [(0.0, 100, 3), (0.0, 200, 3), (0.0, 50, 1)]
    bounds = limits(max_num_seqs=4)
    for engine in (bounds, replace(bounds, mixed_steps=True)):
        shapes, both = serve(requests, engine, ONE_CARD_8B, concurrency=1)
        alone = serve(requests, engine, ONE_CARD_8B, concurrency=1)[1]
        assert counted(shapes.decode) == counted(
            serve(requests, engine, ONE_CARD_8B, concurrency=1)[0].decode
        )
        for times in (both, alone):
            assert times.output.tolist() == [3, 3, 1]
            # one after the other
            assert times.came.tolist()[1:] == pytest.approx(times.done.tolist()[:-1])
        at_once = serve(requests, engine, ONE_CARD_8B, concurrency=3)[1]
        assert at_once.came.tolist() == [0.0, 0.0, 0.0]
        open_loop = serve(requests, engine, ONE_CARD_8B, rate=2.0, delay=5.0)[1]
        assert open_loop.came.tolist() == [0.0, 0.0, 0.0]
        assert min(open_loop.first) > 5.0
