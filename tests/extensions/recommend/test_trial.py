"""Trials of replicas under a load, with steps of round numbers."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.predict.evidence import Evidence
from gaudi_launch.core.predict.load import Load, from_trace
from gaudi_launch.core.predict.published import Kind
from gaudi_launch.core.predict.scaling import Speed
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.simulate import ServedSetup, simulate
from gaudi_launch.core.predict.step_model import Setup as Division
from gaudi_launch.core.predict.step_time import StepTime
from gaudi_launch.core.predict.targets import Targets
from gaudi_launch.extensions.recommend import trial as module
from gaudi_launch.extensions.recommend.goal import GoalName
from gaudi_launch.extensions.recommend.space import Candidate, SearchCase
from gaudi_launch.extensions.recommend.trial import Simulation, Trial, limit_of
from tests.support.recommend import goal, table_case
from tests.support.traces import limits

ONE = Candidate("toy", "bf16", 1, 8, 1, 2048, 4096, False)
# a prompt takes 100 ms and a decode step 10 ms
COST = StepTime(100.0, 0.0, 0.0, 10.0, 0.0, 0.0, "round")
SPEED = Speed(COST, Division("gaudi2", 1, "bf16", 2.0, 2.0, "v0"), Shape(1, 1, 1, 1, 1, 1, 1, 1, 1))
SETUP = ServedSetup(limits(max_num_seqs=8), SPEED)
PLAN: Any = SimpleNamespace(buckets=None, estimate=None, skips_warmup=False)


def planned(candidate: Candidate) -> Trial:
    return Trial(candidate, SETUP, PLAN)


def group(setup: ServedSetup | None) -> Any:
    return SimpleNamespace(setup=lambda candidate: setup)


def simulation(
    name: GoalName, *, nodes: int | None = 1, load: Load | None = None, **changes: Any
) -> Simulation:
    case = table_case(nodes=nodes)
    return Simulation(replace(case, load=load or case.load), goal(name, **changes), planned)


def test_what_takes_no_request_has_a_reason() -> None:
    short = ServedSetup(limits(max_num_seqs=8, max_model_len=50), SPEED)
    why = message("capacity.takes_none", length=50)
    for made in (simulation("cost"), simulation("latency"), simulation("cost", rate=1.0)):
        assert made.quick(ONE, group(short)) == Trial(ONE, short, why_not=why)
    found = simulation("cost").quick(ONE, group(None))
    assert found == Trial(ONE, why_not=message("recommend.no_memory"))


@pytest.mark.parametrize(
    ("name", "least", "most", "numbers"),
    [
        ("cost", 2, 4, [2]),
        ("balanced", 2, 1, [2]),
        ("balanced", 4, 4, [4]),
        ("balanced", 2, 4, [2, 3, 4]),
        ("context", 2, 30, [*range(2, 11), 30]),
        ("latency", 4, 4, [4]),
    ],
)
def test_the_numbers_of_replicas_to_compare(
    name: GoalName, least: int, most: int, numbers: list[int]
) -> None:
    assert module._numbers(goal(name), least, most) == numbers


def bursts(seed: int) -> Load:
    """Return a calm beginning, and then as many requests again in bursts."""
    chance = random.Random(seed)
    trace, now = [], 0.0
    for number in range(400):
        pace = 1.0 if number < 200 or chance.random() < 0.5 else 0.1
        now += chance.expovariate(1.0 / pace)
        trace.append((now, 100, 10))
    return from_trace(trace, True)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rate", [3.0, 12.0, 60.0])
def test_the_replicas_are_the_fewest_that_meet_the_targets_on_every_request(
    seed: int, rate: float
) -> None:
    targets, load = Targets(0.6, None), bursts(seed)
    made = simulation("cost", nodes=None, load=load, rate=rate, targets=targets)
    # each candidate that is planned, not only the best of them
    found = made.exact(ONE)
    assert found.served is not None and found.settled and found.meets
    assert found.outcome is not None and found.outcome.requests == 400

    def meets(replicas: int) -> bool:
        return not targets.missed(simulate(SETUP, load.at_rate(rate / replicas)))

    assert meets(found.served.replicas)
    assert found.served.replicas == 1 or not meets(found.served.replicas - 1)


def test_without_enough_cards_the_miss_is_that_of_the_complete_load() -> None:
    targets, load = Targets(0.3, None), bursts(1)
    made = simulation("cost", nodes=1, load=load, rate=200.0, targets=targets)
    found = made.settled(made.exact(ONE))
    assert (not found.meets and found.missed[-1] == "cards") or "ttft" in found.missed


def evidence(low: float, high: float) -> Evidence:
    return Evidence(Kind.DENSE, 9, 0.1, low, high, True, ())


def test_the_cards_within_the_range_of_the_speed() -> None:
    made = simulation("cost", nodes=None, rate=40.0, targets=Targets(0.6, None))
    trial = made.settled(made.exact(ONE))
    assert trial.served is not None
    cards = trial.served.cards
    near, far = (
        made.cards_between(trial, evidence(0.9, 1.1)),
        made.cards_between(trial, evidence(0.5, 2.0)),
    )
    assert near is not None and far is not None
    assert far[0] < near[0] <= cards <= near[1] < far[1]
    # at the lowest speed an idle replica misses the target
    assert made.cards_between(trial, evidence(0.01, 1.1)) is None
    assert made.cards_between(trial, None) is None
    assert made.cards_between(replace(trial, missed=("ttft",)), evidence(0.9, 1.1)) is None


def test_what_cannot_be_planned_has_a_reason() -> None:
    why = message("placement.none_free", holders="-")

    def refusing(code: ExitCode) -> Simulation:
        def plan(candidate: Candidate) -> Trial:
            raise LaunchError(why.id, code, **dict(why.values))

        return Simulation(table_case(), goal("cost"), plan)

    assert refusing(ExitCode.MODEL).exact(ONE) == Trial(ONE, why_not=why, code=ExitCode.MODEL)
    with pytest.raises(LaunchError):
        refusing(ExitCode.FAILED).exact(ONE)


# --- the limit of a configuration ---

# a model with little but weights
HEAVY = Shape(1, 1, 64, 64, 5e9, 1e3, 64, 1, 64)
# two blocks for each request
CACHED = ServedSetup(
    limits(num_blocks=16), Speed(COST, Division("gaudi2", 1, "bf16", 2.0, 2.0, "static"), HEAVY)
)


def limited(tokens: int = 200, answer: int = 10) -> SearchCase:
    return replace(table_case(), load=Load(((0.0, tokens, answer), (1.0, tokens, answer))))


OUTCOME = simulate(CACHED, limited().load.of_clients(2))
LIMITED = Trial(ONE, CACHED, outcome=OUTCOME, score=5.0)
PART = OUTCOME.bound if OUTCOME else ""


def limit_name(trial: Trial, others: list[Trial], *lengths: int) -> str:
    found = limit_of(limited(*lengths), trial, others)
    assert found is not None
    return found.name


def test_a_cache_that_is_too_small_for_the_batch_is_the_limit() -> None:
    larger = replace(LIMITED, candidate=replace(ONE, batch=9))
    assert (limit_name(LIMITED, []), limit_name(larger, [])) == (PART, "cache")
    # 256 tokens are two blocks of 128, 257 are three
    assert (limit_name(LIMITED, [], 246, 10), limit_name(LIMITED, [], 247, 10)) == (PART, "cache")


@pytest.mark.parametrize(
    ("missed", "score", "expected"),
    [
        (("start",), 5.1, "start"),
        (("start",), 5.0, PART),
        (("ttft", "start"), 9.0, PART),
        ((), 9.0, PART),
    ],
)
def test_a_better_one_that_takes_too_long_to_start_is_the_limit(
    missed: tuple[str, ...], score: float, expected: str
) -> None:
    other = Trial(ONE, score=score, missed=missed)
    assert limit_name(LIMITED, [LIMITED, other]) == expected


def test_what_does_not_run_has_no_limit() -> None:
    assert limit_of(limited(), Trial(ONE), []) is None
    assert limit_of(limited(), Trial(ONE, CACHED), []) is None
