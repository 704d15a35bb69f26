"""The figures nearest to a load, and the band that they give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.performance.evidence import (
    Band,
    Evidence,
    Neighbour,
    Query,
    distance,
    evidence_for,
    of_learned,
)
from gaudi_launch.performance.published import MEASURED_HERE, Figure, Kind
from gaudi_launch.performance.shape import Shape
from gaudi_launch.performance.step_model import Setup
from tests.support.records import near

SETUP = Setup("gaudi2", 2, "bf16", 2.0, 2.0, "v1")
SHAPE = Shape(32, 32, 4096, 14336, 8e9, 1e9, 4096, 8, 128)
MIXTURE = replace(SHAPE, experts=16e9, share=0.5)
QUERY = Query(SETUP, SHAPE, 1024, 256, 16)
FIGURE = Figure(
    source="s",
    measure="throughput",
    statistic="total",
    harness="vllm",
    software="v1",
    model="m",
    setup=SETUP,
    shape=SHAPE,
    input=1024,
    output=256,
    batch=16,
    value=1.0,
    kind=Kind.SERVED,
    not_scored="",
    note="",
)
CONSTANTS = {
    "band.served.points": 12.0,
    "band.served.typical": 1.2,
    "band.served.low": 0.8,
    "band.served.high": 1.5,
    "band.moe.points": 3.0,
    "band.moe.typical": 1.3,
    "band.moe.low": 0.5,
    "band.moe.high": 2.0,
}


@pytest.mark.parametrize(
    ("changes", "apart"),
    [
        ({}, 0.0),
        ({"input": 2048}, 0.3),
        ({"output": 128}, 0.3),
        ({"batch": 64}, 1.0),
        ({"shape": replace(SHAPE, body=17e9)}, 1.0),
        # twice the cards with the same batch: half of a doubling, and half the batch on each
        ({"setup": replace(SETUP, cards=4)}, 1.0),
        ({"setup": replace(SETUP, cards=4), "batch": 32}, 0.5),
        ({"setup": replace(SETUP, generation="gaudi3")}, 1.0),
        ({"setup": replace(SETUP, math="fp8"), "batch": 64}, 2.0),
        ({"setup": replace(SETUP, engine="static")}, 2.5),
        ({"setup": replace(SETUP, engine="v0")}, 0.0),
        # the same active parameters, in a mixture
        ({"shape": replace(SHAPE, body=4e9, experts=8e9, share=0.5)}, 1.5),
    ],
)
def test_each_difference_of_two_loads_adds_its_distance(
    changes: dict[str, Any], apart: float
) -> None:
    assert distance(QUERY, replace(FIGURE, **changes)) == pytest.approx(apart)


@pytest.mark.parametrize(
    ("changes", "apart"),
    [
        ({}, 0.0),
        # the same active parameters of half the experts
        ({"shape": replace(MIXTURE, experts=8e9, share=1.0)}, 0.2782),
        ({"setup": replace(SETUP, fused=False)}, 1.5),
    ],
)
def test_mixtures_are_apart_by_all_experts_and_by_how_they_are_read(
    changes: dict[str, Any], apart: float
) -> None:
    figure = replace(FIGURE, **{"shape": MIXTURE, **changes})
    assert distance(replace(QUERY, shape=MIXTURE), figure) == pytest.approx(apart, rel=1e-3)


def test_the_band_is_that_of_the_class_and_wider_far_from_all_figures() -> None:
    one = replace(FIGURE, input=2048)
    figures = [
        replace(FIGURE, source="far", batch=1024),
        replace(FIGURE, not_scored="no load"),
        one,
        replace(one, value=2.0),
        replace(FIGURE, source="other", input=4096),
        replace(FIGURE, source="last", input=16384),
        replace(FIGURE, source="fourth", input=32768),
    ]
    found = evidence_for(QUERY, figures, CONSTANTS)
    expected = Evidence(
        kind=Kind.SERVED,
        points=12,
        typical=1.2,
        low=0.8,
        high=1.5,
        near=True,
        neighbours=tuple(
            Neighbour(figures[number], near(apart))
            for number, apart in ((2, 0.3), (4, 0.6), (5, 1.2))
        ),
    )
    assert found == expected
    far = evidence_for(QUERY, figures[:1], CONSTANTS)
    assert (far.near, far.low, far.high) == (False, 0.8**1.6, 1.5**1.6)
    assert [neighbour.distance for neighbour in far.neighbours] == [3.0]
    # four doublings of the batch are half as far as two of the model
    at_limit = evidence_for(QUERY, [replace(FIGURE, batch=256)], CONSTANTS)
    assert (at_limit.near, at_limit.low) == (True, 0.8)
    unmeasured = evidence_for(replace(QUERY, measured=False), figures, CONSTANTS)
    assert (unmeasured.near, unmeasured.high) == (False, 1.5**1.6)
    none = evidence_for(replace(QUERY, shape=MIXTURE), [], CONSTANTS)
    assert none == Evidence(Kind.MOE, 3, 1.3, 0.5**1.6, 2.0**1.6, False, ())


def test_own_measurements_give_the_range_where_the_nearest_figure_is_of_this_host() -> None:
    own = Neighbour(replace(FIGURE, note=MEASURED_HERE), 0.0)
    evidence = Evidence(Kind.SERVED, 12, 1.2, 0.8, 1.5, True, (own,))
    learned = of_learned(evidence, version=3, typical=2.0)
    assert learned == replace(evidence, learned=3, typical=2.0, low=0.25, high=4.0)
    assert of_learned(evidence, version=3, typical=1.0) == replace(
        evidence, learned=3, typical=1.0, low=1 / 1.15, high=1.15
    )
    for other in (
        replace(evidence, near=False),
        replace(evidence, neighbours=()),
        replace(evidence, neighbours=(Neighbour(FIGURE, 0.0), own)),
    ):
        assert of_learned(other, version=3, typical=2.0) == replace(other, learned=3)


def test_a_range_of_a_speed_is_the_inverse_of_that_of_a_time() -> None:
    evidence = Evidence(Kind.SERVED, 12, 1.2, 0.5, 2.0, True, ())
    assert evidence.speed(10.0) == Band(5.0, 10.0, 20.0)
    assert evidence.time(10.0) == Band(5.0, 10.0, 20.0)
    uneven = replace(evidence, high=4.0)
    assert (uneven.speed(8.0), uneven.time(8.0)) == (Band(4.0, 8.0, 32.0), Band(2.0, 8.0, 16.0))
    assert Band(1.23456, 2, 3e-7).to_json() == {"low": 1.235, "expected": 2.0, "high": 3e-7}
