"""The search finds what trying everything finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.buckets.warmup_time import Measured
from gaudi_launch.capacity.replica import Replica
from gaudi_launch.capacity.search import Targets
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message
from gaudi_launch.performance.evidence import Evidence
from gaudi_launch.performance.published import Kind
from gaudi_launch.performance.scaling import Speed
from gaudi_launch.performance.shape import Shape
from gaudi_launch.performance.step_model import Setup
from gaudi_launch.performance.step_time import StepTime
from gaudi_launch.recommend import finder as module
from gaudi_launch.recommend.analytic import Fitting, Forecast, fitting
from gaudi_launch.recommend.finder import Recommendation, Sensitivity, best, find, without
from gaudi_launch.recommend.goal import Goal, GoalName, Served, objective
from gaudi_launch.recommend.space import Candidate, SearchCase
from gaudi_launch.recommend.trial import Simulation, Trial
from tests.support.recommend import TableEngine, goal, search_case, searched, table_case
from tests.support.records import near
from tests.support.refusals import failing
from tests.support.traces import limits


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
    with failing(id, code):
        find(replace(search_case(dtype="bfloat16"), cards=(cards,)), goal("balanced"))


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


def test_the_answer_with_all_that_is_known_about_it(prepared: Prepared) -> None:
    tables = Tables()
    shown: list[tuple[int, int]] = []
    found = prepared(tables, goal("balanced"), progress=lambda *steps: shown.append(steps))
    (top,) = variants(cards=(2,), batch=(64,))
    assert found.winner is found.trials[0]
    assert (found.winner.candidate, found.winner.served) == (top, usual(top))
    # the best four, and those of the front
    assert [(trial.candidate.cards, trial.candidate.batch) for trial in found.trials] == [
        *((2, 64), (2, 128), (2, 32), (4, 64)),
        *((2, 16), (2, 8)),
    ]
    assert [trial.candidate.batch for trial in found.front] == [8, 16, 32, 64]
    assert {trial.candidate.cards for trial in found.front} == {2}
    assert found.runner_up is found.trials[1]
    assert (found.evidence, str(found.limit), found.cards) == (EVIDENCE, "limit", (2, 99))
    assert tables.limits == [(found.case, found.winner, list(found.trials))]
    # the best twelve, two of eight cards, and a neighbour of the best three
    assert (found.searched, found.simulated) == (24, 15)
    assert len(set(tables.short)) == len(tables.short) == 15
    assert len(tables.planned) == len(found.trials)
    # of 14 chosen, 16 neighbours and 8 plans
    assert shown == [*((done, 38) for done in range(1, 15 + 6 + 1)), (38, 38)]


def test_progress_never_goes_back(prepared: Prepared) -> None:
    shapes = variants(
        batch=(8, 16, 32, 64, 128, 256), prompts=(1, 2, 4, 8), tokens=(1024, 2048, 4096)
    )

    def speed(candidate: Candidate) -> Served:
        # the forecasts are far from the best
        return does(candidate, candidate.batch * candidate.prompts * 1e-3 * candidate.tokens)

    def forecast(candidate: Candidate) -> Served:
        return does(candidate, 1e6 / speed(candidate).tokens)

    class Backwards(TableForecaster):
        tables = Tables(forecast)

    shown: list[tuple[int, int]] = []
    tables = Tables(speed, speed)
    found = prepared(
        tables,
        goal("throughput"),
        shapes,
        forecaster=Backwards,
        progress=lambda *steps: shown.append(steps),
    )
    (top,) = variants(batch=(256,), prompts=(8,), tokens=(4096,))
    assert found.winner is not None and found.winner.candidate == top
    assert found.simulated > 12 + 16
    assert shown == sorted(shown)
    assert shown[-1] == (12 + 16 + 8, 12 + 16 + 8)


def test_the_effect_of_other_values(prepared: Prepared) -> None:
    kinds = variants(dtype=("bf16", "fp8"), cards=(1, 2), batch=(32, 64, 128), prompts=(1, 2))

    def speed(candidate: Candidate) -> Served:
        share = {"bf16": 1.0, "fp8": 0.75}[candidate.dtype] / candidate.prompts
        return does(candidate, share * tokens(candidate))

    found = prepared(Tables(speed, speed), goal("balanced"), kinds)
    assert found.sensitivity == (
        Sensitivity("dtype", "fp8", 0.75),
        Sensitivity("cards", "1", near(1 / 1.5)),
        Sensitivity("batch", "128", 75 / 80),
        Sensitivity("batch", "32", 70 / 80),
        Sensitivity("prompts", "2", 0.5),
    )


def test_a_layout_with_stages_is_compared_as_a_layout(prepared: Prepared) -> None:
    both = [replace(ONE, cards=2), replace(ONE, pipeline=2)]
    found = prepared(Tables(), goal("balanced"), both)
    assert found.sensitivity == (Sensitivity("layout", "1x2", near(1 / 1.5)),)


def test_a_value_that_misses_the_targets_counts_nothing(prepared: Prepared) -> None:
    wanted = goal("throughput", targets=Targets(None, 0.05))
    # a batch of 64 on one card takes 64 ms for a token
    found = prepared(Tables(), wanted, variants(batch=(8, 16, 32, 64)))
    assert found.winner is not None and found.winner.candidate.batch == 32
    assert found.sensitivity == (
        Sensitivity("batch", "64", 0.0),
        Sensitivity("batch", "16", near(60 / 70)),
    )


def test_the_same_configuration_on_other_engines(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = (
        searched(TableEngine("faster", ended="2026-01-01")),
        searched(TableEngine("small")),
        searched(TableEngine("late")),
    )
    case = replace(table_case(), others=others)
    has_memory = {"faster": "memory", "late": "memory"}

    def group(case: SearchCase, searched: Any, candidate: Candidate) -> Any:
        assert searched.name == candidate.engine
        return SimpleNamespace(memory=has_memory.get(candidate.engine))

    def speed(candidate: Candidate) -> Served:
        late = {"late": 9.0}.get(candidate.engine, 0.1)
        return does(candidate, {"faster": 100.0}.get(candidate.engine, 80.0), ttft=late)

    monkeypatch.setattr(module, "Group", group)
    monkeypatch.setattr(TableSimulation, "quick", _quick_of_any)
    wanted = goal("throughput", targets=Targets(1.0, None))
    found = prepared(Tables(speed, speed), wanted, [ONE], case)
    assert found.sensitivity == (Sensitivity("engine", "FASTER", 1.25, "2026-01-01"),)
    # the number of graphs of the others is not known
    started = replace(wanted, most_start=100.0)
    assert prepared(Tables(speed, speed), started, [ONE], case).sensitivity == ()


def _quick_of_any(self: TableSimulation, candidate: Candidate, group: Any) -> Trial:
    assert group.__class__ is tuple or group.memory == "memory"
    return self._judged(Trial(candidate), self.tables.quick(candidate))


def test_experts_are_equal_in_both_ways(prepared: Prepared) -> None:
    case = table_case()
    mixture = replace(case, model=replace(case.model, moe=True))
    one, two = replace(ONE, experts=1), replace(ONE, cards=2, experts=2)

    def effect(candidate: Candidate, case: SearchCase) -> tuple[Sensitivity, ...]:
        return prepared(Tables(), goal("balanced"), [candidate], case).sensitivity

    assert effect(two, mixture) == (Sensitivity("experts", "0", 1.0),)
    assert effect(replace(two, experts=0), mixture) == (Sensitivity("experts", "2", 1.0),)
    assert effect(one, mixture) == effect(two, case) == ()
    given = searched(TableEngine(), extra=("--enable-expert-parallel",))
    assert effect(two, replace(mixture, engines=(given,))) == ()


def test_plans_decide_between_the_best(prepared: Prepared) -> None:
    # buckets of a batch of 64 pad a lot
    def exact(candidate: Candidate) -> Served:
        share = {64: 0.5}.get(candidate.batch, 0.9)
        return does(candidate, share * tokens(candidate))

    found = prepared(Tables(exact=exact), goal("balanced"))
    assert found.winner is not None
    assert (found.winner.candidate.cards, found.winner.candidate.batch) == (2, 128)
    assert found.winner.score == near(0.9 * 75 * 1.5)


def test_the_answer_has_been_simulated_with_all_requests(prepared: Prepared) -> None:
    def settled(candidate: Candidate) -> Served:
        late = {64: 2.0, 128: 0.3}.get(candidate.batch, 0.2)
        return does(candidate, tokens(candidate), ttft=late)

    wanted = goal("throughput", rate=1.0, targets=Targets(1.0, None))
    pair = variants(batch=(64, 128))
    found = prepared(Tables(settled=settled), wanted, pair)
    assert found.winner is not None and found.winner is found.trials[0]
    assert (found.winner.candidate.batch, found.winner.served) == (128, settled(pair[1]))
    assert [(trial.candidate.batch, trial.missed) for trial in found.trials] == [
        (128, ()),
        (64, ("ttft",)),
    ]
    # the front has the same figures
    assert [trial for trial in found.front if trial not in found.trials] == []
    assert [trial.candidate.batch for trial in found.front] == [64]
    assert found.runner_up is found.trials[1]


def test_no_answer_where_all_requests_miss_the_targets(prepared: Prepared) -> None:
    tables = Tables(settled=lambda candidate: does(candidate, 1.0, ttft=2.0))
    wanted = goal("throughput", rate=1.0, targets=Targets(1.0, None))
    found = prepared(tables, wanted, variants(batch=(64, 128)))
    assert (found.winner, found.runner_up, found.sensitivity) == (None, None, ())
    assert [trial.missed for trial in found.trials] == [("ttft",), ("ttft",)]
    assert (found.evidence, str(found.limit), found.cards) == (EVIDENCE, "limit", (1, 99))


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


def test_more_are_planned_while_plans_nearly_meet_the_targets(prepared: Prepared) -> None:
    def exact(candidate: Candidate) -> Served:
        late = 0.5 if candidate.batch == 256 else 1.5
        return does(candidate, tokens(candidate), ttft=late)

    wanted = goal("throughput", targets=Targets(1.0, None))
    batches = variants(batch=(8, 16, 32, 64, 128, 256))
    tables = Tables(lambda candidate: does(candidate, tokens(candidate), tpot=0.1), exact)
    found = prepared(tables, wanted, batches)
    assert found.winner is not None and found.winner.candidate.batch == 256
    # four at first, then two together
    assert [each.batch for each in tables.planned] == [64, 128, 32, 16, 8, 256]


def test_no_more_are_planned_where_plans_miss_by_far(prepared: Prepared) -> None:
    tables = Tables(
        lambda candidate: does(candidate, tokens(candidate), tpot=0.1),
        lambda candidate: does(candidate, tokens(candidate), ttft=2.0),
    )
    wanted = goal("throughput", targets=Targets(1.0, None))
    found = prepared(tables, wanted, variants(batch=(8, 16, 32, 64, 128, 256)))
    assert found.winner is None
    assert [each.batch for each in tables.planned] == [64, 128, 32, 16]


def test_about_fourteen_are_planned_at_most(prepared: Prepared) -> None:
    tables = Tables(
        lambda candidate: does(candidate, tokens(candidate), tpot=0.1),
        lambda candidate: does(candidate, tokens(candidate), ttft=1.5),
    )
    wanted = goal("throughput", targets=Targets(1.0, None))
    every = variants(dtype=("bf16", "fp8"), cards=(1, 2, 4, 8), batch=(8, 16, 32, 64, 128, 256))
    found = prepared(tables, wanted, every)
    assert found.simulated > 15
    assert len(tables.planned) == len(set(tables.planned)) == 15


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


def test_a_limit_of_the_warm_up_is_met_by_another_list_of_buckets(prepared: Prepared) -> None:
    tables = Tables(by_shape, by_shape, graphs=graphs)
    found = prepared(tables, with_graphs(70), SHAPES)
    # the plan that was nearest to it, with coarser buckets
    (coarse,) = variants(prompts=(16,), batch=(1,), padding=("0.5",))
    assert found.winner is not None
    assert (found.winner.candidate, found.winner.graphs) == (coarse, 50)
    assert len(tables.planned) == len(set(tables.planned))


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


def test_stages_on_a_server_are_planned_after_other_layouts(prepared: Prepared) -> None:
    plain = variants(cards=(2,), batch=(16, 32, 64, 128))
    staged = [replace(each, pipeline=2) for each in plain]

    def speed(candidate: Candidate) -> Served:
        return does(candidate, tokens(candidate) * candidate.pipeline)

    tables = Tables(speed, speed)
    found = prepared(tables, goal("balanced"), [*staged, *plain])
    assert {each.pipeline for each in tables.planned} == {1}
    # the best of them is stated
    assert found.sensitivity[0] == Sensitivity("layout", "2x2", 2.0)


def test_an_answer_that_cannot_be_planned_is_left_out(prepared: Prepared) -> None:
    tables = Tables(settled=usual)
    found = prepared(tables, goal("throughput", rate=1.0), variants(batch=(32, 64, 128)))
    first, second, third = found.trials
    assert found.winner is first
    why = message("placement.none_free", holders="-")
    tables.limits.clear()
    left = without(found, first, why)
    assert left == replace(
        found,
        winner=second,
        runner_up=third,
        trials=(second, third, Trial(first.candidate, why_not=why)),
        front=tuple(trial for trial in found.front if trial.candidate != first.candidate),
        sensitivity=(),
        cards=None,
    )
    assert first.candidate in {trial.candidate for trial in found.front}
    assert tables.limits == [(found.case, second, [second, third])]
    none = without(without(left, second, why), third, why)
    assert (none.winner, none.runner_up, none.evidence) == (None, None, None)
    assert [trial.why_not for trial in none.trials] == [why, why, why]


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


def test_the_published_figures_are_of_one_server_without_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def evidence_of(*query: Any, measured: bool) -> Evidence:
        asked.append((*query, measured))
        return EVIDENCE

    monkeypatch.setattr(module, "evidence_of", evidence_of)
    monkeypatch.setattr(module, "inside_of", lambda case, trial: 7.5)
    case = table_case()
    plain, staged = ONE, replace(ONE, pipeline=2)
    for candidate in (plain, staged):
        trial = Trial(candidate, usual(ONE), replica=REPLICA)
        assert module._evidence(case, trial) is EVIDENCE
    assert module._evidence(case, Trial(ONE, usual(ONE))) is None
    assert module._evidence(case, Trial(ONE, replica=REPLICA)) is None
    assert asked == [(REPLICA, case.traffic, 7.5, measured) for measured in (True, False)]


def test_the_best_of_each_layout_that_is_not_far_behind() -> None:
    def made(cards: int, score: float, *missed: str) -> Trial:
        return Trial(replace(ONE, cards=cards), usual(ONE), score=score, missed=missed)

    ranked = [made(1, 10.0), made(2, 6.0), made(1, 5.0), made(4, 5.9), made(8, 99.0, "ttft")]
    found = module._best_of_cards(ranked)
    assert [candidate.cards for candidate in found] == [1, 2, 8]
    # none meets the targets: any may be the nearest
    late = [replace(trial, missed=("ttft",)) for trial in ranked]
    assert [candidate.cards for candidate in module._best_of_cards(late)] == [1, 2, 4, 8]


def test_graphs_that_are_expected_follow_from_those_that_are_known() -> None:
    def made(prompts: int, batch: int, graphs: int, padding: str = "") -> Trial:
        candidate = replace(ONE, prompts=prompts, batch=batch, padding=padding)
        return Trial(candidate, graphs=graphs)

    def expected(*trials: Trial) -> list[int]:
        known = module._Graphs(trials)
        return [known.of(replace(ONE, prompts=each)) for each in (1, 2, 4)]

    assert expected() == expected(made(2, 8, 0), made(2, 8, 50, "0.5")) == [0, 0, 0]
    # 1 + log2(prompts) + 0.27 log2(batch): 1.81, 2.81 and 3.81
    assert expected(made(2, 8, 281)) == [181, 281, 381]
    # by the lowest of both
    assert expected(made(2, 8, 562), made(1, 1, 100)) == [181, 562, 381]


@pytest.mark.parametrize(
    ("cards", "spreads", "values"),
    [
        ((16,), False, ("recommend.few_cards", {"cards": "16", "have": 8, "servers": 2})),
        (
            (3, 6),
            False,
            ("plan.heads", {"heads": 20, "cards": "3, 6", "allowed": "-n 1, -n 2, -n 4"}),
        ),
        (
            (16, 20),
            True,
            (
                "recommend.nothing_fits",
                {"model": "m", "card": "Gaudi2", "cards": "16, 20", "dtypes": "bf16, fp8"},
            ),
        ),
    ],
)
def test_the_error_of_a_model_that_nothing_runs(
    cards: tuple[int, ...], spreads: bool, values: tuple[str, dict[str, Any]]
) -> None:
    case = replace(table_case(nodes=2), cards=cards)
    first = replace(case.engines[0], spreads=spreads, dtypes=("bf16", "fp8"))
    model = replace(case.model, heads=20)
    error = module._nothing_fits(replace(case, engines=(first,), model=model))
    card = case.pool.accelerator.title
    assert (error.id, {**error.text.values, "card": card}) == (
        values[0],
        {**values[1], "card": card},
    )


def test_alike_trials_are_decided_by_what_comes_second() -> None:
    def made(score: float, second: float, **changes: Any) -> Trial:
        return Trial(replace(ONE, **changes), usual(ONE), score=score, second=second, miss=1.0)

    faster, simpler, slower = made(1.0, 1.0), made(0.9951, 2.0), made(0.9949, 9.0)
    late = replace(made(9.0, 9.0), missed=("ttft",))
    stages = made(9.0, 9.0, pipeline=2)
    every = [slower, late, stages, faster, simpler]
    assert best(goal("balanced"), every) is simpler
    assert best(goal("balanced"), [stages, late]) is stages
    assert best(goal("balanced"), [late]) is None
