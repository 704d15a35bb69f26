"""The search finds what trying everything finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.capacity.search import Targets
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.recommend.analytic import fitting
from gaudi_launch.recommend.finder import best, find
from gaudi_launch.recommend.goal import GoalName, Served
from gaudi_launch.recommend.space import Candidate
from gaudi_launch.recommend.trial import Simulation, Trial
from tests.support.recommend import goal, search_case


@pytest.mark.parametrize("name", ["balanced", "throughput", "cost"])
def test_the_answer_is_within_two_percent_of_the_best(name: GoalName) -> None:
    case = replace(
        search_case(dtype="bfloat16", max_prefill_seqs=1, max_num_batched_tokens=2048), cards=(1, 2)
    )
    wanted = goal(name)
    simulation = Simulation(case, wanted)
    everything = [simulation.exact(candidate) for candidate in fitting(case).candidates]
    top = best(wanted, everything)
    found = find(case, wanted)
    assert top is not None
    assert found.winner is not None
    assert found.winner.score >= 0.98 * top.score
    assert len(everything) == found.searched


def test_the_trials_come_best_first_and_the_front_rises() -> None:
    found = find(search_case(dtype="bfloat16"), goal("balanced"))
    assert found.winner is found.trials[0]
    points = [(trial.served.tpot, trial.served.per_card) for trial in found.front if trial.served]
    assert points == sorted(points)
    assert [per_card for _, per_card in points] == sorted(per_card for _, per_card in points)


def test_given_options_are_kept() -> None:
    found = find(search_case(max_num_seqs=24, max_num_batched_tokens=3072), goal("throughput"))
    assert {(trial.candidate.batch, trial.candidate.tokens) for trial in found.trials} == {
        (24, 3072)
    }


def test_targets_that_cannot_be_met_leave_no_winner() -> None:
    impossible = goal("cost", targets=Targets(0.001, None), rate=1.0)
    found = find(search_case(dtype="bfloat16"), impossible)
    assert found.winner is None
    assert found.trials[0].missed == ("ttft",)
    assert found.trials[0].miss > 1


@pytest.mark.parametrize(
    ("cards", "id", "code"),
    [(3, "plan.heads", ExitCode.MODEL), (16, "recommend.few_cards", ExitCode.MACHINE)],
)
def test_a_number_of_cards_without_an_engine_is_refused(
    cards: int, id: str, code: ExitCode
) -> None:
    with pytest.raises(LaunchError) as error:
        find(replace(search_case(dtype="bfloat16"), cards=(cards,)), goal("balanced"))
    assert (error.value.id, error.value.exit_code) == (id, code)


def test_a_model_that_fits_nowhere_is_refused() -> None:
    case = search_case("meta-llama/Llama-3.1-405B-Instruct", dtype="bfloat16")
    with pytest.raises(LaunchError) as error:
        find(case, goal("balanced"))
    assert error.value.id == "recommend.nothing_fits"


def _trial(cards: int, stages: int, score: float, second: float) -> Trial:
    candidate = Candidate(
        *("vllm-fork@1.21", "bfloat16", cards, 8, 1, 2048, 2048, False),
        pipeline=stages,
        hosts=2,
    )
    served = Served(1, cards * stages, 2, 1.0, 0.05, 10.0, 100.0, 100.0, 2048, 1.0)
    return Trial(candidate, served, score=score, second=second, miss=0.0)


def test_of_alike_layouts_over_servers_each_layer_stays_in_one() -> None:
    divided, stages = _trial(16, 1, score=1.0, second=9.0), _trial(8, 2, score=0.996, second=1.0)
    assert best(goal("balanced"), [divided, stages]) is stages
    slower = replace(stages, score=0.9)
    assert best(goal("balanced"), [divided, slower]) is divided
