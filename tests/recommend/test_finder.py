"""The search finds what trying everything finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.buckets.warmup_time import Measured
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message
from gaudi_launch.recommend import finder
from gaudi_launch.recommend.analytic import fitting
from gaudi_launch.recommend.finder import find, without
from gaudi_launch.recommend.space import Candidate, SearchCase
from gaudi_launch.recommend.trial import Simulation, Trial
from tests.support.recommend import goal, search_case, table_case
from tests.support.refusals import failing

WHY = message("placement.none_free", holders="-")
ONE = Candidate("toy", "bf16", 1, 8, 1, 2048, 4096, False)


@pytest.mark.parametrize(
    ("cards", "id", "code"),
    [(3, "plan.heads", ExitCode.MODEL), (16, "recommend.few_cards", ExitCode.MACHINE)],
)
def test_a_number_of_cards_without_an_engine_is_refused(
    cards: int, id: str, code: ExitCode
) -> None:
    with failing(id, code):
        find(replace(search_case(dtype="bfloat16"), cards=(cards,)), goal("balanced"))


def test_a_model_that_fits_nowhere_is_refused() -> None:
    case = search_case("meta-llama/Llama-3.1-405B-Instruct", dtype="bfloat16")
    with failing("recommend.nothing_fits", ExitCode.MACHINE):
        find(case, goal("balanced"))


def test_the_reason_why_nothing_can_be_planned_is_an_error() -> None:
    with pytest.raises(LaunchError) as error:
        finder._check_planned(Trial(ONE, why_not=WHY, code=ExitCode.MODEL))
    assert (error.value.text, error.value.exit_code) == (WHY, ExitCode.MODEL)
    # a reason that is no error is shown
    finder._check_planned(Trial(ONE, why_not=WHY))
    assert finder._evidence(table_case(), Trial(ONE, why_not=WHY)) is None


@pytest.fixture(scope="module")
def case() -> SearchCase:
    """Return a search for one card."""
    return replace(search_case(dtype="bfloat16"), cards=(1,))


@pytest.fixture(scope="module")
def every(case: SearchCase) -> list[Trial]:
    """Return every configuration of one or two prompts and 2048 tokens in a step, planned."""
    simulation = Simulation(case, goal("throughput"))
    candidates = [
        each for each in fitting(case).candidates if each.prompts <= 2 and each.tokens == 2048
    ]
    return [simulation.exact(each) for each in candidates]


@pytest.mark.parametrize("most", [1.0, 52.0, 70.0, 100.0])
def test_a_limit_of_the_warm_up_is_met_by_smaller_shapes(
    case: SearchCase, every: list[Trial], most: float
) -> None:
    found = find(case, goal("throughput", most_start=most))
    starts = [trial.start for trial in every if trial.start is not None]
    assert len(starts) == len(every)
    allowed = [
        trial.score for trial, start in zip(every, starts, strict=True) if 1.05 * start.high <= most
    ]
    planned = [trial.candidate for trial in found.trials]
    assert len(planned) == len(set(planned))
    if allowed:
        assert found.winner is found.trials[0]
        assert found.winner.score == pytest.approx(max(allowed), rel=0.005)
    else:
        # the shortest one is shown
        assert (found.winner, found.trials[0].missed) == (None, ("start",))
        assert found.trials[0].graphs == min(trial.graphs for trial in every)


def test_measured_warm_ups_decide(case: SearchCase) -> None:
    measured = [Measured("vllm-gaudi@0.26.0", case.model.name, 1, "bf16", 82, 8.0)]
    limited = goal("throughput", most_start=52.0)
    found, free = find(case, limited, measured=measured), find(case, goal("throughput"))
    assert found.winner is not None and free.winner is not None
    assert found.winner.candidate == free.winner.candidate


def test_an_answer_that_cannot_be_planned_leaves_the_best_of_the_others(case: SearchCase) -> None:
    found = find(case, goal("throughput"))
    assert found.winner is not None
    left = without(found, found.winner, WHY)
    assert left.winner is left.trials[0] is not found.winner
    others = [trial for trial in found.trials if trial is not found.winner]
    assert left.winner.score == pytest.approx(max(trial.score for trial in others), rel=0.005)
    assert left.trials[-1] == Trial(found.winner.candidate, why_not=WHY)
    assert sorted(map(id, left.trials[:-1])) == sorted(map(id, others))
