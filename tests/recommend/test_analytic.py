"""Forecasts by arithmetic, with step times that are round numbers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.buckets.shared_prefixes import SharedPrefix
from gaudi_launch.capacity.search import Targets
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.models.card_memory import ServingDemand
from gaudi_launch.performance.step_time import StepTime
from gaudi_launch.recommend.analytic import (
    Fitting,
    Forecast,
    Forecaster,
    Group,
    fitting,
    rank,
    survivors,
)
from gaudi_launch.recommend.goal import Goal, GoalName, Served
from gaudi_launch.recommend.space import Candidate, samples
from tests.support.recommend import goal, search_case, table_case
from tests.support.records import near

TRAFFIC = Traffic(((0.0, 200, 11), (1.0, 200, 11)))
ONE = Candidate("e", "bf16", 1, 4, 1, 2048, 4096, False)
# a prompt takes 100 ms; a step 10 ms, 1 ms for each sequence and 0.5 ms for each block
COST = StepTime(100.0, 0.0, 0.0, 10.0, 1.0, 0.5, "round")


def group(tokens: float = 1e6, computed: float = 200.0) -> Any:
    return SimpleNamespace(
        memory=SimpleNamespace(tokens=tokens),
        speed=SimpleNamespace(cost=COST),
        computed=computed,
    )


def forecast(
    wanted: Goal, candidate: Candidate = ONE, of: Any = None, nodes: int | None = 1
) -> Forecast:
    case = replace(search_case(nodes=nodes), traffic=TRAFFIC)
    return Forecaster(case, wanted).forecast(candidate, of or group())


def cycle(count: float, prompts: float = 1.0) -> tuple[float, float, float]:
    """Return seconds to the first token, per token and of a request among ``count``."""
    decode = (10 + count + 0.5 * 2 * count) / 1000
    e2e = 0.1 * count / prompts + 11 * decode
    ttft = min(e2e, 0.1 + decode)
    return ttft, (e2e - ttft) / 10, e2e


def times(found: Forecast) -> tuple[float, float, float]:
    return found.served.ttft, found.served.tpot, found.served.e2e


def test_a_full_batch_is_the_forecast_without_a_load() -> None:
    found = forecast(goal("throughput"))
    ttft, tpot, e2e = cycle(4)
    assert times(found) == pytest.approx((ttft, tpot, e2e))
    # eight replicas of one card on one server
    served = found.served
    assert (served.replicas, served.cards, served.nodes, served.length) == (8, 8, 1, 4096)
    assert (served.tokens, served.spare) == pytest.approx((8 * 4 / e2e * 11,) * 2)
    assert (found.miss, found.score) == (1.0, served.spare)


def test_one_client_has_the_lowest_latency() -> None:
    found = forecast(goal("latency"))
    assert times(found) == pytest.approx(cycle(1))
    assert found.served.replicas == 1


def test_a_small_cache_has_fewer_requests_inside() -> None:
    # 205.5 tokens of each request
    found = forecast(goal("throughput"), of=group(tokens=3 * 205.5))
    assert times(found) == pytest.approx(cycle(3))


def test_prompts_of_one_step_share_its_time() -> None:
    together = replace(ONE, prompts=2)
    assert times(forecast(goal("throughput"), together)) == pytest.approx(cycle(4, 2))
    # the tokens of a step have room for one and a half
    narrow = replace(together, tokens=300)
    assert times(forecast(goal("throughput"), narrow)) == pytest.approx(cycle(4, 1.5))


def test_a_long_prompt_has_the_fixed_time_of_each_part() -> None:
    parts = forecast(goal("latency"), replace(ONE, tokens=50))
    ttft, _, e2e = cycle(1)
    assert (parts.served.ttft, parts.served.e2e) == pytest.approx((ttft + 0.3, e2e + 0.3))


@pytest.mark.parametrize(
    ("name", "nodes", "replicas"),
    [
        ("throughput", 1, 8),
        ("cost", 1, 4),
        ("balanced", 1, 4),
        ("context", 1, 4),
        ("latency", None, 4),
    ],
)
def test_the_replicas_for_a_rate(name: GoalName, nodes: int | None, replicas: int) -> None:
    each = 4 / cycle(4)[2] * 0.9
    # a fifth less than the arithmetic gives may be enough
    found = forecast(goal(name, rate=3.5 * each / 0.8), nodes=nodes)
    assert (found.served.replicas, found.miss) == (replicas, 1.0)


def test_more_replicas_than_there_are_cards_miss_the_load() -> None:
    each = 4 / cycle(4)[2] * 0.9
    found = forecast(goal("throughput", rate=11.5 * each / 0.8))
    assert (found.served.replicas, found.miss) == (8, 12 / 8)


def test_the_most_requests_within_the_targets_are_inside() -> None:
    between = (cycle(2)[2] + cycle(4)[2]) / 2
    targets = Targets(None, None, e2e=between)
    found = forecast(goal("cost", rate=1.0, targets=targets))
    assert (times(found), found.miss) == (near(cycle(2)), 1.0)
    none = forecast(goal("cost", rate=1.0, targets=Targets(None, cycle(1)[1] / 2)))
    assert (times(none), none.miss) == (near(cycle(1)), near(2.0))


def test_clients_are_counted_instead_of_a_rate() -> None:
    # four at once on each
    found = forecast(goal("cost", clients=20))
    assert found.served.replicas == 4


def test_each_stage_makes_a_virtual_engine() -> None:
    found = forecast(goal("throughput"), replace(ONE, pipeline=2))
    assert (found.served.replicas, found.served.cards) == (4, 8)
    assert found.served.tokens == pytest.approx(4 * 2 * 4 / cycle(4)[2] * 11)


def test_equal_numbers_of_cards_are_decided_by_what_a_card_carries() -> None:
    each = 4 / cycle(4)[2] * 0.9
    found = forecast(goal("cost", rate=1.0), replace(ONE, pipeline=2))
    # eleven tokens of each request, on two cards with two virtual engines
    assert found.served.balance == pytest.approx(each * 11)


def test_a_group_has_the_memory_of_its_longest_request() -> None:
    case = search_case()
    sample = replace(ONE, engine=case.engines[0].name, length=600, tokens=512)
    group = Group(case, case.engines[0], sample)
    rules = case.engines[0].engine.innermost.support(case.model).cache_rules
    expected = ServingDemand(
        max_model_len=600,
        max_num_seqs=1,
        max_num_batched_tokens=512,
        longest_prompt=600,
        utilization=0.95,
        reserved=0.05,
        kv_dtype="auto",
        cache=rules,
    )
    assert group.demand == expected
    long = Group(case, case.engines[0], replace(sample, length=4096, kv_dtype="fp8_inc"))
    assert long.demand == replace(
        expected, max_model_len=4096, longest_prompt=1000, kv_dtype="fp8_inc"
    )


def test_the_longest_two_lengths_that_fit_are_searched() -> None:
    given: Any = {"max_num_seqs": 1, "max_prefill_seqs": 1, "max_num_batched_tokens": 2048}
    # 84 GB of weights for cards of 96 GB
    small = search_case(dtype="bfloat16", **given)
    model = replace(small.model, parameters=42_000_000_000, weight_bytes=None)
    case = replace(small, model=model, context=True, cards=(1, 2))
    found: dict[int, list[int]] = {}
    fit: dict[int, list[int]] = {}
    for candidate in fitting(case).candidates:
        found.setdefault(candidate.cards, []).append(candidate.length)
    for sample in samples(case):
        if not sample.kv_dtype and Group(case, case.engines[0], sample).memory is not None:
            fit.setdefault(sample.cards, []).append(sample.length)
    assert found == {cards: lengths[:2] for cards, lengths in fit.items()}
    # a card alone has no room for the model's longest
    assert max(found[1]) < max(found[2]) == case.model.max_position_embeddings


def test_a_prefix_cache_leaves_the_rest_of_a_prompt() -> None:
    case = replace(
        table_case(),
        traffic=replace(TRAFFIC, shared=(SharedPrefix(0, 0), SharedPrefix(100, 500))),
    )

    def computed(tokens: int | None, *, caches: bool) -> float:
        found = Group(case, case.engines[0], replace(ONE, prefix_caching=caches))
        memory = None if tokens is None else SimpleNamespace(tokens=tokens)
        vars(found)["memory"] = memory
        return found.computed

    assert (computed(500, caches=True), computed(500, caches=False)) == (150.0, 200.0)
    assert (computed(499, caches=True), computed(None, caches=True)) == (200.0, 200.0)


def test_a_candidate_has_the_group_of_its_kind() -> None:
    kind = replace(ONE, batch=1, prompts=1, tokens=1)
    groups: Any = {kind: "one", replace(kind, dtype="fp8"): "other"}
    fitting = Fitting((), groups)
    coarse, fp8 = replace(ONE, prompts=4, padding="0.5"), replace(ONE, dtype="fp8")
    assert [str(fitting.group(each)) for each in (coarse, fp8)] == ["one", "other"]


def made(candidate: Candidate, score: float, miss: float = 1.0, balance: float = 1.0) -> Forecast:
    served = Served(1, 1, 1, 0.1, 0.1, 0.1, 1.0, 1.0, 1, balance)
    return Forecast(candidate, served, score, miss)


def test_forecasts_that_meet_the_targets_come_first() -> None:
    good, balanced, better = made(ONE, 2.0), made(ONE, 2.0, 0.5, 3.0), made(ONE, 3.0)
    late, later = made(ONE, 9.0, 1.5), made(ONE, 99.0, 2.0)
    found = sorted((later, good, late, balanced, better), key=rank)
    assert found == [better, balanced, good, late, later]


def test_each_kind_keeps_its_best() -> None:
    kinds = [
        replace(ONE, dtype="fp8"),
        replace(ONE, cards=2),
        replace(ONE, cards=2, pipeline=2),
        replace(ONE, cards=4, pipeline=2),
    ]
    ranked = [
        *(made(replace(ONE, batch=2**at), 100.0 - at) for at in range(4)),
        *(made(each, 10.0 - at) for at, each in enumerate(kinds)),
    ]
    # two in all, one of each kind; layouts with stages are one kind
    assert survivors(ranked, 2, 1) == [*ranked[:2], *ranked[4:7]]
    assert survivors(ranked[::-1], 1, 2) == [ranked[0], ranked[1], *ranked[4:]]


def test_the_nearest_candidate_has_no_more_tokens_in_a_step() -> None:
    sizes = [replace(ONE, tokens=tokens) for tokens in (1024, 4096, 8192)]
    fitting = Fitting((*sizes, replace(ONE, batch=99, tokens=2048)), {})
    found = [fitting.nearest(replace(ONE, tokens=tokens)) for tokens in (512, 1024, 5000, 99999)]
    assert found == [sizes[0], sizes[0], sizes[1], sizes[2]]
    assert fitting.nearest(replace(ONE, batch=7)) is None
