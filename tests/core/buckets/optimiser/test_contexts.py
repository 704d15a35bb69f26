"""Prompt buckets with a context dimension: made for the traffic, never with a hole."""

from gaudi_launch.core.buckets.bucket_file import plan_for_engine
from gaudi_launch.core.buckets.families import CONTEXT_LADDER
from gaudi_launch.core.buckets.optimiser.bucket_planner import BucketGoal
from gaudi_launch.core.buckets.optimiser.padding_cost import score
from gaudi_launch.core.predict.limits import CoverageQuestion, EngineLimits
from gaudi_launch.core.predict.simulator import serve
from gaudi_launch.core.predict.step_time import ONE_CARD_8B
from tests.support.traces import limits, made_up


def bounds(**changes: object) -> EngineLimits:
    return limits(
        **{"mixed_steps": True, "prefix_caching": True, "max_num_batched_tokens": 2048, **changes}
    )


def test_a_trace_pads_less_than_the_engines_own_strategies_with_no_more_graphs() -> None:
    requests = made_up(1500)
    seen, later = requests[:900], requests[900:]
    start = later[0][0]
    held_out = serve([(time - start, *rest) for time, *rest in later], bounds(), ONE_CARD_8B)[0]  # type: ignore[misc]
    mine, *others = plan_for_engine(CoverageQuestion(CONTEXT_LADDER, bounds()), seen).comparison
    theirs = {other.name: other for other in others if other.name in ("exponential", "pad")}
    assert mine.buckets is not None and mine.graphs <= theirs["exponential"].graphs
    found = score(mine.buckets, held_out, ONE_CARD_8B)
    assert found.outside == 0
    for other in theirs.values():
        assert other.buckets is not None
        assert found.overhead < score(other.buckets, held_out, ONE_CARD_8B).overhead


def test_a_goal_of_graphs_is_kept_with_a_trace() -> None:
    found = plan_for_engine(
        CoverageQuestion(CONTEXT_LADDER, bounds()), made_up(300), BucketGoal(graphs=20)
    )
    assert found.comparison[0].graphs <= 20
