"""The steps of a plan: its price, its goals and its weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gaudi_launch.buckets import ladders
from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.buckets.optimiser import bucket_planner as module
from gaudi_launch.buckets.optimiser import contexts
from gaudi_launch.buckets.optimiser.bucket_planner import (
    Aim,
    BucketGoal,
    padded_grid,
    script_grid,
    solve,
)
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.performance.limits import EngineLimits
from gaudi_launch.performance.simulator import Continued, Shapes, Weighted
from gaudi_launch.performance.step_time import ONE_CARD_8B
from tests.support.records import near
from tests.support.refusals import failing
from tests.support.traces import limits


def weighted(*rows: tuple[int, int, float]) -> Weighted:
    batch, size, weight = zip(*rows, strict=True)
    return Weighted(np.asarray(batch), np.asarray(size), np.asarray(weight, dtype=np.float64))


SHAPES = Shapes(
    weighted((1, 100, 10.0), (1, 2000, 5.0), (4, 100, 5.0)),
    weighted((1, 16, 8.0), (2, 17, 1.0), (3, 2, 1.0)),
    Continued(np.asarray([128, 128]), np.asarray([6, 8]), np.asarray([3.0, 4.0])),
)


def aim(*, traced: bool, floor: int = 5) -> Aim:
    expectation: Any = SimpleNamespace(distance=0.1 if traced else None)
    return Aim(expectation, SHAPES, floor)


@pytest.mark.parametrize(
    ("goal", "traced", "price"),
    [
        (BucketGoal(), True, 5e-4),
        (BucketGoal(), False, 2e-4),
        (BucketGoal(price=0.1), True, 0.1),
        (BucketGoal(price=0.1), False, 0.1),
    ],
)
def test_the_price_of_a_graph(goal: BucketGoal, traced: bool, price: float) -> None:
    assert aim(traced=traced).price(goal) == price


def test_the_grid_of_the_start_script_is_counted() -> None:
    bounds = limits(
        max_num_seqs=32,
        max_num_prefill_seqs=2,
        max_num_batched_tokens=1024,
        input_min=100,
        input_max=300,
        num_blocks=300,
    )
    # 128 to 512 tokens for one and for two prompts; 1, 2, 4 .. 32 sequences with three sizes
    assert script_grid(bounds) == 4 + 4 + 17 * 3
    # two prompts of 512 do not fit, and of 128 eight at most
    narrow = limits(
        max_num_seqs=500,
        max_num_prefill_seqs=16,
        max_num_batched_tokens=700,
        max_model_len=700,
        input_min=100,
        input_max=300,
        output_max=100,
        num_blocks=129,
    )
    assert script_grid(narrow) == (4 + 2 + 1 + 1 + 1 + 0 + 0) + (4 + 32) * 2


def test_the_grid_of_the_padding_aware_strategy_is_counted() -> None:
    bounds = limits(max_num_seqs=10, max_num_batched_tokens=1000, max_model_len=900, num_blocks=500)

    def size(low: int, step: int, high: int, most: int) -> int:
        return len(ladders.padded(low, step, high, most, 25))

    prompts, batches = size(128, 128, 1000, 250), size(1, 2, 10, 3)
    assert padded_grid(bounds) == prompts + batches * size(128, 128, 500, 125)
    larger = limits(
        max_num_seqs=10, max_num_batched_tokens=1000, max_model_len=900, cache_blocks=5000
    )
    assert padded_grid(larger) == prompts + batches * size(128, 128, 5000, 1250)


@pytest.mark.parametrize(
    ("goal", "traced", "bounds", "asked"),
    [
        (BucketGoal(graphs=9, overhead=0.1, price=0.1), True, {}, ("graphs", 9, 1e-7)),
        (BucketGoal(overhead=0.1, price=0.1), True, {}, ("overhead", 0.1)),
        (BucketGoal(price=0.1), True, {}, ("price", 0.1, True)),
        (BucketGoal(), False, {}, ("price", 2e-4, True)),
        (BucketGoal(), True, {"mixed_steps": True}, ("price", 5e-4, True)),
        # a third of one grid, three tenths of the other
        (BucketGoal(), True, {}, ("graphs", 33, 1e-5)),
        (BucketGoal(), True, {"max_num_prefill_seqs": 2}, ("graphs", 60, 1e-5)),
        (BucketGoal(), True, {"num_blocks": 1}, ("graphs", 5, 1e-5)),
    ],
)
def test_what_a_goal_asks_of_the_planner(
    goal: BucketGoal,
    traced: bool,
    bounds: dict[str, Any],
    asked: tuple[Any, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[Any, ...]] = []
    searched, priced = Buckets([[1, 1, 0]], []), Buckets([], [[1, 1, 1]])

    class Solver:
        def __init__(self, *given: Any) -> None:
            self.made = {0.5: searched}
            seen.append(given)

        def for_graphs(self, most: int, finest: float = 1e-7) -> float:
            seen.append(("graphs", most, finest))
            return 0.5

        def for_overhead(self, share: float) -> float:
            seen.append(("overhead", share))
            return 0.5

        def at(self, price: float, thorough: bool = False) -> Buckets:
            seen.append(("price", price, thorough))
            return priced

    made = limits(**bounds)
    one = aim(traced=traced)
    few = made.num_blocks == 1
    monkeypatch.setattr(module, "_Solver", Solver)
    monkeypatch.setattr(module, "padded_grid", lambda bounds: 1 if few else 100)
    monkeypatch.setattr(module, "script_grid", lambda bounds: 200)
    monkeypatch.setattr(module, "prove", lambda *given: seen.append(("prove", *given)))
    monkeypatch.setattr(module, "score", lambda *given: given)
    found = solve(made, one, goal, ONE_CARD_8B)
    buckets, price = (priced, asked[1]) if asked[0] == "price" else (searched, 0.5)
    assert seen == [(made, one, ONE_CARD_8B), asked, ("prove", buckets, made)]
    assert (found.buckets, found.price, found.aim) == (buckets, price, one)
    scored: Any = found.score
    assert scored == (buckets, SHAPES, ONE_CARD_8B)


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch) -> module._Solver:
    """Return a solver whose plans have 100 graphs at a price of 1e-3, and 10 times fewer at 1e-2.

    Their overhead is 1 / graphs.
    """

    def plan_phase(shapes: Weighted, phase: Any, pay: float, thorough: bool) -> list[Any]:
        if shapes is SHAPES.prompt:
            return [(1, 128)]
        return [(1, size) for size in range(1, max(2, round(0.1 / pay * solved.total)))]

    monkeypatch.setattr(module, "plan_phase", plan_phase)
    monkeypatch.setattr(
        module, "score", lambda buckets, *given: SimpleNamespace(overhead=1 / buckets.graphs)
    )
    monkeypatch.setattr(module, "FINEST", 1e-4)
    solved = module._Solver(limits(), aim(traced=True), ONE_CARD_8B)
    return solved


def test_the_finest_plan_with_so_many_graphs(solver: module._Solver) -> None:
    price = solver.for_graphs(100, finest=1e-4)
    assert price == pytest.approx(1e-3, rel=0.12)
    assert 90 <= solver.made[price].graphs <= 100
    # each bucket of a prompt has no context, each of a decode step one query
    assert solver.made[price].prompt == [[1, 128, 0]]
    assert solver.made[price].decode[0] == [1, 1, 1]
    assert solver.for_graphs(5000, finest=1e-4) == 1e-4
    with failing("warmup.too_few_graphs", ExitCode.USAGE) as error:
        solver.for_graphs(4)
    assert error.value.text.values == {"found": 4, "floor": 5}


def test_the_fewest_graphs_within_an_overhead(solver: module._Solver) -> None:
    price = solver.for_overhead(0.0101)
    assert 99 < solver.made[price].graphs < 111
    with failing("warmup.overhead_too_low", ExitCode.USAGE) as error:
        solver.for_overhead(0.0005)
    assert error.value.text.values == {"found": "0.05", "best": "0.10"}


def test_prompts_of_several_and_behind_contexts_are_planned_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def plan_phase(shapes: Weighted, phase: Any, pay: float, thorough: bool) -> list[Any]:
        asked.append((shapes, pay, thorough))
        return [(2, 256)] if shapes is SHAPES.prompt else [(1, 1)]

    def behind(*given: Any, thorough: bool) -> set[Any]:
        asked.append((*given, thorough))
        return {(1, 512, 4), (1, 512, 0)}

    monkeypatch.setattr(module, "plan_phase", plan_phase)
    monkeypatch.setattr(contexts, "plan", behind)

    def made(**changes: Any) -> tuple[EngineLimits, Buckets]:
        asked.clear()
        bounds = limits(mixed_steps=True, **changes)
        solved = module._Solver(bounds, aim(traced=True), ONE_CARD_8B)
        solved.total = 100.0
        return bounds, solved.at(0.01, thorough=True)

    bounds, single = made()
    assert single == Buckets([[1, 512, 0], [1, 512, 4]], [[1, 1, 1]])
    assert asked == [(SHAPES, bounds, ONE_CARD_8B, 1.0, True), (SHAPES.decode, 1.0, True)]
    bounds, several = made(max_num_prefill_seqs=2)
    assert several == Buckets([[1, 512, 0], [1, 512, 4], [2, 256, 0]], [[1, 1, 1]])
    assert asked[1] == (SHAPES.prompt, 1.0, True)


def test_the_last_row_reaches_the_complete_cache() -> None:
    solved = module._Solver(limits(max_num_seqs=8), aim(traced=True), ONE_CARD_8B)
    # 64 blocks of each sequence; 2000 in the cache
    assert [solved.decode.top(batch) for batch in (1, 7, 8)] == [64, 448, 2000]
    few = module._Solver(limits(max_num_seqs=8, num_blocks=3), aim(traced=True), ONE_CARD_8B)
    assert few.decode.top(8) == 8


def test_shapes_outside_of_the_hot_part_count_little() -> None:
    found = module._heat(SHAPES, limits(), (2, 1000))
    # of 20 prompts 10 are hot: the others have a fiftieth of their weight together
    assert found.prompt.weight.tolist() == near([10.0, 0.1, 0.1])
    # 2 sequences of 1000 tokens are 16 blocks
    assert found.decode.weight.tolist() == near([8.0, 0.08, 0.08])
    # 896 tokens and 1152
    assert found.continued.weight.tolist() == near([3.0, 0.08])
    assert found.prompt.size.tolist() == SHAPES.prompt.size.tolist()
    # without anything in the hot part all counts as before
    none = module._heat(SHAPES, limits(), (2, 50))
    assert none.prompt.weight.tolist() == SHAPES.prompt.weight.tolist()
    for reduce in ((0, 5), (5, 0)):
        with pytest.raises(LaunchError) as error:
            module._heat(SHAPES, limits(), reduce)
        assert error.value.text.values == {"found": f"{reduce[0]},{reduce[1]}"}
