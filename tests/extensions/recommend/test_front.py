"""Pareto fronts of trials whose figures are known."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.predict.load import Load
from gaudi_launch.extensions.recommend.front import cards_for_rates, front
from gaudi_launch.extensions.recommend.goal import Served
from gaudi_launch.extensions.recommend.space import Candidate, SearchCase
from gaudi_launch.extensions.recommend.trial import Trial
from tests.support.recommend import search_case

ONE = Candidate("e", "bf16", 1, 8, 1, 2048, 4096, False)
LOAD = Load(((0.0, 100, 10),))


def case() -> SearchCase:
    return replace(search_case(), load=LOAD)


def trial(
    cards: int, tokens: float, tpot: float, *, replicas: int = 1, missed: tuple[str, ...] = ()
) -> Trial:
    candidate = replace(ONE, cards=cards)
    all_cards = cards * replicas
    served = Served(replicas, all_cards, 1, 0.1, tpot, 1.0, tokens, tokens, 4096, 1.0)
    return Trial(candidate, served=served, missed=missed)


def test_a_front_has_no_trial_that_another_beats_in_both() -> None:
    slow, fast = trial(1, 100.0, 0.05), trial(8, 160.0, 0.01)
    beaten = trial(1, 90.0, 0.06)
    alike = trial(8, 150.0, 0.01)
    equal = trial(2, 200.0, 0.07)
    waits = trial(1, 999.0, 0.02, missed=("start",))
    late = trial(2, 120.0, 0.02, missed=("ttft",))
    none = Trial(ONE)
    trials = (slow, beaten, equal, alike, fast, waits, late, none)
    assert front(trials) == (fast, late, slow)


def test_the_cards_for_rates_around_the_given_one() -> None:
    # 10 requests per second on one card, 100 on eight
    small, large = trial(1, 100.0, 0.05), trial(8, 1000.0, 0.01)

    def found(rate: float, *trials: Trial) -> list[tuple[float, int]]:
        return cards_for_rates(case(), trials, rate)

    # the first is the answer
    assert found(20.0, small, large) == [(10.0, 1), (20.0, 2), (40.0, 4), (100.0, 10), (200.0, 20)]
    # what the first one carries, where no rate is given
    assert [rate for rate, _ in found(0.0, large, small)] == [50.0, 100.0, 200.0, 500.0, 1000.0]
    assert found(20.0, trial(1, 9999.0, 0.05, missed=("ttft",))) == []
    # with a rate, what was found to be carried within the targets
    within = replace(small, each=4.0, full=12.0)
    assert [cards for _, cards in found(20.0, within)] == [3, 5, 10, 25, 50]


def test_a_replica_of_several_carries_its_part() -> None:
    two = trial(2, 400.0, 0.05, replicas=4)
    # 40 requests per second on four replicas of two cards
    assert [cards for _, cards in cards_for_rates(case(), [two], 20.0)] == [2, 4, 8, 20, 40]
