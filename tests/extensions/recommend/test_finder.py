"""The search finds what trying everything finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.predict.targets import Targets
from gaudi_launch.extensions.recommend import case as app
from gaudi_launch.extensions.recommend import finder
from gaudi_launch.extensions.recommend.analytic import fitting
from gaudi_launch.extensions.recommend.case import RecommendCase
from gaudi_launch.extensions.recommend.finder import find
from gaudi_launch.extensions.recommend.space import Candidate, SearchCase
from gaudi_launch.extensions.recommend.trial import Planner, Simulation, Trial
from tests.support.recommend import goal, search_case
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
        find(replace(search_case(dtype="bfloat16"), cards=(cards,)), goal("balanced"), none)


def test_a_model_that_fits_nowhere_is_refused() -> None:
    case = search_case("meta-llama/Llama-3.1-405B-Instruct", dtype="bfloat16")
    with failing("recommend.nothing_fits", ExitCode.MACHINE):
        find(case, goal("balanced"), none)


def test_the_reason_why_nothing_can_be_planned_is_an_error() -> None:
    with pytest.raises(LaunchError) as error:
        finder._check_planned(Trial(ONE, why_not=WHY, code=ExitCode.MODEL))
    assert (error.value.text, error.value.exit_code) == (WHY, ExitCode.MODEL)
    # a reason that is no error is shown
    finder._check_planned(Trial(ONE, why_not=WHY))


def planner(case: SearchCase) -> Planner:
    """Return the plans of candidates on Gaudi2 servers."""
    options = LaunchOptions(model=case.model.path)
    return app.CasePlanner(RecommendCase(case, goal("balanced"), options, "simulated:hls2"))


def none(candidate: Candidate) -> Trial:
    raise AssertionError("nothing is planned")


@pytest.fixture(scope="module")
def case() -> SearchCase:
    """Return a search for one card."""
    return replace(search_case(dtype="bfloat16", max_num_batched_tokens=2048), cards=(1,))


@pytest.fixture(scope="module")
def every(case: SearchCase) -> list[Trial]:
    """Return every configuration of one or two prompts and 2048 tokens in a step, planned."""
    simulation = Simulation(case, goal("throughput"), planner(case))
    candidates = [each for each in fitting(case).candidates if each.prompts <= 2]
    return [simulation.exact(each) for each in candidates]


@pytest.mark.parametrize("most", [1.0, 52.0, 100.0])
def test_a_limit_of_the_warm_up_is_met_by_smaller_shapes(
    case: SearchCase, every: list[Trial], most: float
) -> None:
    found = find(case, goal("throughput", most_start=most), planner(case))
    assert all(trial.start for trial in every)
    allowed = [trial.score for trial in every if trial.start <= most]
    planned = [trial.candidate for trial in found.trials]
    assert len(planned) == len(set(planned))
    if allowed:
        assert found.winner is found.trials[0]
        # by fewer requests than the answer
        assert found.winner.score >= 0.97 * max(allowed)
    else:
        # the shortest one is shown
        assert (found.winner, found.trials[0].missed) == (None, ("start",))
        assert found.trials[0].graphs == min(trial.graphs for trial in every)


def test_ties_go_to_the_shorter_warm_up(case: SearchCase) -> None:
    # every batch carries it on the one card that there is
    relaxed = goal("cost", rate=0.5, targets=Targets(5.0, None))
    found = find(case, relaxed, planner(case))
    assert found.winner is not None
    alike = [
        trial
        for trial in found.trials
        if trial.meets and trial.score >= 0.995 * found.winner.score
        if trial.second >= 0.995 * max(each.second for each in found.trials)
    ]
    assert len(alike) > 2
    assert found.winner.start == min(trial.start for trial in alike)


def test_another_precision_is_the_runner_up_unless_it_is_asked_for() -> None:
    case = replace(search_case(), cards=(1,))
    found = find(case, goal("throughput"), planner(case))
    assert found.winner is not None and found.runner_up is not None
    assert (found.winner.candidate.dtype, found.runner_up.candidate.dtype) == ("bfloat16", "fp8")
    assert found.runner_up.settled and found.runner_up.score > found.winner.score
    free = replace(case, any_type=True)
    other = find(free, goal("throughput"), planner(free)).winner
    assert other is not None and other.candidate.dtype == "fp8"
