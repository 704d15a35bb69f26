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
from gaudi_launch.messages import Message, message
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
RATES = {1: 1.0, 2: 3.0, 4: 4.0, 16: 100.0}


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
    monkeypatch.setattr(cards, "request_delay", lambda: 0.012)
    return seen


def ids(messages: tuple[Message, ...]) -> list[str]:
    return [each.id.removeprefix("capacity.") for each in messages]


def test_the_fewest_cards_in_all_are_chosen(asked: list[Any]) -> None:
    steps: list[tuple[int, int]] = []
    found = solve(case(), lambda done, total: steps.append((done, total)))
    fleets = [(each.cards, each.fleet and each.fleet.cards) for each in found.choices]
    assert fleets == [(1, 7), (2, 6), (4, 8)]
    assert found.chosen is found.choices[1]
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]
    chosen = found.choices[1]
    assert chosen.fleet is not None and chosen.fewest is not None and chosen.most is not None
    # twice as fast and half as fast
    replicas = [each.replicas for each in (chosen.fleet, chosen.fewest, chosen.most)]
    assert (replicas, chosen.evidence, chosen.why_not) == ([3, 1, 8], EVIDENCE, None)


def test_a_replica_is_asked_for_with_what_the_case_states(asked: list[Any]) -> None:
    one = case(cards=(2,), traced=True)
    solve(one)
    assert asked == [
        ReplicaSetup(
            one.engine,
            one.request,
            one.accelerator,
            one.model,
            2,
            "bfloat16",
            constants={"decode_fixed": "1"},
            traced=True,
        ),
        (TRAFFIC, 8, 95.0, 0.012, False),
        # 2 requests per second on each of three: the first load at or above is the last
        (2, 10.0, True),
    ]


def test_more_cards_than_a_node_has_are_not_measured(asked: list[Any]) -> None:
    found = solve(case(cards=(16,)))
    assert asked[-1] == (16, 5.0, False)
    assert "assume_links" in ids(found.assumptions)


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


def test_the_assumptions_of_a_choice(asked: list[Any]) -> None:
    found = solve(case(cards=(2,)))
    shown = ", ".join(f"{name} {value:.3g}" for name, value in COST.constants().items())
    assert found.assumptions == (
        NOTE,
        message("capacity.assume_served", engine="toy 1.0", requests=8, length=4096),
        message("capacity.assume_cost", cards=2, basis="8B, one card", constants=shown),
        NOTE,
        message("capacity.assume_padding", percent="12.5"),
        message("capacity.assume_memory", blocks=2000),
        message("capacity.refused", percent="25.0", length=4096),
        message("capacity.assume_v0", prompts=1, delay="12"),
        message("capacity.assume_band", points=12, low="0.50", high="2.00"),
        message("capacity.assume_split"),
        message("capacity.assume_ceiling", percent="90"),
        message("capacity.assume_no_spare"),
    )


def test_the_assumptions_without_any_replica(asked: list[Any]) -> None:
    assert ids(solve(case(cards=(3,), clients=4, rate=0.0)).assumptions) == [
        "assume_card",
        "assume_served",
        "assume_split",
        "assume_no_spare",
    ]


def test_a_mixed_step_and_a_far_load_are_stated(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = replica_of(2, mixed_steps=True, max_num_batched_tokens=2048, max_num_prefill_seqs=4)

    def planned(setup: ReplicaSetup, traffic: Traffic) -> Replica:
        asked.append(setup)
        return mixed

    monkeypatch.setattr(cards, "planned_replica", planned)
    far = replace(EVIDENCE, near=False)
    monkeypatch.setattr(cards, "evidence_of", lambda *_, **__: far)
    found = solve(case(cards=(2,))).assumptions
    assert message("capacity.assume_v1", tokens=2048, prompts=4, delay="12") in found
    assert message("capacity.assume_far", low="0.50", high="2.00") in found


def test_clients_are_simulated_as_clients(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def clients(
        traffic: Traffic, bounds: EngineLimits, cost: StepTime, percentile: float, *, delay: float
    ) -> Curve:
        load = LoadPoint(1.0, 1.0, 0.5, 0.05, 1.0, 4.0, 1.0)
        return Curve((load,), 1.0, 0.0, clients=True)

    monkeypatch.setattr(cards, "simulate_clients", clients)
    found = solve(case(cards=(2,), clients=10, rate=0.0))
    assert found.case.demand == 10.0
    fleet = found.choices[0].fleet
    assert fleet is not None and (fleet.replicas, fleet.cards) == (3, 6)
    assert "assume_ceiling" not in ids(found.assumptions)


def test_the_batch_that_carries_most_is_planned_where_none_is_given(asked: list[Any]) -> None:
    free = case(cards=(2,), request=Request(model="m"))
    found = solve(free)
    setups = [each for each in asked if isinstance(each, ReplicaSetup)]
    assert [each.request.max_num_seqs for each in setups] == [None, 64]
    # smaller and larger ones carry no more
    quick = [each for each in asked if isinstance(each, tuple) and len(each) == 5 and each[-1]]
    batches = (8, 16, 32, 64, 128, 256)
    assert quick == [(TRAFFIC, batch, 95.0, 0.012, True) for batch in batches]
    replica = found.choices[0].replica
    assert isinstance(replica, Replica) and replica.limits.max_num_seqs == 64


def test_a_step_has_room_for_a_token_of_each_request_of_a_batch(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = replica_of(2, max_num_batched_tokens=32)
    planned: list[int | None] = []

    def planned_replica(setup: ReplicaSetup, traffic: Traffic) -> Replica:
        asked.append(setup)
        planned.append(setup.request.max_num_seqs)
        return narrow

    monkeypatch.setattr(cards, "planned_replica", planned_replica)
    solve(case(cards=(2,), request=Request(model="m")))
    quick = [each[1] for each in asked if isinstance(each, tuple) and len(each) == 5 and each[-1]]
    # all carry the same, so the engine's own batch stays
    assert (quick, planned) == ([8, 16, 32], [None])


def test_the_figures_near_the_load_of_one_replica_are_those_of_the_fleet(asked: list[Any]) -> None:
    # 2.25 requests per second of each within the target, and 1.4 of each of two
    solve(case(cards=(2,), rate=2.8, targets=Targets(0.75 / 0.98, None)))
    assert asked[-1] == (2, 5.0, True)


def test_the_cache_of_a_replica_changes_its_traffic(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ToyEngine, "caches_prefixes", lambda self, request, model: True)
    sizes: list[int] = []

    class Watched(Traffic):
        def with_cache(self, tokens: int) -> Traffic:
            sizes.append(tokens)
            return self

    solve(case(cards=(2,), traffic=Watched(TRAFFIC.requests)))
    assert sizes == [2000 * 128]
