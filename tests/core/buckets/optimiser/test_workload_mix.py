"""The shapes that are expected: simulated once, and those by which padding is predicted."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.buckets.optimiser import workload_mix
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import Shapes, serve
from gaudi_launch.core.predict.step_time import ONE_CARD_8B, StepTime

LIMITS = EngineLimits(
    max_num_seqs=32,
    max_num_prefill_seqs=1,
    max_num_batched_tokens=2048,
    max_model_len=4096,
    num_blocks=900,
    input_min=1,
    input_max=4096,
    output_min=1,
    output_max=1024,
    mixed_steps=True,
)


def rows(shapes: Shapes) -> list[list[float]]:
    """Return all shapes with their weights."""
    prompt, decode, behind = shapes.prompt, shapes.decode, shapes.continued
    parts = (prompt.batch, prompt.size, prompt.weight, decode.batch, decode.size, decode.weight)
    return [part.tolist() for part in (*parts, behind.query, behind.context, behind.weight)]


@given(
    blocks=st.integers(33, 900),
    cache=st.none() | st.integers(33, 900),
    prompts=st.integers(1, 8),
    mixed=st.booleans(),
    ahead=st.booleans(),
    slower=st.floats(0.5, 20.0),
    concurrency=st.integers(1, 32),
)
def test_a_closed_loop_that_is_kept_is_the_one_that_would_be_simulated(
    blocks: int,
    cache: int | None,
    prompts: int,
    mixed: bool,
    ahead: bool,
    slower: float,
    concurrency: int,
) -> None:
    limits = replace(LIMITS, num_blocks=blocks, cache_blocks=cache, max_num_prefill_seqs=prompts)
    limits = replace(limits, mixed_steps=mixed, ahead=ahead)
    requests = workload_mix._closed_loops(1, (1, 3000, 1, 1024))[0][1]
    cost: StepTime = replace(ONE_CARD_8B, decode_block=slower * ONE_CARD_8B.decode_block)
    kept = workload_mix._closed_loop(
        workload_mix._as_used(limits, concurrency, requests), concurrency, requests
    )
    made = serve(requests, limits, cost, concurrency=concurrency)[0]
    assert rows(kept) == rows(made)
