"""What engines get: every line of the file is kept, no setting leaves a hole."""

from __future__ import annotations

import pytest

from gaudi_launch.core.buckets.bucket_file import bucket_file, plan_for_engine
from gaudi_launch.core.buckets.engine_buckets import engine_buckets
from gaudi_launch.core.buckets.families import (
    CONTEXT_LADDER,
    EVERY_CONTEXT,
    FIXED_LENGTHS,
    PLAIN_GRID,
)
from gaudi_launch.core.buckets.lookup import BucketTable
from gaudi_launch.core.buckets.optimiser.bucket_planner import BucketGoal, plan, script_grid
from gaudi_launch.core.buckets.strategies import (
    Judged,
    Strategy,
    arguments_of,
    judge,
    script_ranges,
)
from gaudi_launch.core.predict.limits import CoverageQuestion
from gaudi_launch.core.predict.step_time import ONE_CARD_8B
from tests.support.traces import limits, made_up


@pytest.mark.parametrize("prompts", [1, 6])
@pytest.mark.parametrize("length", [8192, 5000])
@pytest.mark.parametrize("contiguous", [False, True])
def test_the_plugin_keeps_every_line(prompts: int, length: int, contiguous: bool) -> None:
    bounds = limits(
        max_num_prefill_seqs=prompts,
        max_model_len=length,
        input_max=4000,
        contiguous_pa=contiguous,
        num_blocks=900,
        mixed_steps=True,
    )
    text = bucket_file(plan(bounds, None).buckets, bounds)
    env = {"VLLM_CONTIGUOUS_PA": str(contiguous).lower()}
    kept = engine_buckets(
        CONTEXT_LADDER, "file", env, {**arguments_of(bounds), "bucket_file": text}
    )
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [str(tuple(bucket)) for bucket in [*kept.prompt, *kept.decode]] == lines
    assert all(query <= length for _, query, _ in kept.prompt)


@pytest.mark.parametrize("prompts", [1, 5])
@pytest.mark.parametrize(("budget", "length"), [(2048, 16384), (8192, 8192), (2048, 2000)])
def test_every_context_has_a_bucket(prompts: int, budget: int, length: int) -> None:
    bounds = limits(
        max_num_prefill_seqs=prompts,
        max_num_batched_tokens=budget,
        max_model_len=length,
        input_max=min(6144, length),
        output_max=1000,
        mixed_steps=True,
    )
    table = BucketTable(plan(bounds, None).buckets.prompt)
    most = -(-(length - 1) // 128)
    for batch in range(1, prompts + 1):
        # prompts with a context have a forward of their own
        for context in range(0, most + 1 if batch == 1 else 1):
            # the last block of a context holds at least one token
            left = length if not context else length - (context - 1) * 128 - 1
            query = min(budget // batch // 128 * 128, left)
            for some in (1, query // 2, query):
                if some > 0:
                    assert table.find(batch, some, context) is not None, (batch, some, context)


@pytest.mark.parametrize("engine", [PLAIN_GRID, EVERY_CONTEXT, FIXED_LENGTHS])
@pytest.mark.parametrize("with_limit", [True, False])
@pytest.mark.parametrize("prompts", [1, 4])
def test_parameters_leave_no_hole(engine: str, with_limit: bool, prompts: int) -> None:
    question = CoverageQuestion(engine, limits(max_num_prefill_seqs=prompts), with_limit)
    made = plan_for_engine(question, made_up(300))
    assert made.max_prefill_seqs == prompts
    mine, *others = made.comparison
    assert mine.holes is not None and mine.holes.shapes == 0
    assert mine.score is not None and mine.score.outside == 0
    assert others[0].prompt_graphs + others[
        0
    ].decode_graphs > mine.prompt_graphs + mine.decode_graphs or (
        others[0].score is not None and others[0].score.overhead > mine.score.overhead
    )
    assert any(name.endswith("_LIMIT") for name in made.settings) == (
        with_limit and engine != PLAIN_GRID
    )


@pytest.mark.parametrize("engine", [PLAIN_GRID, EVERY_CONTEXT, FIXED_LENGTHS])
@pytest.mark.parametrize(("seqs", "length"), [(1, 128), (1, 1024), (2, 777)])
def test_few_short_sequences_have_a_plan_too(engine: str, seqs: int, length: int) -> None:
    blocks = seqs * -(-length // 128)
    bounds = limits(
        max_num_seqs=seqs,
        max_model_len=length,
        num_blocks=blocks,
        input_max=length,
        output_max=length,
        cache_blocks=4000,
        max_num_prefill_seqs=1,
    )
    for with_limit in (True, False):
        (mine, *_) = plan_for_engine(CoverageQuestion(engine, bounds, with_limit)).comparison
        assert mine.holes is not None and mine.holes.shapes == 0


def test_fewer_graphs_when_asked() -> None:
    question = CoverageQuestion(PLAIN_GRID, limits(max_num_prefill_seqs=1))
    made = plan_for_engine(question, ask=BucketGoal(graphs=40))
    assert made.buckets.graphs <= 40


def test_the_scripts_short_cut_leaves_holes() -> None:
    # HabanaAI/vllm-fork@aice/v1.21.0 -b 24 -i 4,38912 -o 4,2048 -l 40960 -t 40960 -r 8,24000
    bounds = limits(
        max_num_seqs=24,
        max_num_prefill_seqs=24,
        max_num_batched_tokens=40960,
        max_model_len=40960,
        num_blocks=7728,
        input_min=4,
        input_max=38912,
        output_min=4,
    )
    shapes, cost = plan(bounds, None).aim.expectation.shapes, ONE_CARD_8B

    def judged(reduce: tuple[int, int] | None) -> Judged:
        strategy = Strategy("linear", "linear", script_ranges(PLAIN_GRID, bounds, reduce))
        return judge(PLAIN_GRID, strategy, bounds, shapes, cost)

    full, short = judged(None), judged((8, 24000))
    assert (full.prompt_graphs, full.decode_graphs) == (1184, 793)
    assert (short.prompt_graphs, short.decode_graphs) == (1066, 65)
    assert short.score is not None and short.score.outside > 0.2
    assert max(bucket[1] for bucket in short.buckets.prompt if short.buckets) == 23936  # type: ignore[union-attr]
    assert script_grid(bounds) == 1977
