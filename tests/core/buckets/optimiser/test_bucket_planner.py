"""The steps of a plan: its price, its goals and its weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.optimiser import bucket_planner as module
from gaudi_launch.core.buckets.optimiser.bucket_planner import Aim
from gaudi_launch.core.predict.simulator import Continued, Shapes, Weighted
from gaudi_launch.core.predict.step_time import ONE_CARD_8B
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
