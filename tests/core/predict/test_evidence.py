"""The figures nearest to a load, and the band that they give."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.predict.constants import shipped_values
from gaudi_launch.core.predict.evidence import (
    Band,
    Evidence,
    Neighbour,
    Query,
    distance,
    evidence_for,
    of_learned,
)
from gaudi_launch.core.predict.load import Load
from gaudi_launch.core.predict.loads import steps
from gaudi_launch.core.predict.published import MEASURED_HERE, Figure, Kind, scored
from gaudi_launch.core.predict.scaling import speed_of
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.simulate import ServedSetup, simulate
from gaudi_launch.core.predict.step_model import Setup
from tests.support.records import near
from tests.support.traces import limits

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
    **{name: one for name, one in shipped_values().items() if not name.startswith("band.")},
    "band.dense_served.points": 12.0,
    "band.dense_served.typical": 1.2,
    "band.dense_served.low": 0.8,
    "band.dense_served.high": 1.5,
    "band.dense_served.many.typical": 1.4,
    "band.dense_served.many.low": 0.7,
    "band.dense_served.many.high": 1.6,
    "band.mixture_served.points": 3.0,
    "band.mixture_served.typical": 1.3,
    "band.mixture_served.low": 0.5,
    "band.mixture_served.high": 2.0,
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
        word="fitted",
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
    many = evidence_for(replace(QUERY, setup=replace(SETUP, cards=8)), figures, CONSTANTS)
    assert (many.points, many.typical, many.low) == (12, 1.4, 0.7**1.6)


def test_own_measurements_give_the_range_where_the_nearest_figure_is_of_this_host() -> None:
    own = Neighbour(replace(FIGURE, note=MEASURED_HERE), 0.0)
    evidence = Evidence(Kind.SERVED, 12, 1.2, 0.8, 1.5, True, (own,))
    learned = of_learned(evidence, version=3, typical=2.0)
    here = replace(evidence, learned=3, word="measured here")
    assert learned == replace(here, typical=2.0, low=0.25, high=4.0)
    assert of_learned(evidence, version=3, typical=1.0) == replace(
        here, typical=1.0, low=1 / 1.15, high=1.15
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


SERVED_MIXTURE = replace(FIGURE, shape=MIXTURE, kind=Kind.MIXTURE_SERVED, batch=64)


@pytest.mark.parametrize(
    ("figure", "word"),
    [
        (SERVED_MIXTURE, "fitted"),
        (replace(SERVED_MIXTURE, batch=16), "published"),
        (replace(SERVED_MIXTURE, setup=replace(SETUP, cards=4)), "fitted"),
        (replace(SERVED_MIXTURE, setup=replace(SETUP, engine="v0")), "fitted"),
        # another class, card, data type, number of cards, a fork's own code, not scored
        (replace(SERVED_MIXTURE, kind=Kind.MIXTURE), "assumed"),
        (replace(SERVED_MIXTURE, setup=replace(SETUP, generation="gaudi3")), "assumed"),
        (replace(SERVED_MIXTURE, setup=replace(SETUP, math="fp8")), "assumed"),
        (replace(SERVED_MIXTURE, setup=replace(SETUP, cards=8)), "assumed"),
        (replace(SERVED_MIXTURE, harness="port of one"), "assumed"),
        (replace(SERVED_MIXTURE, not_scored="speculation"), "assumed"),
    ],
)
def test_the_word_follows_the_figures_of_the_fit(figure: Figure, word: str) -> None:
    query = replace(QUERY, shape=MIXTURE)
    assert evidence_for(query, [figure], CONSTANTS).word == word
    assert evidence_for(replace(query, measured=False), [figure], CONSTANTS).word in (
        "assumed",
        "published",
    )


@pytest.mark.parametrize("batch", [1, 4, 64])
@pytest.mark.parametrize("tokens", [64, 4096])
def test_the_range_of_an_assumed_mixture_contains_both_ways_to_read_experts(
    batch: int, tokens: int
) -> None:
    shape = replace(MIXTURE, experts=64e9, share=0.0625, expert_layers=32, routes=256)
    ranges = []
    for fused in (True, False):
        query = Query(replace(SETUP, fused=fused), shape, tokens, 256, batch)
        found = evidence_for(query, [], CONSTANTS)
        assert found.word == "assumed"
        step = steps(query.setup, shape, CONSTANTS).decode(batch, tokens + 128).total
        ranges.append((found.time(float(step)), float(step)))
    for band, _ in ranges:
        assert all(band.low <= step <= band.high for _, step in ranges)


def test_a_figure_of_the_same_load_is_never_outside_the_range() -> None:
    drawn = random.Random(11)
    for _ in range(200):
        value, expected = drawn.uniform(0.01, 100), drawn.uniform(0.01, 100)
        measure = drawn.choice(("throughput", "ttft", "tpot"))
        figure = replace(FIGURE, measure=measure, value=value)
        found = evidence_for(QUERY, [figure], CONSTANTS)
        assert found.measured == (figure,)
        ask = found.speed if measure == "throughput" else found.time
        shown = ask(expected, measure)
        assert shown.low <= min(value, expected) <= max(value, expected) <= shown.high
        assert shown.expected == expected
        plain = ask(expected)
        assert (shown.low, shown.high) == (min(plain.low, value), max(plain.high, value))


def test_each_shipped_figure_is_inside_the_range_of_its_own_load() -> None:
    outside = []
    for figure in scored():
        if figure.measure != "throughput" or figure.copied or figure.kind is Kind.HYBRID:
            continue
        request = (0.0, int(figure.input), int(figure.output))
        load, batch = Load((request,)), int(figure.batch)
        load = load.of_clients(batch)
        if figure.setup.engine == "static":
            load = replace(load, clients=0, batch=batch)
        bounds = limits(
            max_num_seqs=batch,
            max_model_len=1 << 20,
            max_num_batched_tokens=1 << 13,
            num_blocks=1 << 20,
            mixed_steps=figure.setup.engine == "v1",
        )
        found = simulate(ServedSetup(bounds, speed_of(figure.setup, figure.shape)), load)
        assert found is not None
        if not found.throughput.low <= figure.value <= found.throughput.high:
            outside.append(figure.title)
    assert outside == []
