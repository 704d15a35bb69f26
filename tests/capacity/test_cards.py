"""The number of cards of a replica: which is chosen, and what is assumed for it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.capacity import cards
from gaudi_launch.capacity.cards import CapacityCase, CardsChoice, solve
from gaudi_launch.capacity.planned_replica import ReplicaSetup
from gaudi_launch.capacity.replica import Replica, Unfit
from gaudi_launch.capacity.search import Curve, LoadPoint, Targets
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.performance.evidence import Evidence
from gaudi_launch.performance.limits import EngineLimits
from gaudi_launch.performance.published import Kind
from gaudi_launch.performance.step_time import StepTime
from gaudi_launch.planning.request import Request
from tests.support.traces import limits

COST = StepTime(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, "8B, one card")
TRAFFIC = Traffic(((0.0, 100, 10), (1.0, 200, 20)))
NOTE = message("capacity.assume_card", card="gaudi2e", other="gaudi2")
EVIDENCE = Evidence(Kind.SERVED, 12, 1.2, 0.5, 2.0, True, ())
# cards -> requests per second of one replica
RATES = {2: 3.0, 9: 4.0}


class ToyEngine:
    """An engine with the few facts that a capacity asks for."""

    identity = SimpleNamespace(label="toy 1.0")

    @property
    def innermost(self) -> ToyEngine:
        return self

    def caches_prefixes(self, request: Request, model: Model) -> bool:
        return False


def case(**changes: Any) -> CapacityCase:
    values: dict[str, Any] = {
        "model": "the model",
        "dtype": "bfloat16",
        "accelerator": accelerators()["gaudi2"],
        "engine": ToyEngine(),
        "request": Request(model="m", max_num_seqs=8),
        "limits": SimpleNamespace(max_model_len=4096, max_num_seqs=8),
        "rate": 6.0,
        "targets": Targets(1.0, None),
        "traffic": TRAFFIC,
        "cards": (1, 2, 4),
        "cards_per_node": 8,
        "constants": {"decode_fixed": "1"},
        "nodes": (1,),
        "notes": (NOTE,),
    }
    return CapacityCase(**{**values, **changes})


def replica_of(count: int, **changes: Any) -> Replica:
    return Replica(count, limits(max_num_seqs=8, **changes), COST, 0.125, None, (NOTE,))  # type: ignore[arg-type]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Give each number of cards a replica of a known rate; return what is asked."""
    seen: list[Any] = []

    def planned(setup: ReplicaSetup, traffic: Traffic) -> Replica | Unfit:
        seen.append(setup)
        if setup.cards == 3:
            return Unfit(3, message("fit.short", tokens=1, length=2))
        if setup.cards == 5:
            raise LaunchError("fit.weights", ExitCode.MODEL)
        if setup.cards == 6:
            raise LaunchError("warmup.free_steps", ExitCode.USAGE)
        if setup.cards == 9:
            return replica_of(9, max_num_batched_tokens=32)
        found = replica_of(setup.cards)
        batch = setup.request.max_num_seqs
        if batch is None:
            return found
        return replace(found, limits=replace(found.limits, max_num_seqs=batch))

    def curve(
        traffic: Traffic,
        bounds: EngineLimits,
        cost: StepTime,
        percentile: float,
        *,
        delay: float,
        quick: bool = False,
    ) -> Curve | None:
        assert cost == COST
        count = [each.cards for each in seen if isinstance(each, ReplicaSetup)][-1]
        seen.append((traffic, bounds.max_num_seqs, percentile, delay, quick))
        if count == 7:
            return None
        rate = RATES[count] * (1.5 if bounds.max_num_seqs == 64 else 1.0)
        loads = tuple(
            LoadPoint(rate * share, share, share, share / 10, 1.0, 10 * share, 1.0)
            for share in (0.5, 1.0)
        )
        return Curve(loads, rate, 0.25)

    def evidence(found: Replica, traffic: Traffic, inside: float, *, measured: bool) -> Evidence:
        seen.append((found.cards, inside, measured))
        return EVIDENCE

    monkeypatch.setattr(cards, "planned_replica", planned)
    monkeypatch.setattr(cards, "simulate_curve", curve)
    monkeypatch.setattr(cards, "evidence_of", evidence)
    return seen


def test_the_reason_without_a_fleet(asked: list[Any]) -> None:
    found = solve(case(cards=(3, 5, 7, 2), targets=Targets(0.1, None)))
    assert found.chosen is None
    assert [each.why_not for each in found.choices] == [
        message("fit.short", tokens=1, length=2),
        message("fit.weights"),
        message("capacity.takes_none", length=4096),
        message("capacity.unreachable", ttft="0.5", tpot="50"),
    ]
    unfit = Unfit(5, message("fit.weights"))
    assert found.choices[1] == CardsChoice(5, unfit, None, None, message("fit.weights"))
    # what is assumed is that of the last one that was simulated
    assert ("assume_cost", 2) in [(m.id[9:], m.values.get("cards")) for m in found.assumptions]
    with pytest.raises(LaunchError):
        solve(case(cards=(6,)))


def test_a_step_has_room_for_a_token_of_each_request_of_a_batch(asked: list[Any]) -> None:
    solve(case(cards=(9,), request=Request(model="m")))
    quick = [each[1] for each in asked if isinstance(each, tuple) and len(each) == 5 and each[-1]]
    planned = [each.request.max_num_seqs for each in asked if isinstance(each, ReplicaSetup)]
    # all carry the same, so the engine's own batch stays
    assert (quick, planned) == ([8, 16, 32], [None])
