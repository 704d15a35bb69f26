"""What one replica carries, by a queue whose answer is known, and replicas on servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.predict.load import from_ranges
from gaudi_launch.core.predict.scaling import Speed
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.simulate import ServedSetup, most_rate, simulate
from gaudi_launch.core.predict.step_model import Setup as Division
from gaudi_launch.core.predict.step_time import StepTime
from gaudi_launch.core.predict.targets import Targets
from gaudi_launch.extensions.recommend.carried import (
    CEILING,
    QUICK_SHARES,
    carried,
    client_counts,
    nodes_for,
    replicas_on,
)
from tests.support.traces import limits

# a prompt takes 100 ms and a decode step 10 ms
COST = StepTime(100.0, 0.0, 0.0, 10.0, 0.0, 0.0, "round")
SPEED = Speed(COST, Division("gaudi2", 1, "bf16", 2.0, 2.0, "v0"), Shape(1, 1, 1, 1, 1, 1, 1, 1, 1))
SETUP = ServedSetup(limits(max_num_seqs=4), SPEED)
LOAD = from_ranges((100, 100), (11, 11))


def full_rate(most: int) -> float:
    found = most_rate(SETUP, LOAD, most)
    assert found is not None
    return found


@given(
    ttft=st.none() | st.floats(0.05, 3.0),
    tpot=st.none() | st.floats(0.005, 0.1),
    near=st.floats(0.0, 12.0),
    clients=st.booleans(),
)
def test_what_is_carried_meets_the_targets(
    ttft: float | None, tpot: float | None, near: float, clients: bool
) -> None:
    targets = Targets(ttft, tpot)
    found = carried(SETUP, LOAD, targets, clients=clients, most=600, near=near)
    full = full_rate(600)
    if not found:
        idle = LOAD.of_clients(1) if clients else LOAD.at_rate(QUICK_SHARES[0] * full)
        assert targets.missed(simulate(SETUP, idle, most=600))
        return
    if clients:
        assert found in range(1, 5)
        asked = LOAD.of_clients(int(found))
    else:
        assert found <= CEILING * full * (1 + 1e-9)
        asked = LOAD.at_rate(found)
    # between two loads latencies are read from a line
    assert not targets.times(1.1).missed(simulate(SETUP, asked, most=600))


def test_a_tighter_target_carries_no_more() -> None:
    amounts = []
    for ttft in (0.2, 0.3, 0.5, 1.0, 9.0):
        found = carried(SETUP, LOAD, Targets(ttft, None), clients=False, most=2000)
        amounts.append(found)
    assert amounts == sorted(amounts)
    assert amounts[-1] == pytest.approx(CEILING * full_rate(2000))


def test_clients_grow_up_to_what_runs_at_once() -> None:
    assert client_counts(limits(max_num_seqs=10)) == [1, 2, 3, 4, 6, 8, 10]
    short = ServedSetup(limits(max_model_len=50), SPEED)
    assert carried(short, LOAD, Targets(1.0, None), clients=True, most=9) == 0.0


@given(st.integers(1, 10_000), st.integers(1, 64), st.sampled_from([1, 4, 8]))
def test_nodes_hold_what_they_were_counted_for(replicas: int, cards: int, per_node: int) -> None:
    nodes = nodes_for(replicas, cards, per_node)
    assert replicas_on(nodes, cards, per_node) >= replicas
    assert nodes == 1 or replicas_on(nodes - 1, cards, per_node) < replicas
