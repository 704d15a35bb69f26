"""The padding that a plan prints: of requests that can be served again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.buckets.bucket_file import planned
from gaudi_launch.buckets.engine_buckets import lookups
from gaudi_launch.buckets.families import CONTEXT_LADDER
from gaudi_launch.buckets.optimiser.bucket_planner import BucketGoal
from gaudi_launch.buckets.optimiser.full_load import overhead_percent, range_requests
from gaudi_launch.buckets.strategies import arguments_of
from gaudi_launch.engines.vllm_cpu.install import engine_is_ready
from gaudi_launch.performance.limits import CoverageQuestion
from gaudi_launch.performance.mixed_steps import MixedRun
from gaudi_launch.performance.step_time import ONE_CARD_8B
from tests.support.every_case import ONE_MORE_ENGINE
from tests.support.scripts import short_form
from tests.support.traces import limits

BOUNDS = limits(
    mixed_steps=True,
    prefix_caching=True,
    max_num_batched_tokens=2048,
    output_max=300,
    cache_blocks=900,
)


def test_requests_stay_within_the_ranges_and_fill_the_engine() -> None:
    found = range_requests(BOUNDS)
    assert len(found) == 4 * BOUNDS.max_num_seqs
    assert all(1 <= tokens <= 6144 and 1 <= output <= 300 for _, tokens, output in found)
    assert found == range_requests(BOUNDS)


@pytest.mark.parametrize(("seqs", "count"), [(64, 64), (10, 24), (4, 24)])
def test_long_answers_need_fewer_requests(seqs: int, count: int) -> None:
    long = limits(max_num_seqs=seqs, output_min=20_000, output_max=20_000)
    assert len(range_requests(long)) == count


def test_an_overhead_is_shown_in_percent() -> None:
    found: Any = SimpleNamespace(overhead=0.1234)
    assert (overhead_percent(found), overhead_percent(None)) == ("12.3", "-")


def test_the_printed_padding_is_the_engines_look_up_of_each_forward() -> None:
    found = planned(CoverageQuestion(CONTEXT_LADDER, BOUNDS), BucketGoal(), ONE_CARD_8B)
    run = MixedRun(BOUNDS, ONE_CARD_8B, BOUNDS.max_num_seqs)
    run.serve(range_requests(BOUNDS), 1.0)
    rule = lookups(CONTEXT_LADDER, "file", {}, {**arguments_of(BOUNDS), "bucket_file": found.file})
    exact = padded = 0.0
    for batch, tokens, context in run.prompts:
        blocks = -(-context // 128)
        bucket = rule.prompt(batch, tokens, blocks).bucket
        assert bucket is not None
        exact += ONE_CARD_8B.in_blocks(batch, tokens, blocks)
        padded += ONE_CARD_8B.in_blocks(*bucket)
    for key in run.decodes:
        batch, blocks = divmod(key, BOUNDS.num_blocks + 1)
        bucket = rule.decode(batch, blocks).bucket
        assert bucket is not None
        exact += ONE_CARD_8B.decode(batch, blocks)
        padded += ONE_CARD_8B.decode(bucket[0], bucket[2])
    assert found.full_load[0] is not None
    assert found.full_load[0].overhead == pytest.approx(padded / exact - 1)
    # one figure for each list beside it
    assert len(found.full_load) == len(found.comparison)


@ONE_MORE_ENGINE
@pytest.mark.e2e
@pytest.mark.skipif(
    not engine_is_ready(), reason="the CPU engine is not installed (gaudi-launch setup cpu)"
)
def test_the_scheduler_of_the_installed_engine_meets_the_printed_padding() -> None:
    assert "0 figures beyond one point" in short_form("padding")
