"""Traffic, step times and replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.capacity.replica import Replica, ReplicaQuestion, Unfit, replica
from gaudi_launch.capacity.traffic import (
    Traffic,
    busiest_minute,
    from_ranges,
    from_trace,
    mean_rate,
)
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.models.card_memory import ServingDemand
from gaudi_launch.models.sizing import MemoryRules
from gaudi_launch.performance.limits import EngineLimits
from gaudi_launch.performance.scaling import step_time
from gaudi_launch.profiles import known_model
from tests.support.traces import made_up

GAUDI2 = accelerators()["gaudi2"]


def test_traffic_comes_once_a_second() -> None:
    for traffic in (
        from_trace(made_up(800)),
        from_ranges((5, 50), (1, 9)),
        from_trace(made_up(800), True),
    ):
        assert traffic.requests[-1][0] == pytest.approx(len(traffic.requests), rel=0.01)
        assert list(traffic.requests) == sorted(traffic.requests)
        # a part of it too, whatever its draws were
        part = traffic.part(0.0, 1.0)
        assert part.requests[-1][0] == pytest.approx(len(part.requests) - 1)
    own = from_trace(made_up(800), own_arrivals=True)
    assert [request[1:] for request in own.requests] == [request[1:] for request in made_up(800)]
    drawn = from_ranges((5, 50), (7, 7))
    assert {output for _, _, output in drawn.requests} == {7}
    assert {5, 50} <= {tokens for _, tokens, _ in drawn.requests} <= set(range(5, 51))


def test_close_to_its_most_more_are_simulated_and_of_long_answers_fewer() -> None:
    short, long = from_ranges((5, 50), (10, 10)), from_ranges((5, 50), (8000, 8000))
    assert [len(short.part(share, 4.0).requests) for share in (0.02, 0.5, 0.8, 0.9)] == [
        3000,
        3000,
        10_000,
        40_000,
    ]
    assert [len(long.part(0.9, inside).requests) for inside in (0.1, 4.0, 40.0)] == [500, 500, 5000]
    assert len(from_trace([(0.0, 5, 5)]).part(0.1, 1.0).requests) == 3000


def test_rates_of_a_trace() -> None:
    steady = [(float(second), 5, 5) for second in range(121)]
    assert (mean_rate(steady), busiest_minute(steady)) == (1.0, 61 / 60)
    burst = [(0.0, 5, 5)] * 30 + [(300.0, 5, 5)]
    assert (mean_rate(burst), busiest_minute(burst)) == (0.1, 0.5)
    assert (mean_rate(steady[:1]), mean_rate([(1.0, 5, 5)] * 3), busiest_minute(steady[:30])) == (
        None,
        None,
        None,
    )


def asked(**changes: object) -> ReplicaQuestion:
    values: dict[str, object] = {
        "model": known_model("meta-llama/Llama-3.1-8B-Instruct", False),
        "cards": 1,
        "dtype": "bfloat16",
        "accelerator": GAUDI2,
        "demand": ServingDemand(8192, 64, 8192),
        "rules": MemoryRules(),
        "traffic": from_trace(made_up()),
    }
    return ReplicaQuestion(**{**values, **changes})  # type: ignore[arg-type]


def coarse(blocks: int) -> Buckets:
    return Buckets([[1, 8192, 0]], [[64, 1, blocks]])


def test_a_replica_has_the_memory_of_fit_and_pays_for_the_padding_of_its_buckets() -> None:
    made, padded = replica(asked()), replica(asked(buckets=coarse))
    assert isinstance(made, Replica) and isinstance(padded, Replica)
    limits = made.limits
    assert (limits.max_num_seqs, limits.max_num_prefill_seqs, limits.num_blocks > 3000) == (
        64,
        1,
        True,
    )
    assert (made.padding, padded.padding > 0.5) == (0.0, True)
    assert (made.cards, made.kv_dtype, made.buckets) == (1, "auto", None)
    assert made.notes == tuple(made.speed.notes)
    assert padded.buckets == coarse(limits.num_blocks)
    plain = step_time(asked().model, 1, "bfloat16", GAUDI2).cost
    assert made.cost == plain
    assert all(padded.cost.constants()[name] > value for name, value in plain.constants().items())
    mine = replica(asked(adjust=lambda cost: replace(cost, decode_fixed=99)))
    assert isinstance(mine, Replica) and mine.cost.decode_fixed == 99


def test_a_replica_schedules_as_its_engine_does() -> None:
    demand = ServingDemand(8192, 64, 2048)
    old, new = (replica(asked(demand=demand, scheduling=name, prompts=4)) for name in ("v0", "v1"))
    assert isinstance(old, Replica) and isinstance(new, Replica)
    # without chunked prefill the budget is no less than a prompt
    assert (old.limits.mixed_steps, old.limits.max_num_batched_tokens) == (False, 8192)
    assert (new.limits.mixed_steps, new.limits.max_num_batched_tokens) == (True, 2048)
    assert (old.limits.max_num_prefill_seqs, new.limits.max_num_prefill_seqs) == (4, 4)


def test_what_does_not_fit_is_no_replica() -> None:
    qwen = known_model("Qwen/Qwen2-72B-Instruct", False)
    found = replica(
        asked(model=qwen, demand=ServingDemand(8192), traffic=from_ranges((5, 50), (5, 50)))
    )
    assert isinstance(found, Unfit) and found.reason.id == "fit.weights"
    assert found.cards == 1


def test_the_limits_of_a_replica_are_those_of_its_traffic_within_its_length() -> None:
    demand = ServingDemand(2048, 64, 1024, kv_dtype="fp8_inc")
    traffic = Traffic(((0.0, 5, 50), (1.0, 9000, 7)))
    made = replica(asked(demand=demand, traffic=traffic, cards=2))
    assert isinstance(made, Replica)
    assert (made.cards, made.kv_dtype) == (2, "fp8_inc")
    assert made.limits == EngineLimits(
        max_num_seqs=64,
        max_num_prefill_seqs=1,
        max_num_batched_tokens=2048,
        max_model_len=2048,
        num_blocks=made.limits.num_blocks,
        input_min=5,
        input_max=2048,
        output_min=7,
        output_max=50,
    )
    long = Traffic(((0.0, 3000, 50), (1.0, 4000, 7)))
    found = replica(asked(demand=ServingDemand(2048, 64, 1024), traffic=long))
    assert isinstance(found, Replica)
    assert (found.limits.input_min, found.limits.input_max) == (2048, 2048)
