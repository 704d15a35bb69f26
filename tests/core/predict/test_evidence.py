"""The figures nearest to a load, and the band that they give."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gaudi_launch.cli.views.estimate import evidence_json
from gaudi_launch.core.launch.prediction import run_of
from gaudi_launch.core.predict.constants import shipped_values
from gaudi_launch.core.predict.evidence import Evidence, Neighbour, Query, evidence_for, of_learned
from gaudi_launch.core.predict.loads import steps
from gaudi_launch.core.predict.published import MEASURED_HERE, Figure, Kind, figures
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.simulate import simulate
from gaudi_launch.core.predict.step_model import Setup

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


SERVED_MIXTURE = replace(FIGURE, shape=MIXTURE, batch=64)


@pytest.mark.parametrize(
    ("figure", "word"),
    [
        (SERVED_MIXTURE, "fitted"),
        (replace(SERVED_MIXTURE, batch=16), "published"),
        (replace(SERVED_MIXTURE, setup=replace(SETUP, cards=4)), "fitted"),
        (replace(SERVED_MIXTURE, setup=replace(SETUP, engine="v0")), "fitted"),
        # another class, card, data type, number of cards, a fork's own code, not scored
        (replace(SERVED_MIXTURE, shape=SHAPE), "assumed"),
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


def test_what_is_shown_of_a_figure_is_simulated_and_it_is_inside_the_range_of_its_load() -> None:
    drawn = random.Random(37).sample(figures(), 100)
    shown = Evidence(Kind.DENSE, 1, 1, 1, 1, True, tuple(Neighbour(one, 0) for one in drawn))
    for figure, row in zip(drawn, evidence_json(shown)["figures"], strict=True):
        found = simulate(*run_of(figure))
        assert found is not None
        latency = found.ttft if figure.measure == "ttft" else found.tpot
        values = {"median": latency.at(50), "p90": latency.at(90), "mean": latency.mean}
        values |= {"total": found.tokens, "step": float(found.steps[1].total)}
        assert row["predicted"] == float(f"{values[figure.statistic]:.4g}"), figure.title
        if not figure.not_scored and not figure.spread:
            assert figure in found.evidence.measured
            band = found.throughput if figure.measure == "throughput" else found.time(latency)
            inside = band.low <= figure.value <= band.high
            assert inside or figure.statistic not in ("total", "mean"), figure.title
