"""Prompt buckets with a context dimension: made for the traffic, never with a hole."""

from __future__ import annotations

import numpy as np
import pytest

from gaudi_launch.core.buckets.bucket_file import plan_for_engine
from gaudi_launch.core.buckets.engine_buckets import lookups
from gaudi_launch.core.buckets.families import CONTEXT_LADDER
from gaudi_launch.core.buckets.optimiser import contexts
from gaudi_launch.core.buckets.optimiser.bucket_planner import BucketGoal
from gaudi_launch.core.buckets.optimiser.padding_cost import score
from gaudi_launch.core.buckets.strategies import arguments_of
from gaudi_launch.core.predict.limits import CoverageQuestion, EngineLimits
from gaudi_launch.core.predict.simulator import Continued, Shapes, Weighted, simulate
from gaudi_launch.core.predict.step_time import ONE_CARD_8B
from tests.support.traces import limits, made_up

NOTHING = Weighted(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))


def bounds(**changes: object) -> EngineLimits:
    return limits(
        **{"mixed_steps": True, "prefix_caching": True, "max_num_batched_tokens": 2048, **changes}
    )


def shapes_of(rows: list[tuple[int, int, float]]) -> Shapes:
    """(query tokens, context blocks, steps) of prompts."""
    fresh = [row for row in rows if not row[1]]
    behind = [row for row in rows if row[1]]
    prompt = Weighted(
        np.ones(len(fresh), dtype=np.int64),
        np.array([query for query, _, _ in fresh], dtype=np.int64),
        np.array([weight for _, _, weight in fresh]),
    )
    continued = Continued(
        np.array([query for query, _, _ in behind], dtype=np.int64),
        np.array([context for _, context, _ in behind], dtype=np.int64),
        np.array([weight for _, _, weight in behind]),
    )
    return Shapes(prompt, NOTHING, continued)


def test_a_common_shape_behind_a_context_has_a_bucket_of_its_own() -> None:
    shapes = shapes_of([(700, 0, 100.0), (100, 16, 100.0)])
    found = contexts.plan(shapes, bounds(), ONE_CARD_8B, 1.0, thorough=True)
    # and one for everything else: the longest query behind the longest context
    assert found == {(1, 768, 0), (1, 128, 16), (1, 2048, 64)}


def test_a_dear_graph_leaves_the_one_that_covers_everything() -> None:
    shapes = shapes_of([(700, 0, 100.0), (100, 16, 100.0)])
    assert contexts.plan(shapes, bounds(), ONE_CARD_8B, 1e9, thorough=True) == {(1, 2048, 64)}


def test_padding_counts_contexts() -> None:
    found = plan_for_engine(CoverageQuestion(CONTEXT_LADDER, bounds()))
    shapes = shapes_of([(128, 3, 1.0)])
    rule = lookups(
        CONTEXT_LADDER, "file", {}, {**arguments_of(bounds()), "bucket_file": found.file}
    )
    bucket = rule.prompt(1, 128, 3).bucket
    assert bucket is not None
    expected = ONE_CARD_8B.in_blocks(*bucket) / ONE_CARD_8B.in_blocks(1, 128, 3) - 1
    assert score(found.buckets, shapes, ONE_CARD_8B).overhead == pytest.approx(expected)


def test_a_trace_pads_less_than_the_engines_own_strategies_with_no_more_graphs() -> None:
    requests = made_up(1500)
    seen, later = requests[:900], requests[900:]
    start = later[0][0]
    held_out = simulate([(time - start, *rest) for time, *rest in later], bounds(), ONE_CARD_8B)  # type: ignore[misc]
    mine, *others = plan_for_engine(CoverageQuestion(CONTEXT_LADDER, bounds()), seen).comparison
    theirs = {other.name: other for other in others if other.name in ("exponential", "pad")}
    assert mine.buckets is not None and mine.graphs <= theirs["exponential"].graphs
    found = score(mine.buckets, held_out, ONE_CARD_8B)
    assert found.outside == 0
    for other in theirs.values():
        assert other.buckets is not None
        assert found.overhead < score(other.buckets, held_out, ONE_CARD_8B).overhead


def test_ranges_alone_pad_less_than_the_exponential_strategy_at_full_load() -> None:
    from gaudi_launch.core.buckets.optimiser.full_load import padding

    mine, exponential, *_ = plan_for_engine(CoverageQuestion(CONTEXT_LADDER, bounds())).comparison
    ours, theirs = padding([mine.buckets, exponential.buckets], bounds(), ONE_CARD_8B)
    assert ours is not None and theirs is not None
    assert (exponential.name, ours.overhead < theirs.overhead) == ("exponential", True)
    assert mine.graphs <= exponential.graphs


def test_a_goal_of_graphs_is_kept_with_a_trace() -> None:
    found = plan_for_engine(
        CoverageQuestion(CONTEXT_LADDER, bounds()), made_up(300), BucketGoal(graphs=20)
    )
    assert found.comparison[0].graphs <= 20
