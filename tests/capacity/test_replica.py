"""Traffic, step times and replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.fleet.replica import Replica, Unfit, replica
from gaudi_launch.fleet.speed import active_parameters, step_time
from gaudi_launch.fleet.traffic import busiest_minute, from_ranges, from_trace, mean_rate
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.models.fit import Ask
from gaudi_launch.models.sizing import RULES
from gaudi_launch.profiles import known_model
from gaudi_launch.warmup.cost import EIGHT_CARDS_32B, ONE_CARD_8B, StepTime
from tests.warmup.helpers import made_up

GAUDI2 = accelerators()["gaudi2"]


def close(one: StepTime, other: StepTime) -> bool:
    return one.constants() == pytest.approx(other.constants(), rel=0.01)


def test_the_known_models_have_their_own_times() -> None:
    llama = known_model("meta-llama/Llama-3.1-8B-Instruct", False)
    qwq = known_model("Qwen/QwQ-32B", False)
    assert close(step_time(llama, 1, "bfloat16", GAUDI2).cost, ONE_CARD_8B)
    assert close(step_time(qwq, 8, "bfloat16", GAUDI2).cost, EIGHT_CARDS_32B)


def test_what_bounds_a_step_scales_it() -> None:
    llama = known_model("meta-llama/Llama-3.1-8B-Instruct", False)
    base = step_time(llama, 1, "bfloat16", GAUDI2).cost
    fp8 = step_time(llama, 1, "fp8", GAUDI2, "fp8_inc").cost
    # half the bytes of weights and cache, twice the arithmetic
    assert fp8.decode_block == pytest.approx(base.decode_block / 2)
    assert fp8.prefill_token == pytest.approx(base.prefill_token * 432 / 865)
    assert base.decode_fixed - fp8.decode_fixed == pytest.approx(8.03e9 / 2450e9 * 1000, rel=0.01)
    gaudi3 = step_time(llama, 1, "bfloat16", accelerators()["gaudi3"]).cost
    assert gaudi3.prefill_token == pytest.approx(base.prefill_token * 432 / 1835)
    assert gaudi3.decode_block == pytest.approx(base.decode_block * 2450 / 3670)


def test_no_step_is_quicker_than_reading_the_weights() -> None:
    deepseek = known_model("deepseek-ai/DeepSeek-R1", False)
    found = step_time(deepseek, 8, "fp8", GAUDI2, "fp8_inc").cost
    # 671 GB over eight cards at 2450 GB/s each
    assert found.prefill_fixed == pytest.approx(671 / 8 / 2450 * 1000, rel=0.01)
    assert found.decode_fixed > found.prefill_fixed


def test_a_card_without_figures_says_whose_it_takes() -> None:
    llama = known_model("meta-llama/Llama-3.1-8B-Instruct", False)
    found = step_time(llama, 1, "bfloat16", accelerators()["gaudi2e"])
    assert [(note.id, note.values["other"]) for note in found.notes] == [("capacity.assume_card", "gaudi2")]
    assert step_time(llama, 1, "bfloat16", GAUDI2).notes == ()


def test_active_parameters() -> None:
    assert active_parameters(known_model("Qwen/QwQ-32B", False)) == 32_763_876_352
    # published: 3.3 B of 30.5 B, 22 B of 235 B
    assert active_parameters(known_model("Qwen/Qwen3-30B-A3B", False)) == pytest.approx(3.3e9, rel=0.15)
    assert active_parameters(known_model("Qwen/Qwen3-235B-A22B", False)) == pytest.approx(22e9, rel=0.15)


def test_traffic_comes_once_a_second() -> None:
    for traffic in (from_trace(made_up(800)), from_ranges((5, 50), (1, 9)), from_trace(made_up(800), True)):
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
    assert [len(short.part(share, 4.0).requests) for share in (0.02, 0.5, 0.8, 0.9)] == [3000, 3000, 10_000, 40_000]
    assert [len(long.part(0.9, inside).requests) for inside in (0.1, 4.0, 40.0)] == [500, 500, 5000]
    assert len(from_trace([(0.0, 5, 5)]).part(0.1, 1.0).requests) == 3000


def test_rates_of_a_trace() -> None:
    steady = [(float(second), 5, 5) for second in range(121)]
    assert (mean_rate(steady), busiest_minute(steady)) == (1.0, 61 / 60)
    burst = [(0.0, 5, 5)] * 30 + [(300.0, 5, 5)]
    assert (mean_rate(burst), busiest_minute(burst)) == (0.1, 0.5)
    assert (mean_rate(steady[:1]), mean_rate([(1.0, 5, 5)] * 3), busiest_minute(steady[:30])) == (None, None, None)


def test_a_replica_has_the_memory_of_fit_and_pays_for_padding() -> None:
    llama = known_model("meta-llama/Llama-3.1-8B-Instruct", False)
    ask = Ask(8192, 64, 8192)
    made = replica(llama, 1, "bfloat16", GAUDI2, ask, RULES["1.22"], from_trace(made_up()), lambda cost: cost)
    assert isinstance(made, Replica)
    assert (made.limits.max_num_seqs, made.limits.max_num_prefill_seqs, made.limits.num_blocks > 3000) == (
        64,
        1,
        True,
    )
    assert 0 < made.padding < 0.2
    assert all(made.cost.constants()[name] > value for name, value in ONE_CARD_8B.constants().items())
    mine = replica(
        llama,
        1,
        "bfloat16",
        GAUDI2,
        ask,
        RULES["1.22"],
        from_trace(made_up()),
        lambda c: replace(c, decode_fixed=99),
    )
    assert isinstance(mine, Replica) and mine.cost.decode_fixed > 99


def test_what_does_not_fit_is_no_replica() -> None:
    qwen = known_model("Qwen/Qwen2-72B-Instruct", False)
    found = replica(
        qwen, 1, "bfloat16", GAUDI2, Ask(8192), RULES["1.22"], from_ranges((5, 50), (5, 50)), lambda cost: cost
    )
    assert isinstance(found, Unfit) and found.reason.id == "fit.weights"
