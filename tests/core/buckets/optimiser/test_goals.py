"""The planner's promises on public traces: plans made from the first 60 %, judged on the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.coverage import uncovered
from gaudi_launch.core.buckets.engine_buckets import engine_buckets
from gaudi_launch.core.buckets.families import CONTEXT_LADDER, PLAIN_GRID
from gaudi_launch.core.buckets.optimiser.bucket_planner import plan
from gaudi_launch.core.buckets.optimiser.padding_cost import score
from gaudi_launch.core.buckets.past_requests import read_past
from gaudi_launch.core.buckets.strategies import arguments_of, script_ranges
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import serve
from gaudi_launch.core.predict.step_time import EIGHT_CARDS_32B, ONE_CARD_8B, StepTime
from tests.support.speed import within
from tests.support.traces import TRACES, limits, made_up

AZURE = EngineLimits(128, 1, 16384, 16384, 3600, 4, 14336, 4, 2048)
ARXIV = EngineLimits(64, 1, 8192, 8192, 3600, 4, 4096, 4, 4096)
MOONCAKE = EngineLimits(24, 1, 40960, 40960, 7728, 4, 38912, 4, 2048)
CASES = {
    "azure-2023-conv": (AZURE, 1.0, ONE_CARD_8B),
    "azure-2023-code": (AZURE, 1.0, ONE_CARD_8B),
    "arxiv-summarization": (ARXIV, 1.0, ONE_CARD_8B),
    "mooncake-conversation": (MOONCAKE, 2.0, EIGHT_CARDS_32B),
    "mooncake-synthetic": (MOONCAKE, 2.5, EIGHT_CARDS_32B),
}
# without the public traces, one made on the spot
NAMES = list(CASES) if TRACES.is_dir() else ["made up"]


def load(name: str) -> tuple[list[tuple[float, int, int]], EngineLimits, StepTime]:
    if name == "made up":
        return made_up(3000), limits(), ONE_CARD_8B
    bounds, slower, cost = CASES[name]
    requests = read_past(str(TRACES / Path(f"{name}.csv.gz"))).requests
    return [(t * slower, i, o) for t, i, o in requests if i <= bounds.input_max], bounds, cost


def pad(bounds: EngineLimits) -> Buckets:
    env = {"VLLM_CONTIGUOUS_PA": "true", "VLLM_PROMPT_CTX_BUCKET_MAX": "0"}
    found = engine_buckets(CONTEXT_LADDER, "pad", env, arguments_of(bounds))
    return Buckets([bucket for bucket in found.prompt if bucket[2] == 0], found.decode)


@pytest.mark.parametrize("name", NAMES)
def test_promises(name: str) -> None:
    requests, one, cost = load(name)
    cut = requests[-1][0] * 0.6
    seen = [request for request in requests if request[0] < cut]
    later = [(t - cut, i, o) for t, i, o in requests if t >= cut]
    many = replace(one, max_num_prefill_seqs=one.max_num_seqs)
    singly, together = serve(later, one, cost)[0], serve(later, many, cost)[0]

    # the default cost model and the trace's own: the user may know neither
    for given in (ONE_CARD_8B, cost):
        ours, theirs = plan(one, seen, cost=given).buckets, pad(one)
        assert uncovered(ours, one).shapes == 0
        assert ours.graphs <= theirs.graphs / 3
        share = 1 / 2 if given is cost else 2 / 3
        assert score(ours, singly, cost).overhead <= score(theirs, singly, cost).overhead * share

    with within(5):
        ours = plan(many, seen).buckets
    theirs = engine_buckets(
        PLAIN_GRID, "linear", script_ranges(PLAIN_GRID, many), arguments_of(many)
    )
    assert uncovered(ours, many).shapes == 0
    assert ours.graphs * 3 <= theirs.graphs
    assert score(ours, together, cost).overhead <= score(theirs, together, cost).overhead + 0.0025

    for bounds, shapes in ((one, singly), (many, together)):
        ours, theirs = plan(bounds, None).buckets, pad(bounds)
        assert uncovered(ours, bounds).shapes == 0
        assert ours.graphs <= theirs.graphs
        assert score(ours, shapes, cost).overhead <= score(theirs, shapes, cost).overhead
