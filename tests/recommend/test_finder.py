"""The search finds what trying everything finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gaudi_launch.buckets.warmup_time import Measured
from gaudi_launch.capacity.replica import Replica
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message
from gaudi_launch.performance.evidence import Evidence
from gaudi_launch.performance.published import Kind
from gaudi_launch.performance.scaling import Speed
from gaudi_launch.performance.shape import Shape
from gaudi_launch.performance.step_model import Setup
from gaudi_launch.performance.step_time import StepTime
from gaudi_launch.recommend import finder as module
from gaudi_launch.recommend.analytic import Fitting, Forecast
from gaudi_launch.recommend.finder import Recommendation, find, without
from gaudi_launch.recommend.goal import Goal, Served, objective
from gaudi_launch.recommend.space import Candidate, SearchCase
from gaudi_launch.recommend.trial import Simulation, Trial
from tests.support.recommend import goal, search_case, table_case
from tests.support.refusals import failing
from tests.support.traces import limits


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
    with pytest.raises(LaunchError) as error:
        find(case, goal("balanced"))
    assert error.value.id == "recommend.nothing_fits"


COST = StepTime(100.0, 0.0, 0.0, 10.0, 0.0, 0.0, "round")
SPEED = Speed(COST, Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v0"), Shape(1, 1, 1, 1, 1, 1, 1, 1, 1))
REPLICA = Replica(1, limits(), COST, 0.0, SPEED, ())
EVIDENCE = Evidence(Kind.DENSE, 9, 0.1, 0.8, 1.25, True, ())
ONE = Candidate("toy", "bf16", 1, 8, 1, 2048, 4096, False)


def tokens(candidate: Candidate) -> float:
    """Return tokens per second and card: most with a batch of 64 on two cards."""
    batch = {8: 50.0, 16: 60.0, 32: 70.0, 64: 80.0, 128: 75.0, 256: 30.0}.get(candidate.batch, 1.0)
    return batch * {1: 1.0, 2: 1.5, 4: 1.2, 8: 0.5}[candidate.cards]


def does(candidate: Candidate, per_card: float, **changes: Any) -> Served:
    """Return what one replica does with these tokens per second and card."""
    made = per_card * candidate.world
    served = Served(
        replicas=1,
        cards=candidate.world,
        nodes=1,
        ttft=0.1,
        tpot=0.001 * candidate.batch / candidate.cards,
        e2e=1.0,
        tokens=made,
        spare=made,
        length=candidate.length,
        balance=per_card,
    )
    return replace(served, **changes)


Speeds = Callable[[Candidate], Served]


def usual(candidate: Candidate) -> Served:
    return does(candidate, tokens(candidate))


@dataclass
class Tables:
    """What trials find, and the trials that were made.

    ``settled`` is with all requests; ``graphs`` are those of a plan, ``refused`` candidates without
    one.
    """

    quick: Speeds = usual
    exact: Speeds = usual
    settled: Speeds | None = None
    graphs: Callable[[Candidate], int] = lambda candidate: 0
    refused: Callable[[Candidate], Trial | None] = lambda candidate: None
    short: list[Candidate] = field(default_factory=list)
    planned: list[Candidate] = field(default_factory=list)
    limits: list[Any] = field(default_factory=list)


class TableSimulation(Simulation):
    """Trials from tables instead of simulations."""

    tables: Tables

    def quick(self, candidate: Candidate, group: Any) -> Trial:
        assert group == ("group", candidate.dtype, candidate.cards, candidate.pipeline)
        self.tables.short.append(candidate)
        return self._judged(Trial(candidate), self.tables.quick(candidate))

    def exact(self, candidate: Candidate) -> Trial:
        self.tables.planned.append(candidate)
        refused = self.tables.refused(candidate)
        if refused is not None:
            return refused
        made = Trial(candidate, replica=REPLICA, graphs=self.tables.graphs(candidate))
        return self._judged(made, self.tables.exact(candidate))

    def settled(self, trial: Trial) -> Trial:
        if self.tables.settled is None:
            return trial
        return self._judged(trial, self.tables.settled(trial.candidate))

    def cards_between(self, trial: Trial, evidence: Evidence | None) -> tuple[int, int] | None:
        return (trial.candidate.cards, 99) if evidence is EVIDENCE else None


class TableForecaster:
    """Forecasts that are the short trials."""

    tables: Tables

    def __init__(self, case: SearchCase, goal: Goal) -> None:
        self.goal = goal

    def forecast(self, candidate: Candidate, group: Any) -> Forecast:
        assert group == ("group", candidate.dtype, candidate.cards, candidate.pipeline)
        served = self.tables.quick(candidate)
        return Forecast(candidate, served, objective(self.goal, served), 1.0)


def variants(**changes: Sequence[Any]) -> list[Candidate]:
    """Return every combination of these values."""
    found = [ONE]
    for name, values in changes.items():
        found = [replace(each, **{name: value}) for each in found for value in values]
    return found


USUAL = variants(cards=(1, 2, 4, 8), batch=(8, 16, 32, 64, 128, 256))

Prepared = Callable[..., Recommendation]


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """Return a search among candidates whose trials are tables."""

    def search(
        tables: Tables,
        wanted: Goal,
        candidates: Sequence[Candidate] = USUAL,
        case: SearchCase | None = None,
        forecaster: type[TableForecaster] = TableForecaster,
        **more: Any,
    ) -> Recommendation:
        groups: Any = {
            replace(each, batch=1, prompts=1, tokens=1, padding=""): (
                *("group", each.dtype),
                *(each.cards, each.pipeline),
            )
            for each in candidates
        }
        monkeypatch.setattr(TableSimulation, "tables", tables, raising=False)
        monkeypatch.setattr(TableForecaster, "tables", tables, raising=False)
        monkeypatch.setattr(module, "Simulation", TableSimulation)
        monkeypatch.setattr(module, "Forecaster", forecaster)
        monkeypatch.setattr(module, "fitting", lambda case: Fitting(tuple(candidates), groups))
        monkeypatch.setattr(module, "evidence_of", lambda *asked, measured: EVIDENCE)
        monkeypatch.setattr(module, "inside_of", lambda case, trial: trial.candidate.batch)

        def limit_of(*asked: Any) -> Any:
            tables.limits.append(asked)
            return "limit"

        monkeypatch.setattr(module, "limit_of", limit_of)
        return find(case or table_case(nodes=4), wanted, **more)

    return search


def test_the_reason_why_nothing_can_be_planned_is_an_error(prepared: Prepared) -> None:
    why = message("placement.none_free", holders="-")
    tables = Tables(refused=lambda candidate: Trial(candidate, why_not=why, code=ExitCode.MODEL))
    with pytest.raises(LaunchError) as error:
        prepared(tables, goal("balanced"))
    assert (error.value.text, error.value.exit_code) == (why, ExitCode.MODEL)
    # a reason that is no error is shown
    tables = Tables(refused=lambda candidate: Trial(candidate, why_not=why))
    found = prepared(tables, goal("balanced"))
    assert (found.winner, found.evidence, found.trials[0].why_not) == (None, None, why)


def graphs(candidate: Candidate) -> int:
    """Return the graphs of a plan, which grow by the logarithms of the shapes."""
    made = 20 * candidate.prompts.bit_length() + 6 * (candidate.batch.bit_length() - 1)
    return made // 2 if candidate.padding else made


SHAPES = variants(prompts=(1, 2, 4, 8, 16), batch=(1, 2, 8, 32, 128))
GIVEN = table_case(padding_limit="0.1")


def by_shape(candidate: Candidate) -> Served:
    return does(candidate, candidate.batch + 10.0 * candidate.prompts)


def with_graphs(most: int) -> Goal:
    """Return a goal whose warm-up may have this many graphs: 2.2 s each, with the margin."""
    return goal("throughput", most_start=most * 2.2 * 1.0501)


def test_a_limit_of_the_warm_up_is_met_by_fewer_prompts(prepared: Prepared) -> None:
    tables = Tables(by_shape, by_shape, graphs=graphs)
    found = prepared(tables, with_graphs(85), SHAPES, GIVEN)
    allowed = [each for each in SHAPES if graphs(each) <= 85]
    assert found.winner is not None
    assert found.winner.candidate == max(allowed, key=lambda each: by_shape(each).tokens)
    # the best and the front, then two of those that may be short enough
    assert len(tables.planned) == len(set(tables.planned)) == 7 + 2


def test_the_shortest_warm_up_is_shown_where_none_is_short_enough(prepared: Prepared) -> None:
    tables = Tables(by_shape, by_shape, graphs=graphs)
    found = prepared(tables, with_graphs(1), SHAPES, GIVEN)
    assert found.winner is None
    assert (found.trials[0].candidate, found.trials[0].missed) == (SHAPES[0], ("start",))
    assert len(tables.planned) == len(set(tables.planned)) == 7 + 1


def test_a_configuration_is_planned_once_where_none_is_short_enough(prepared: Prepared) -> None:
    tables = Tables(by_shape, by_shape, graphs=graphs)
    found = prepared(tables, with_graphs(1), SHAPES[:1], GIVEN)
    assert tables.planned == SHAPES[:1]
    assert [trial.candidate for trial in found.trials] == SHAPES[:1]
    # nor where it was expected to be short enough, by its 20 graphs
    tables.planned.clear()
    prepared(tables, with_graphs(19), SHAPES, GIVEN)
    assert tables.planned.count(SHAPES[0]) == 1
    assert len(tables.planned) == len(set(tables.planned))


def test_measured_warm_ups_decide(prepared: Prepared) -> None:
    tables = Tables(by_shape, by_shape, graphs=lambda candidate: 100)
    wanted = goal("throughput", most_start=100.0)
    measured = [Measured("toy", "m", 1, "bf16", 100, 50.0)]
    assert prepared(tables, wanted, [ONE]).winner is None
    assert prepared(tables, wanted, [ONE], measured=measured).winner is not None


def test_an_answer_that_cannot_be_planned_leaves_the_best_of_the_others(
    prepared: Prepared,
) -> None:
    # alike, and the second one has more spare
    def speed(candidate: Candidate) -> Served:
        per_card = {64: 100.0, 32: 90.0, 16: 89.9}[candidate.batch]
        return does(candidate, per_card, balance=1000.0 - candidate.batch)

    found = prepared(Tables(speed, speed), goal("throughput"), variants(batch=(16, 32, 64)))
    assert found.winner is not None and found.winner.candidate.batch == 64
    left = without(found, found.winner, message("placement.none_free", holders="-"))
    assert left.winner is left.trials[0]
    assert [trial.candidate.batch for trial in left.trials] == [16, 32, 64]
