"""Forecasts by arithmetic, with step times that are round numbers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.models.card_memory import ServingDemand
from gaudi_launch.core.predict.load import Load
from gaudi_launch.core.predict.step_time import StepTime
from gaudi_launch.extensions.recommend.analytic import Forecast, Forecaster, Group
from gaudi_launch.extensions.recommend.goal import Goal
from gaudi_launch.extensions.recommend.space import Candidate
from tests.support.recommend import goal, search_case

LOAD = Load(((0.0, 200, 11), (1.0, 200, 11)))
ONE = Candidate("e", "bf16", 1, 4, 1, 2048, 4096, False)
# a prompt takes 100 ms; a step 10 ms, 1 ms for each sequence and 0.5 ms for each block
COST = StepTime(100.0, 0.0, 0.0, 10.0, 1.0, 0.5, "round")


def group(tokens: float = 1e6, computed: float = 200.0) -> Any:
    return SimpleNamespace(
        memory=SimpleNamespace(tokens=tokens), speed=SimpleNamespace(cost=COST), computed=computed
    )


def forecast(
    wanted: Goal, candidate: Candidate = ONE, of: Any = None, nodes: int | None = 1
) -> Forecast:
    case = replace(search_case(nodes=nodes), load=LOAD)
    return Forecaster(case, wanted).forecast(candidate, of or group())


def cycle(count: float, prompts: float = 1.0) -> tuple[float, float, float]:
    """Return seconds to the first token, per token and of a request among ``count``."""
    decode = (10 + count + 0.5 * 2 * count) / 1000
    e2e = 0.1 * count / prompts + 11 * decode
    ttft = min(e2e, 0.1 + decode)
    return ttft, (e2e - ttft) / 10, e2e


def times(found: Forecast) -> tuple[float, float, float]:
    return found.served.ttft, found.served.tpot, found.served.e2e


def test_one_client_has_the_lowest_latency() -> None:
    found = forecast(goal("latency"))
    assert times(found) == pytest.approx(cycle(1))
    assert found.served.replicas == 1


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
