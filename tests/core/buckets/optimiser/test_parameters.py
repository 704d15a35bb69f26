"""The search over (min, step, max): its quick sums against the slow way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.buckets import ladders
from gaudi_launch.core.buckets.engine_buckets import engine_model
from gaudi_launch.core.buckets.families import EVERY_CONTEXT
from gaudi_launch.core.buckets.optimiser.parameters import _decodes, _prompts, _time, usable_blocks
from gaudi_launch.core.buckets.script_ranges import variables
from gaudi_launch.core.buckets.strategies import arguments_of
from gaudi_launch.core.predict.simulator import weighted
from gaudi_launch.core.predict.step_time import ONE_CARD_8B as COST
from tests.support.traces import limits

SHAPES = st.lists(
    st.tuples(st.integers(1, 24), st.integers(1, 1000), st.floats(0.1, 9)), min_size=1, max_size=30
)


@given(SHAPES, st.booleans(), st.sampled_from([24, 100, 700]))
@settings(max_examples=25, deadline=None)
def test_decode_menu_has_the_graphs_and_the_time_of_its_grid(
    drawn: list[tuple[int, int, float]], limited: bool, blocks: int
) -> None:
    bounds = limits(max_num_seqs=24, num_blocks=blocks, max_model_len=4096, input_max=2048)
    batch, size, weight = (np.asarray(column) for column in zip(*drawn, strict=True))
    # whole eights, which the search does not round again
    shapes = weighted(batch, -(-np.maximum(batch, size) // 8) * 8, weight)
    menu = _decodes(bounds, shapes, COST, limited)
    assert menu
    ladder: Callable[..., list[int]] = ladders.limited if limited else ladders.linear
    for choice in menu:
        rows = ladder(*choice.ranges["DECODE_BS"])
        sizes = [size for size in ladder(*choice.ranges["DECODE_BLOCK"]) if size < blocks] + [
            blocks
        ]
        grid = [[size for size in sizes if size >= row] for row in rows]
        assert choice.graphs == sum(map(len, grid))
        assert choice.time == pytest.approx(_time(rows, grid, shapes, COST.decode))


@pytest.mark.parametrize("limited", [False, True])
def test_the_prompt_menu_has_the_graphs_of_the_engine(limited: bool) -> None:
    bounds = limits(
        max_num_seqs=8,
        max_num_prefill_seqs=2,
        max_num_batched_tokens=1024,
        max_model_len=1024,
        input_max=512,
        output_max=512,
        prefix_caching=True,
    )
    shapes = weighted(np.asarray([1, 2]), np.asarray([300, 128]), np.asarray([5.0, 1.0]))
    algorithm = "linear-limit" if limited else "linear"
    menu = _prompts(bounds, shapes, COST, limited, deep=True)
    assert len(menu) > 3
    for choice in menu:
        env = {**variables(choice.ranges), "VLLM_EXPONENTIAL_BUCKETING": "false"}
        model = engine_model(EVERY_CONTEXT, algorithm, env, arguments_of(bounds))
        assert (choice.ranges, choice.graphs) == (choice.ranges, model.prompt.count())
    # without contexts each length of each row is one
    plain = _prompts(bounds, shapes, COST, limited, deep=False)
    assert [choice.ranges for choice in plain] == [choice.ranges for choice in menu]
    assert all(few.graphs < many.graphs for few, many in zip(plain, menu, strict=True))


@given(st.integers(1, 300), st.integers(1, 40), st.booleans(), st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_few_sequences_short_ones_and_a_small_cache_have_a_menu(
    sequences: int, blocks_each: int, limited: bool, share: float
) -> None:
    """One request of 2048 tokens is 16 blocks: fewer than the usual smallest bucket."""
    cache = max(blocks_each, int(share * sequences * blocks_each))
    bounds = limits(
        max_num_seqs=sequences,
        num_blocks=max(cache, sequences),
        cache_blocks=cache,
        max_model_len=128 * blocks_each,
        input_max=max(1, 128 * blocks_each - 1),
        output_max=1,
    )
    size = np.arange(sequences, bounds.num_blocks + 1)
    shapes = weighted(np.full(len(size), sequences), size, np.ones(len(size)))
    assert _decodes(bounds, shapes, COST, limited, rounds_cache=cache >= 128)


@pytest.mark.parametrize(("step", "kept"), [(128, 896), (384, 768), (512, 512), (1024, 0)])
def test_a_cache_is_cut_to_whole_steps(step: int, kept: int) -> None:
    bounds = limits(max_num_seqs=256, num_blocks=930, max_model_len=2048, cache_blocks=930)
    assert usable_blocks(bounds, step) == kept
    assert usable_blocks(replace(bounds, cache_blocks=None), step) == 930
